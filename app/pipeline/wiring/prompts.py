"""Builds what one job's model is shown: map, rules, the planning prompt and the brief; always the same bytes."""

from collections.abc import Sequence
from functools import cached_property

from app.agent.prompts import render_brief
from app.core.job import Journal, QuestionAnswers
from app.core.plan import Plan
from app.core.plan_text import parse_plan_file
from app.core.verification import BaselineResult
from app.llm.job_models import JobModels
from app.pipeline.planner import make_plan
from app.pipeline.wiring.images import ImageDescriber
from app.pipeline.wiring.job_inputs import JobInputs
from app.pipeline.wiring.lessons import JobLessons
from app.pipeline.wiring.task_kind import TaskKindSetup
from app.repo.index.survey import RepositorySurvey
from app.repo.instructions import instructions

MAP_TOKENS = 2_500
INSTRUCTION_TOKENS = 3_000


class PromptBuilder:
    """Used by a job runner; `survey` also tells verification which tests guard a change."""

    def __init__(
        self,
        inputs: JobInputs,
        kind: TaskKindSetup,
        memory: JobLessons,
        sight: ImageDescriber,
        survey: RepositorySurvey,
    ) -> None:
        self._inputs = inputs
        self._kind = kind
        self._memory = memory
        self._sight = sight
        self.survey = survey

    async def plan(self, job_models: JobModels, journal: Journal, answers: Sequence[QuestionAnswers] = ()) -> Plan:
        """The plan that people edited, or else the model's."""
        job = self._inputs.job
        if job.plan_file:
            return parse_plan_file(job.plan_file)
        # Not in a thread: a job's steps are numbered in the order in which they start.
        repository_map, rules = self._repository
        return await make_plan(
            job_models.of("plan"),
            journal,
            job,
            answers=answers,
            repository_map=repository_map,
            instructions=rules,
            lessons=self._memory.shown,
            images=self._sight.shown,
            overrides=self._kind.overrides,
        )

    def brief(self, plan: Plan | None, known: BaselineResult, answers: Sequence[QuestionAnswers] = ()) -> str:
        job = self._inputs.job
        repository_map, rules = self._repository
        on_the_branch = job.task.follows_up and job.aim == "fix"  # its diff shows better where to look
        return render_brief(
            self._kind.shown,
            plan=plan,
            answers=answers,
            repository_map="" if on_the_branch else repository_map,
            instructions=rules,
            suite=known.brief,
            example=_example(known),
            guards=self.survey.guards(plan.candidate_files) if plan else (),
            lessons=self._memory.shown,
            images=self._sight.shown,
            overrides=self._kind.overrides,
        )

    def specification(self, tests: str, answers: Sequence[QuestionAnswers] = ()) -> str:
        """The first message for the author of the specification tests; `tests` shows how tests are written here."""
        return render_brief(
            self._inputs.job,
            answers=answers,
            repository_map=self._repository[0],
            images=self._sight.shown,
            tests=tests,
        )

    @cached_property
    def _repository(self) -> tuple[str, list[tuple[str, str]]]:
        """The map and rules of the repository for the model; always the same for the same base."""
        described = self.survey.map(MAP_TOKENS)
        rules = [(rule.path, rule.text) for rule in instructions(self._inputs.tree, INSTRUCTION_TOKENS)]
        if self._inputs.config.instructions:
            rules.insert(0, (".github/agent-fix.yml", self._inputs.config.instructions))
        return described, rules


def _example(known: BaselineResult) -> str:
    """The only independent test that the fixer is shown."""
    found = known.specification
    file = next((file for file in found.files if file.path == found.example), None) if found else None
    return f"{file.path}:\n\n{file.text}" if file else ""
