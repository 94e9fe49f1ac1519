"""Builds what one job's model is shown: map, rules, the planning prompt and the brief; always the same bytes."""

from collections.abc import Sequence
from functools import cached_property, partial

from app.agent.actions import specs
from app.agent.base import Assignment
from app.agent.prompts import render_brief, render_planning, render_start
from app.core.job import Journal, QuestionAnswers
from app.core.plan import Plan
from app.core.plan_text import parse_plan_file
from app.core.verification import Specification
from app.llm.base import Message
from app.llm.job_models import JobModels
from app.pipeline.lessons.failed_attempts import TITLE
from app.pipeline.planner import PlanConversation
from app.pipeline.wiring.images import ImageDescriber
from app.pipeline.wiring.job_inputs import JobInputs
from app.pipeline.wiring.lessons import JobLessons
from app.pipeline.wiring.task_kind import TaskKindSetup
from app.repo.index.survey import RepositorySurvey
from app.repo.instructions import ignored_by_git, instructions

MAP_TOKENS = 220
OUTLINE_TOKENS = 100
GUARDS = 3
INSTRUCTION_TOKENS = 200
AUTHOR_MAP_TOKENS = 1_000


class PromptBuilder:
    """Used by a job runner; `survey` also tells verification which tests guard a change."""

    def __init__(
        self,
        inputs: JobInputs,
        kind: TaskKindSetup,
        memory: JobLessons,
        image_describer: ImageDescriber,
        survey: RepositorySurvey,
    ) -> None:
        self._inputs = inputs
        self._kind = kind
        self._memory = memory
        self._image_describer = image_describer
        self.survey = survey
        self._conversation: PlanConversation | None = None

    async def plan(self, job_models: JobModels, journal: Journal, answers: Sequence[QuestionAnswers] = ()) -> Plan:
        """The plan that people edited, or else the model's."""
        job = self._inputs.job
        if job.plan_file:
            return parse_plan_file(job.plan_file)
        # Not in a thread: a job's steps are numbered in the order in which they start.
        if self._conversation is None:
            self._conversation = self._planning()
        return await self._conversation.make_plan(job_models.of("plan"), journal, job.task.issue.title, answers)

    def assignment(
        self, plan: Plan | None, specification: Specification | None, answers: Sequence[QuestionAnswers] = ()
    ) -> Assignment:
        """What the work begins with; it goes on in the conversation in which its plan was made."""
        job, conversation = self._inputs.job, self._conversation
        start_text = partial(
            render_start,
            job,
            outline=self.survey.outline(plan.candidate_files, OUTLINE_TOKENS) if plan else "",
            example=_example(specification),
            guards=self.survey.guards(plan.candidate_files)[:GUARDS] if plan else (),
        )
        brief = self._brief(answers)
        plan_to_show = plan if plan is None or plan.candidate_files or plan.steps or plan.hypotheses else None
        full_brief = "\n\n".join(filter(None, (brief, start_text(brief, plan=plan_to_show))))
        if conversation is None or not conversation.turns or job.runner != "native":
            return Assignment(brief=full_brief)
        if conversation.begun is not None:
            return Assignment(
                brief=full_brief, opening=conversation.turns, begun=conversation.begun, then=start_text(brief)
            )
        start = start_text(brief, plan=plan if plan != conversation.plan else None, planned=True)
        return Assignment(brief=full_brief, opening=(*conversation.turns, Message(role="user", content=start)))

    def question(self) -> str:
        """The brief of a job that answers a question."""
        return self._brief(())

    def _planning(self) -> PlanConversation:
        job = self._inputs.job
        brief = self._brief(())
        task = job.task.model_copy(update={"sections": ()})
        # Nothing may be done before an approval, and another model's or program's prompts have another beginning.
        shares_tools = job.plan_mode == "auto" and job.runner == "native" and job.chosen.of("plan") == job.main_model
        return PlanConversation(
            brief,
            render_planning(job, brief, self._kind.overrides),
            smallest=render_brief(job.model_copy(update={"task": task}), overrides=self._kind.overrides),
            tools=specs() if shares_tools else (),
        )

    def _brief(self, answers: Sequence[QuestionAnswers]) -> str:
        inputs = self._inputs
        task = inputs.job.task
        repository_map, rules = self._repository
        page = f"{inputs.settings.github_url}/{task.repository}/issues/{task.issue.number}" if task.origin else ""
        return render_brief(
            self._kind.shown,
            answers=answers,
            # a pull request's diff shows better where to look
            repository_map="" if task.follows_up and inputs.job.aim == "fix" else repository_map,
            instructions=rules,
            lessons=self._memory.shown,
            images=self._image_describer.shown,
            overrides=self._kind.overrides,
            address=task.issue.url or page,
            ignored=ignored_by_git(inputs.tree),
        )

    def specification(self, tests: str, answers: Sequence[QuestionAnswers] = ()) -> str:
        """The first message for the author of the specification tests; `tests` shows how tests are written here."""
        job = self._inputs.job
        # What earlier fixers tried is none of the independent author's business.
        sections = tuple(section for section in job.task.sections if section.title != TITLE)
        return render_brief(
            job.model_copy(update={"task": job.task.model_copy(update={"sections": sections})}),
            answers=answers,
            repository_map=self.survey.map(AUTHOR_MAP_TOKENS),
            images=self._image_describer.shown,
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


def _example(found: Specification | None) -> str:
    """The only independent test that the fixer is shown."""
    file = next((file for file in found.files if file.path == found.example), None) if found else None
    return f"{file.path}:\n\n{file.text}" if file else ""
