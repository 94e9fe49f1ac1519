"""Has the authors of tests write a job's specification and its second tests, within their share of the money."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.agent.author import Author, Freeze, decide_objection
from app.core.examples import SourceText
from app.core.job import Progress, QuestionAnswers
from app.core.patch import Patch
from app.core.text import head_and_tail
from app.core.verification import Settlement, Specification, SpecificationResult
from app.llm.budgeted_model import JobModels
from app.pipeline.lessons import issue_text
from app.pipeline.wiring.prompts import JobInputs, PromptBuilder
from app.sandbox.workspaces import Workspaces
from app.verify.proof import NO_RUNNER, Prover
from app.verify.reproduction import layout_of_tests

MONEY_SHARE = 4
"""The author may use at most a quarter of the job's money, and the second author, too."""
MAX_DIFF = 24_000
"""Characters of a change, and of the first author's tests, that the second author is shown."""
DIFF_CONTEXT = 10
"""Lines around each change that the second author is shown, so that most changes need no look."""
_DIGESTS = re.compile(r"^index [0-9a-f]{40}.*\n", re.MULTILINE)
"""Lines of a diff that tell a reader nothing."""
MIN_BUDGET = 200_000
"""Micro-dollars that a job needs to have an author."""


@dataclass(frozen=True, slots=True)
class SpecificationAuthor:
    """For one job."""

    inputs: JobInputs
    progress: Progress
    job_models: JobModels
    workspaces: Workspaces
    prompts: PromptBuilder
    prover: Prover
    find_suite: Callable[[], Awaitable[object]]
    """Returns once the suite is known that goes with the set-up."""

    async def write(self, key: str, answers: Sequence[QuestionAnswers]) -> Specification:
        """The frozen tests, or why there are none."""
        if reason := self._not_wanted():
            return Specification(absent=reason)
        await self.find_suite()
        suite = await self.prover.specifiable()
        if suite is None:
            return Specification(absent=NO_RUNNER)
        author = self._author("author", self.prover.specify)
        return await author.write(key, self.prompts.specification(layout_of_tests(self.inputs.tree, suite), answers))

    async def test_change(self, key: str, patch: Patch, first: Specification) -> Specification:
        """A second author's tests against a submitted change, or why there are none."""
        suite = await self.prover.specifiable()
        if suite is None:
            return Specification(absent=NO_RUNNER)

        async def freeze(
            files: Sequence[SourceText], ids: Sequence[str], outdated: Sequence[str]
        ) -> tuple[Specification, str]:
            return await self.prover.specify_against(first, patch, files, ids)

        author = self._author("second-author", freeze, patch)
        make_diff = partial(self.inputs.mirror.patch_diff, patch, context=DIFF_CONTEXT)
        diff = _DIGESTS.sub("", (await asyncio.to_thread(make_diff)).decode("utf-8", "replace"))
        known = "\n\n".join(f"{file.path}:\n\n{file.text}" for file in first.files)
        brief = self.prompts.change(
            layout_of_tests(self.inputs.tree, suite, listed=0),
            head_and_tail(diff, MAX_DIFF),
            head_and_tail(known, MAX_DIFF),
        )
        return await author.write(key, brief)

    async def decide_objection(self, key: str, found: SpecificationResult, objection: str) -> Settlement:
        ask = partial(self.job_models.of("test").ask, key)
        return await decide_objection(ask, issue_text(self.inputs.job.task), found, objection)

    def _author(self, name: str, freeze: Freeze, patch: Patch | None = None) -> Author:
        return Author(
            budgeted_model=self.job_models.of("test"),
            progress=self.progress,
            open_sandbox=partial(self.workspaces.temporary_sandbox, name, patch),
            freeze=freeze,
            share=self.inputs.job.budget.usd // MONEY_SHARE,
            sees_change=patch is not None,
        )

    def _not_wanted(self) -> str:
        job = self.inputs.job
        if not self.inputs.config.specification:
            return "the repository's configuration turns them off."
        if job.kind == "tests":
            return "tests are the work itself."
        if job.kind == "ci":
            return "the failing checks say what has to pass."
        info = self.job_models.of("test").info
        if job.budget.usd < MIN_BUDGET and info.priced and info.output_price:
            return "the budget is too small for a separate author."
        return ""
