"""The native runner: our own loop over any model, with the six tools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from app.agent.actions import specs
from app.agent.asks import Asks
from app.agent.checkpoint import Checkpoints, WorkTree
from app.agent.history import History
from app.agent.loop import Loop
from app.agent.prompts import head
from app.agent.tools import Toolbox
from app.agent.trajectory import lines
from app.agent.turn import Step
from app.job import Blobs, Budget, Journal, Progress, Silence, Steering
from app.patch import Patch
from app.runners.base import Assignment, Ending, Reviewer
from app.sandbox.base import Sandbox
from app.sandbox.changes import Baseline, export, restore


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that a runner may touch: a metered model, a sandbox, the job's memory; no git, no forge, no host file."""

    meter: Asks
    sandbox: Sandbox
    baseline: Baseline
    journal: Journal
    blobs: Blobs
    progress: Progress
    budget: Budget
    steering: Steering = field(default_factory=Silence)


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
    """Works through an assignment; afterwards `trajectory` has every step, those of earlier processes too.

    `work` calls `review` outside of its own steps, again for each submission of a resumed job: the review is to keep
    its own steps. Errors that the agent cannot mend (budget, provider, sandbox) are raised.
    """

    name = "native"

    def __init__(self, surroundings: Surroundings, *, tree: WorkTree | None = None) -> None:
        self._around = surroundings
        self._tree = tree or SandboxTree(surroundings.sandbox, surroundings.baseline)
        self._steps: Sequence[Step] = ()

    async def work(self, assignment: Assignment, review: Reviewer) -> Ending:
        around = self._around
        history = History(head(assignment.brief, assignment.aim), specs(), around.meter.info)
        self._steps = history.steps
        loop = Loop(
            meter=around.meter,
            journal=around.journal,
            progress=around.progress,
            toolbox=Toolbox(around.sandbox, around.progress),
            checkpoints=Checkpoints(self._tree, around.blobs, around.baseline.tree.commit),
            budget=around.budget,
            history=history,
            review=review,
            aim=assignment.aim,
            steering=around.steering,
        )
        return await loop.work()

    @property
    def steps(self) -> Sequence[Step]:
        return tuple(self._steps)

    def trajectory(self) -> Iterator[str]:
        """JSON lines, one for each step."""
        return lines(self._steps)
