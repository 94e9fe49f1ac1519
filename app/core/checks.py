"""A line of `agent-fix doctor`: whether something that a job needs is there, and how to repair it if not."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "not ok", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Check:
    """`cannot tell` if something is not set, or nobody answers."""

    name: str
    state: State
    detail: str
    repair: str = ""
