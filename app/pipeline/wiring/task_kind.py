"""Adds what a kind of task needs: the repository's own prompts, the fix that tests are for, a note."""

from dataclasses import dataclass
from functools import cached_property, partial

from app.config.prompt_overrides import NO_OVERRIDES, Overrides, path_of, read_overrides
from app.core.job import Job
from app.core.task import TaskSection
from app.core.task_kind import note_of
from app.core.text import plain
from app.core.tree import Tree
from app.repo.git_store import GitStore
from app.verify.revert_fix import revert_fix
from app.verify.tests_for_fix import FixUnderTest

MAX_OF_A_FIX = 12_000
"""Bytes of the fix's diff that are shown."""


@dataclass(frozen=True)
class TaskKindSetup:
    """For one job. `given` are the default branch's prompts if the base is another branch."""

    job: Job
    mirror: GitStore
    tree: Tree
    given: Overrides | None = None

    @cached_property
    def overrides(self) -> Overrides:
        """From the default branch, which is the base unless the work is on a pull request."""
        if self.given is not None:
            return self.given
        return NO_OVERRIDES if self.job.task.follows_up else read_overrides(self.tree)

    @property
    def notes(self) -> tuple[str, ...]:
        """For everyone who reads the result."""
        task = self.job.task
        notes = [note_of(task) if self.job.aim == "fix" else ""]
        if task.prompt and self.overrides.of(task.prompt) is None:
            notes.append(
                f"The prompt `{path_of(task.prompt)}` that was asked for is not in the commit, and was not used."
            )
        elif task.prompt:
            notes.append(f"Worked on with the repository's prompt `{task.prompt}`.")
        return (*filter(None, notes), *self.overrides.notes)

    @property
    def guarded(self) -> FixUnderTest | None:
        """Set only if nothing but tests is to be written."""
        fix = self.job.task.fixed_by
        if self.job.kind != "tests":
            return None
        return FixUnderTest(fix, partial(revert_fix, self.mirror, self.job.task.base, fix)) if fix else FixUnderTest()

    @cached_property
    def shown(self) -> Job:
        """The job for the model, with the fix that its tests are for."""
        task = self.job.task
        if self.job.kind != "tests" or not task.fixed_by:
            return self.job
        title = f"The fix {task.fixed_by[:10]}, which is already on the branch"
        sections = (TaskSection(title=title, text=self._fix(task.fixed_by)), *task.sections)
        return self.job.model_copy(update={"task": task.model_copy(update={"sections": sections})})

    def _fix(self, commit: str) -> str:
        before = self.mirror.parents(commit)
        if not before:
            return ""
        beginning, length = self.mirror.beginning_of_diff(before[0], commit, MAX_OF_A_FIX)
        shown = plain(beginning.decode("utf-8", "replace"))
        return shown if length <= MAX_OF_A_FIX else f"{shown}\n[cut here: the diff goes on, {length:,} bytes in all]"
