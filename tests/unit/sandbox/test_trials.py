"""Keys of sandboxes that are opened to see whether that works, and when a sweep may remove what they name."""

import re
import time

from app.core.processes import this_process
from app.sandbox.host_directories import check_key
from app.sandbox.trials import TRIAL, is_over, trial_key


def test_a_trial_lasts_as_long_as_its_process() -> None:
    key = trial_key()
    check_key(key)
    assert not is_over(key)
    pid = this_process().split(":")[1]
    assert is_over(key.replace(f":{pid}:", ":4194305:"))


def test_a_trial_of_an_unknown_process_ends_after_an_hour() -> None:
    """As after a restart of the machine, or where another machine shares the container engine."""
    now = int(time.time())
    elsewhere = f"-0a1b2c3d4e5f.elsewhere:7:1-{'0' * 8}"
    assert not is_over(f"{TRIAL}{now - 3_000}{elsewhere}")
    assert is_over(f"{TRIAL}{now - 4_000}{elsewhere}")
    assert is_over(re.sub(r"\d+", str(now - 4_000), trial_key(), count=1)), "however long its process lives"
