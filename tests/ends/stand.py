"""One case carried out: the real loop, meter and LiteLLM at an endpoint of ours, and what it came to."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from app.agent.actions import specs
from app.agent.checkpoint import Checkpoints, WorkTree
from app.agent.history import History
from app.agent.loop import Loop
from app.agent.prompts import head
from app.agent.tools import Toolbox
from app.agent.turn import Step
from app.errors import AgentFixError
from app.job import Budget
from app.model.base import Model
from app.model.breaker import Breakers
from app.model.budget import MemoryLedger
from app.model.litellm import LiteLLMModel, Patience
from app.model.meter import Meter
from app.model.pace import Pace
from app.model.prices import Price
from app.runners.base import Review, Submission
from app.runners.native import SandboxTree
from app.sandbox.base import Completed, Sandbox
from app.sandbox.changes import baseline
from app.sandbox.command import Command
from tests.ends.endpoint import Play, Player
from tests.ends.spoken import SpokenModel
from tests.fakes.around import Around
from tests.fakes.local_sandbox import LocalSandbox
from tests.fakes.local_tree import LocalTree
from tests.fakes.memory_journal import MemoryBlobs, MemoryJournal
from tests.fakes.memory_tree import MemoryTree
from tests.fakes.openai_endpoint import Reply
from tests.fakes.progress import ListProgress

FILES = {"app.py": b"def add(a, b):\n    return a - b\n", "README": b"adds\n"}
REJECTED = Review(accepted=False, text="test_add fails on the head")
RETURNED = Review(accepted=False, broken=False, text="Nothing is broken, but it is not proved.")
ACCEPTED = Review(accepted=True)
HASTE = 20.0
"""A second of a command's limit is a twentieth of one here."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is played, and how that has to end: an exit status, or the reason of a raised ModelError, or `budget`.

    `calls` is the most that may reach the endpoint; `says` stands in the sentence for people.
    """

    name: str
    play: Play
    ends: str
    calls: int
    says: str = ""
    reviews: Sequence[Review] = (REJECTED, ACCEPTED)
    budget: Budget = field(default_factory=lambda: Budget(steps=25))
    price: Price | None = field(default_factory=lambda: Price(input=1, cached=0.1, output=10))
    fallbacks: int = 0
    brief: str = "Fix it."
    wire: bool = True
    """Whether it goes over HTTP and through LiteLLM; where not, the same answers are said by a double."""
    boxed: bool = False
    """In a real sandbox: what is played leaves processes behind."""


@dataclass(slots=True)
class Outcome:
    """How a case ended: `status` as in Case.ends, and the sentence for people."""

    status: str
    sentence: str
    steps: Sequence[Step]


class Hasty(Around):
    """A sandbox in which limits pass faster; a command that keeps to its limit sees no difference."""

    async def execute(self, command: Command) -> Completed:
        return await super().execute(replace(command, timeout=command.timeout / HASTE))


class Served(Protocol):
    """Where a case is played."""

    @property
    def url(self) -> str: ...

    def plays(self, play: Play) -> None: ...


class Stand:
    """A job's surroundings in memory, whose waits only move a clock. `work` again is the next process of the job."""

    def __init__(self, case: Case, player: Served, root: Path, sandbox: Sandbox | None = None) -> None:
        self.case = case
        self.now = 0.0
        self.journal = MemoryJournal()
        self.progress = ListProgress()
        self.ledger = MemoryLedger(case.budget.usd)
        self.local = LocalSandbox(root, FILES)
        self._sandbox = Hasty(sandbox or self.local)
        self._tree: WorkTree = LocalTree(self.local, FILES)
        if sandbox is not None:
            self._tree = SandboxTree(sandbox, baseline(MemoryTree(FILES)))
        self.blobs = MemoryBlobs()
        self._player = player if isinstance(player, Player) else None
        self._environment = {"OPENAI_API_BASE": player.url, "OPENAI_API_KEY": "sk-canary-0123456789"}
        self.spent: list[int] = []
        """What was spent when each request arrived."""
        player.plays(self._watched)

    def _watched(self, number: int, body: dict[str, Any]) -> Reply:
        self.spent.append(self.ledger.spent())
        return self.case.play(number, body)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def review(self, submission: Submission) -> Review:
        number = sum(key.startswith("verify.") for key in self.journal.seen)

        async def once() -> Review:
            return self.case.reviews[min(number, len(self.case.reviews) - 1)]

        return await self.journal.step(f"verify.{number + 1}", Review, once)

    async def work(self) -> Outcome:
        meter = self._meter()
        history = History(head(self.case.brief), specs(), meter.info)
        loop = Loop(
            meter=meter,
            journal=self.journal,
            progress=self.progress,
            toolbox=Toolbox(self._sandbox, self.progress),
            checkpoints=Checkpoints(self._tree, self.blobs, "0" * 40),
            budget=self.case.budget,
            history=history,
            review=self.review,
            clock=lambda: self.now,
        )
        try:
            ending = await loop.work()
        except AgentFixError as error:
            return Outcome(getattr(error, "reason", "budget"), error.message, history.steps)
        return Outcome(ending.exit_status, ending.reason, history.steps)

    def _meter(self) -> Meter:
        names = ["openai/local", *(f"openai/other-{number}" for number in range(self.case.fallbacks))]
        patience = Patience(first=5.0, between=5.0)
        made: list[Model] = [
            LiteLLMModel(name, environment=self._environment, price=self.case.price, patience=patience)
            for name in names
        ]
        first, *others = made
        if not self.case.wire and self._player is not None:
            first, others = SpokenModel(first.info, self._player), []
        return Meter(
            first,
            self.ledger,
            self.progress,
            fallbacks=others,
            breakers=Breakers(lambda: self.now),
            sleep=self.sleep,
            pace=lambda: Pace(jitter=lambda: 0.5),
        )


def alive() -> tuple[frozenset[str], frozenset[int]]:
    """Threads that are not the interpreter's own pools or the endpoint's, and child processes."""
    threads = {thread.name for thread in threading.enumerate()}
    own = ("MainThread", "asyncio_", "ThreadPoolExecutor", "Thread-", "import-", "pytest", "AnyIO worker")
    children: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # the thread has ended since it was listed
            children.update(map(int, (task / "children").read_text().split()))
    return frozenset(name for name in threads if not name.startswith(own)), frozenset(children)


def tasks_left() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
