"""Chooses the author of a job's specification tests, with what it is shown, and who settles an objection."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from app.agent.author import Author, decide_objection
from app.core.job import Progress, QuestionAnswers
from app.core.verification import Settlement, Specification, SpecificationResult
from app.llm.job_models import JobModels
from app.pipeline.wiring.job_inputs import JobInputs
from app.pipeline.wiring.prompts import PromptBuilder
from app.sandbox.workspaces import Workspaces
from app.verify.proof import NO_RUNNER, Prover
from app.verify.test_conventions import test_layout

MONEY_SHARE = 4
"""The author may use at most a quarter of the job's money."""
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
        author = Author(
            budgeted_model=self.job_models.of("test"),
            progress=self.progress,
            open_sandbox=partial(self.workspaces.borrowed, "author"),
            freeze=self.prover.specify,
            share=self.inputs.job.budget.usd // MONEY_SHARE,
        )
        return await author.write(key, self.prompts.specification(test_layout(self.inputs.tree, suite), answers))

    async def decide_objection(self, key: str, found: SpecificationResult, objection: str) -> Settlement:
        return await decide_objection(
            partial(self.job_models.of("test").ask, key), issue_text(self.inputs), found, objection
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


def issue_text(inputs: JobInputs) -> str:
    """The issue's text, and the request."""
    task = inputs.job.task
    return "\n\n".join(filter(None, (task.issue.title, task.request, task.issue.body)))
