"""Keys of sandboxes that belong to no job: they are opened to see whether that works, and removed at once.

If a process is killed meanwhile, a later sweep recognizes what it left by the key.
"""

import secrets
import time
from typing import Final

from app.core.processes import is_gone, this_process

TRIAL: Final = "trial-"
"""Begins such a key."""
_LONGEST_SECONDS = 3_600.0
"""Long after every trial is over, also that of a process of which nothing is known here."""


def trial_key() -> str:
    """A new key, with the time and this process."""
    return f"{TRIAL}{int(time.time())}-{secrets.token_hex(6)}.{this_process()}"


def is_over(key: str) -> bool:
    """True if the process of a trial has ended, or if the trial is old."""
    began, _, rest = key.removeprefix(TRIAL).partition("-")
    return is_gone(rest.partition(".")[2]) or time.time() - int(began) > _LONGEST_SECONDS
