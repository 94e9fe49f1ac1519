"""A journal in memory that keeps every step as JSON, and can let the process die at any of them."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from app.core.errors import AgentFixError
from app.core.job import N

CrashMoment = Literal["before", "during", "after"]
_INSIDE = ContextVar("_INSIDE", default="")
"""The step at hand, of each of the tasks that work side by side."""


class Died(BaseException):
    """The process is gone (kill -9). No code under test may catch it."""


@dataclass(slots=True)
class MemoryJournal:
    """Steps by name. `die_at` names a step: before its work, in it (the work was done, nothing kept), or after keeping.

    `resumed()` is the journal of the next process.
    `executed` lists the steps whose work was carried out by this process.
    """

    die_at: str = ""
    moment: CrashMoment = "during"
    kept: dict[str, str] = field(default_factory=dict)
    is_resumed: bool = False
    executed: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    _restore: Callable[[], Awaitable[None]] | None = None

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        self._restore = restore if self.is_resumed else None

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        registered = self._restore
        assert not _INSIDE.get(), f"step {name} inside step {_INSIDE.get()}: only the outer one would be kept"
        assert name not in self.seen, f"two steps are named {name}"
        self.seen.add(name)
        if name not in self.kept:
            inside = _INSIDE.set(name)
            try:
                self.kept[name] = json.dumps(await self._carry_out(name, registered, work))
            finally:
                _INSIDE.reset(inside)
            self._die(name, "after")
        kept: dict[str, Any] = json.loads(self.kept[name])
        if "error" in kept:
            raise AgentFixError.from_json(kept["error"])
        return kind.model_validate(kept["result"])

    def resumed(self, *, die_at: str = "", moment: CrashMoment = "during") -> "MemoryJournal":
        return MemoryJournal(die_at, moment, self.kept, is_resumed=True)

    async def _carry_out(
        self, name: str, registered: Callable[[], Awaitable[None]] | None, work: Callable[[], Awaitable[N]]
    ) -> dict[str, Any]:
        self._die(name, "before")
        self.executed.append(name)
        try:
            if registered is not None and registered is self._restore:
                self._restore = None
                await registered()
            result = await work()
        except AgentFixError as error:
            if not error.final:
                raise
            return {"error": error.to_json()}
        self._die(name, "during")
        return {"result": result.model_dump(mode="json")}

    def _die(self, name: str, moment: CrashMoment) -> None:
        if (name, moment) == (self.die_at, self.moment):
            raise Died(name)


@dataclass(slots=True)
class MemoryBlobs:
    """A job's bytes by their SHA-256."""

    contents: dict[str, bytes] = field(default_factory=dict)

    def put(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        return self.contents[digest]
