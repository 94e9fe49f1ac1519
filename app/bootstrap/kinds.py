"""What a job's kind of task brings to its desk: the repository's own prompts, the fix that tests are for, a note."""

from dataclasses import dataclass
from functools import cached_property, partial

from app.context.overrides import NO_OVERRIDES, Overrides, overrides_in
from app.gitstore import GitStore
from app.job import Job
from app.task import Section
from app.task_kind import note_of
from app.text import plain
from app.tree import Tree
from app.verify.guarding import Guarded
from app.verify.taken_back import take_back

MOST_OF_A_FIX = 12_000
"""Bytes of its diff that are shown."""


@dataclass(frozen=True)
class KindOfTask:
    """One job's. `given` are the default branch's prompts where the base is another branch."""

    job: Job
    mirror: GitStore
    tree: Tree
    given: Overrides | None = None

    @cached_property
    def overrides(self) -> Overrides:
        """Of the default branch: the base is that, unless the work is on a pull request."""
        if self.given is not None:
            return self.given
        return NO_OVERRIDES if self.job.task.follows_up else overrides_in(self.tree)

    @property
    def notes(self) -> tuple[str, ...]:
        """For everybody who reads the result."""
        note = note_of(self.job.task) if self.job.aim == "fix" else ""
        return (*((note,) if note else ()), *self.overrides.notes)

    @property
    def guarded(self) -> Guarded | None:
        """There only where nothing but tests is to be written."""
        fix = self.job.task.fixed_by
        if self.job.kind != "tests":
            return None
        return Guarded(fix, partial(take_back, self.mirror, self.job.task.base, fix)) if fix else Guarded()

    @cached_property
    def shown(self) -> Job:
        """The job as the model sees it: with the fix that its tests are for."""
        task = self.job.task
        if self.job.kind != "tests" or not task.fixed_by:
            return self.job
        title = f"The fix {task.fixed_by[:10]}, which the branch has already"
        sections = (Section(title=title, text=self._fix(task.fixed_by)), *task.sections)
        return self.job.model_copy(update={"task": task.model_copy(update={"sections": sections})})

    def _fix(self, commit: str) -> str:
        before = self.mirror.parents(commit)
        if not before:
            return ""
        beginning, length = self.mirror.beginning_of_diff(before[0], commit, MOST_OF_A_FIX)
        shown = plain(beginning.decode("utf-8", "replace"))
        return shown if length <= MOST_OF_A_FIX else f"{shown}\n[cut here: the diff goes on, {length:,} bytes in all]"
