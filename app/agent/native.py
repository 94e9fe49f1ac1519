"""The native runner: our own loop over any model, with the six tools."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.agent.actions import specs
from app.agent.base import Assignment, ModelPort, Reviewer, RunnerEnding
from app.agent.history import ConversationHistory
from app.agent.loop import AgentLoop
from app.agent.prompts import head
from app.agent.step import Checkpoints, Step, WorkTreePort
from app.agent.tools import AgentTools
from app.core.job import Blobs, Budget, Journal, NoUserMessages, Progress, UserMessages
from app.core.money import DOLLAR
from app.core.patch import Patch
from app.sandbox.base import Sandbox
from app.sandbox.changes import Baseline, export, restore


def lines(steps: Iterable[Step]) -> Iterator[str]:
    """JSON lines without line ends. `cost` is in US dollars; `files` are the changed paths after the step."""
    for step in steps:
        yield json.dumps(record(step), ensure_ascii=False).encode("utf-8", "replace").decode()


def record(step: Step) -> Mapping[str, Any]:
    """One step as plain data: the model's answer, then each call with its observation."""
    answer, turn = step.stored_answer.answer, step.turn
    entry: dict[str, Any] = {
        "step": turn.number,
        "model": answer.model,
        "content": answer.content,
        "finish_reason": answer.finish_reason,
        "actions": [
            {
                "tool": call.name,
                "arguments": json.loads(call.arguments),
                "outcome": seen.outcome,
                "observation": seen.text,
            }
            for call, seen in zip(turn.calls, turn.observations, strict=True)
        ],
        "notes": [*turn.notes, *filter(None, [turn.base_suite])],
        "words": [message.model_dump() for message in turn.user_messages],
        "usage": {**answer.usage.model_dump(exclude={"cost"}), "cost": answer.usage.cost / DOLLAR},
        "seconds": {"model": round(step.stored_answer.seconds, 3), "actions": round(turn.seconds, 3)},
    }
    if turn.checkpoint is not None:
        entry["files"] = [state.path for state in turn.checkpoint.files]
    if turn.fate is not None:
        entry["submission"] = turn.fate
    return entry


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """All that a runner may use: a budgeted model, a sandbox, the job's storage; no git, GitHub or host files."""

    budgeted_model: ModelPort
    sandbox: Sandbox
    baseline: Baseline
    journal: Journal
    blobs: Blobs
    progress: Progress
    budget: Budget
    user_messages: UserMessages = field(default_factory=NoUserMessages)
    base_suite: Callable[[], str] = str
    """What the agent is told of the suite on the base; empty until that is known."""


class SandboxTree:
    """The tree of one sandbox."""

    def __init__(self, sandbox: Sandbox, baseline: Baseline) -> None:
        self._sandbox = sandbox
        self._baseline = baseline

    async def export(self) -> Patch:
        return await export(self._sandbox, self._baseline)

    async def restore(self, patch: Patch) -> None:
        await restore(self._sandbox, self._baseline, patch)


class NativeRunner:
    """Works through an assignment; afterwards `trajectory` has every step, including those of earlier processes.

    `work` calls `review` outside its own steps, and again for each submission of a resumed job, so the review must
    store its own steps. Raises errors that the agent cannot fix (budget, provider, sandbox).
    """

    name = "native"

    def __init__(self, context: RunnerContext, *, tree: WorkTreePort | None = None) -> None:
        self._context = context
        self._tree = tree or SandboxTree(context.sandbox, context.baseline)
        self._steps: Sequence[Step] = ()

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        context = self._context
        opening = head(assignment.brief, assignment.aim, assignment.opening)
        history = ConversationHistory(opening, specs(), context.budgeted_model.info)
        self._steps = history.steps
        loop = AgentLoop(
            budgeted_model=context.budgeted_model,
            journal=context.journal,
            progress=context.progress,
            toolbox=AgentTools(context.sandbox, context.progress),
            checkpoints=Checkpoints(self._tree, context.blobs, context.baseline.tree.commit),
            budget=context.budget,
            history=history,
            review=review,
            aim=assignment.aim,
            user_messages=context.user_messages,
            base_suite=context.base_suite,
            begun=assignment.begun,
            then=assignment.then,
        )
        return await loop.work()

    @property
    def steps(self) -> Sequence[Step]:
        return tuple(self._steps)

    def trajectory(self) -> Iterator[str]:
        """JSON lines, one for each step."""
        return lines(self._steps)
