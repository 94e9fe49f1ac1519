"""Trouble on request: what GitHub and networks do on bad days, for so many of the requests that match."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

HTML = "<!DOCTYPE html><html><body><h1>Unicorn!</h1></body></html>"


@dataclass
class Fault:
    """Answers a matching `METHOD path` in GitHub's place, `times` times.

    `after` does what was asked first and loses the answer; `cut` sends half of the true answer; `drop` sends nothing.
    """

    match: str
    status: int = 502
    body: str = HTML
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    after: bool = False
    cut: bool = False
    drop: bool = False

    def hits(self, method: str, path: str) -> bool:
        if self.times > 0 and re.fullmatch(self.match, f"{method} {path}"):
            self.times -= 1
            return True
        return False
