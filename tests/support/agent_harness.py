"""A harness for the native agent: scripted answers, a temporary tree, a durable journal, a scripted review."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.agent.base import Assignment, AssignmentAim, ReviewResult, RunnerContext, RunnerEnding, Submission
from app.agent.loop import NativeRunner
from app.agent.step import Step
from app.core.job import Budget, UserMessage
from app.llm.base import FinishReason, ModelAnswer, ModelInfo, ModelRequest, ToolCall, Usage
from app.sandbox.changes import baseline
from tests.support.local_sandbox import LocalSandbox
from tests.support.local_tree import LocalTree
from tests.support.memory_journal import MemoryBlobs, MemoryJournal
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel, Turn

COST = 1_000
FILES = {"app.py": b"def add(a, b):\n    return a - b\n", "README": b"adds\n"}
INFO = ModelInfo(name="scripted", context_window=128_000, max_output=8_192)


def act(
    *calls: tuple[str, Mapping[str, Any] | str], content: str = "", finish: FinishReason = "tool_calls"
) -> ModelAnswer:
    """An answer with tool calls; arguments may be raw text."""
    made = tuple(
        ToolCall(id=f"c{index}", name=name, arguments=given if isinstance(given, str) else json.dumps(given))
        for index, (name, given) in enumerate(calls)
    )
    return ModelAnswer(content=content, tool_calls=made, finish_reason=finish, usage=usage())


def say(content: str, finish: FinishReason = "stop") -> ModelAnswer:
    return ModelAnswer(content=content, finish_reason=finish, usage=usage())


def usage() -> Usage:
    return Usage(prompt_tokens=0, completion_tokens=10, cost=COST)


def bash(command: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command, **more}


FIX = act(("edit", {"path": "app.py", "old_text": "a - b", "new_text": "a + b"}))
SUBMIT = act(("submit", {"summary": "fixed", "reproduction": "grep -q + app.py"}))


class UnbudgetedModel:
    """A model asked without a budget."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    @property
    def info(self) -> ModelInfo:
        return self.model.info

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        return await self.model.complete(request, key=key)


@dataclass(slots=True)
class AgentHarness:
    """One job's surroundings. `work()` is one process; after it died, `work()` again is the next one."""

    root: Path
    turns: Sequence[Turn] = ()
    reviews: Iterable[ReviewResult] = (ReviewResult(accepted=True),)
    budget: Budget = field(default_factory=Budget)
    info: ModelInfo = INFO
    files: Mapping[str, bytes] = field(default_factory=lambda: FILES)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    progress: ListProgress = field(default_factory=ListProgress)
    submissions: list[Submission] = field(default_factory=list)
    reviewed: list[list[str]] = field(default_factory=list)
    """The names at the top of the tree at each review."""
    clock: Callable[[], float] = lambda: 0.0
    aim: AssignmentAim = "change"
    said: list[UserMessage] = field(default_factory=list)
    base_suite: str = ""
    model: ScriptedModel = field(init=False)
    sandbox: LocalSandbox = field(init=False)
    tree: LocalTree = field(init=False)
    runner: NativeRunner | None = None
    """The process that worked last."""

    def __post_init__(self) -> None:
        self.plays(*self.turns)
        self.sandbox = LocalSandbox(self.root, self.files)
        self.sandbox.clock = lambda: 0.0  # two executions of the same are to be told alike
        self.tree = LocalTree(self.sandbox, self.files)
        self.reviews = list(self.reviews)

    async def review(self, submission: Submission) -> ReviewResult:
        """Durable, as the real one is: what was once reviewed is not reviewed again."""

        number = sum(key.startswith("verify.") for key in self.journal.seen)

        async def once() -> ReviewResult:
            self.submissions.append(submission)
            self.reviewed.append(sorted(path.name for path in self.sandbox.workspace.iterdir()))
            return list(self.reviews)[number]

        return await self.journal.step(f"verify.{number + 1}", ReviewResult, once)

    def plays(self, *turns: Turn) -> None:
        """What the model answers from now on."""
        self.model = ScriptedModel(turns, info=self.info)

    def report(self, text: str, who: str = "octocat") -> None:
        """People speak to the agent; from anywhere, also while a model answers."""
        self.said.append(UserMessage(seq=10 * len(self.said) + 10, author=who, text=text))

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        return tuple(said for said in self.said if said.seq > seq)

    async def work(self, brief: str = "Fix it.") -> RunnerEnding:
        context = RunnerContext(
            budgeted_model=UnbudgetedModel(self.model),
            sandbox=self.sandbox,
            baseline=baseline(MemoryTree(self.files)),
            journal=self.journal,
            blobs=self.blobs,
            progress=self.progress,
            budget=self.budget,
            user_messages=self,
            base_suite=lambda: self.base_suite,
        )
        self.runner = NativeRunner(context, tree=self.tree, clock=self.clock)
        return await self.runner.work(Assignment(brief=brief, aim=self.aim), self.review)

    @property
    def steps(self) -> Sequence[Step]:
        return self.runner.steps if self.runner else ()

    def seen(self, step: int, call: int = 0) -> str:
        """What the model was told of a call."""
        return self.steps[step - 1].turn.observations[call].text

    def notes(self, step: int) -> str:
        return "\n".join(self.steps[step - 1].turn.notes)
