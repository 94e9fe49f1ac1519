"""One case carried out: the real loop, meter and LiteLLM at an endpoint of ours, and what it came to."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from app.agent.base import Assignment, ReviewResult, RunnerContext, Submission
from app.agent.loop import NativeRunner
from app.agent.step import SandboxTree, Step, WorkTreePort
from app.core.errors import AgentFixError
from app.core.job import Budget
from app.llm.budgeted_model import BudgetedModel
from app.llm.circuit_breaker import CircuitBreakers, RetryBackoff
from app.llm.litellm import LiteLLMModel, ModelTimeouts
from app.llm.prices import Price
from app.sandbox.base import CompletedCommand, Sandbox, SandboxCommand
from app.sandbox.changes import baseline
from tests.support.always_ends.direct_model import DirectModel
from tests.support.always_ends.endpoint import CaseEndpoint, Play
from tests.support.local_sandbox import LocalSandbox
from tests.support.local_tree import LocalTree
from tests.support.memory_journal import MemoryBlobs, MemoryJournal
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_tree import MemoryTree
from tests.support.openai_endpoint import Reply
from tests.support.recorded_progress import ListProgress
from tests.support.wrapped_sandbox import WrappedSandbox

if TYPE_CHECKING:
    from app.llm.base import Model

FILES = {"app.py": b"def add(a, b):\n    return a - b\n", "README": b"adds\n"}
REJECTED = ReviewResult(accepted=False, text="test_add fails on the head")
RETURNED = ReviewResult(accepted=False, broken=False, text="Nothing is broken, but it is not proved.")
ACCEPTED = ReviewResult(accepted=True)
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
    reviews: Sequence[ReviewResult] = (REJECTED, ACCEPTED)
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


class HastySandbox(WrappedSandbox):
    """A sandbox in which limits pass faster; a command that keeps to its limit sees no difference."""

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return await super().execute(replace(command, timeout=command.timeout / HASTE))


class ServedCases(Protocol):
    """Where a case is played."""

    @property
    def url(self) -> str: ...

    def plays(self, play: Play) -> None: ...


class CaseRunner:
    """A job's surroundings in memory, whose waits only move a clock. `work` again is the next process of the job."""

    def __init__(self, case: Case, player: ServedCases, root: Path, sandbox: Sandbox | None = None) -> None:
        self.case = case
        self.now = 0.0
        self.journal = MemoryJournal()
        self.progress = ListProgress()
        self.ledger = MemoryLedger(case.budget.usd)
        self.local = LocalSandbox(root, FILES)
        self._sandbox = HastySandbox(sandbox or self.local)
        self._tree: WorkTreePort = LocalTree(self.local, FILES)
        if sandbox is not None:
            self._tree = SandboxTree(sandbox, baseline(MemoryTree(FILES)))
        self.blobs = MemoryBlobs()
        self._player = player if isinstance(player, CaseEndpoint) else None
        self._environment = {"OPENAI_API_BASE": player.url, "OPENAI_API_KEY": "sk-canary-0123456789"}
        self.spent: list[int] = []
        """What was spent when each request arrived."""
        player.plays(self._watched)

    def _watched(self, number: int, body: dict[str, Any]) -> Reply:
        self.spent.append(self.ledger.spent())
        return self.case.play(number, body)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def review(self, submission: Submission) -> ReviewResult:
        number = sum(key.startswith("verify.") for key in self.journal.seen)

        async def once() -> ReviewResult:
            return self.case.reviews[min(number, len(self.case.reviews) - 1)]

        return await self.journal.step(f"verify.{number + 1}", ReviewResult, once)

    async def work(self) -> Outcome:
        budgeted_model = self._budgeted_model()
        context = RunnerContext(
            budgeted_model=budgeted_model,
            sandbox=self._sandbox,
            baseline=baseline(MemoryTree(FILES)),
            journal=self.journal,
            blobs=self.blobs,
            progress=self.progress,
            budget=self.case.budget,
        )
        runner = NativeRunner(context, tree=self._tree, clock=lambda: self.now)
        try:
            ending = await runner.work(Assignment(brief=self.case.brief), self.review)
        except AgentFixError as error:
            return Outcome(getattr(error, "reason", "budget"), error.message, runner.steps)
        return Outcome(ending.exit_status, ending.reason, runner.steps)

    def _budgeted_model(self) -> BudgetedModel:
        names = ["openai/local", *(f"openai/other-{number}" for number in range(self.case.fallbacks))]
        timeout = ModelTimeouts(first=5.0, between=5.0)
        made: list[Model] = [
            LiteLLMModel(name, environment=self._environment, price=self.case.price, timeouts=timeout) for name in names
        ]
        first, *others = made
        if not self.case.wire and self._player is not None:
            first, others = DirectModel(first.info, self._player), []
        return BudgetedModel(
            first,
            self.ledger,
            self.progress,
            fallbacks=others,
            breakers=CircuitBreakers(lambda: self.now),
            sleep=self.sleep,
            backoff=lambda: RetryBackoff(jitter=lambda: 0.5),
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
