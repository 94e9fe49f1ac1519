"""What a job starts from, and what its model is shown: lessons, map, rules, images, the planning prompt, the brief."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.agent.base import Assignment
from app.agent.prompts import (
    render,
    render_answers,
    render_brief,
    render_examples,
    render_planning,
    render_review,
    render_start,
)
from app.config.repository import NO_OVERRIDES, Overrides, RepoConfig, path_of, read_overrides
from app.config.settings import Settings
from app.core.examples import PlanExamples
from app.core.job import Job, JobResult, Journal, Progress, QuestionAnswers
from app.core.lessons import Lesson, LessonRanking
from app.core.patch import Tree
from app.core.plan import Plan, parse_plan_file, with_origin
from app.core.record import Record
from app.core.redaction import Redactor
from app.core.task import TaskSection, note_of
from app.core.text import beginning_of, count, has_words, listed, plain
from app.core.verification import EarlierProof, Verification
from app.jobs.lessons import SqlLessonStore
from app.jobs.store import JobStore
from app.llm.base import ImageContent, Message, ModelRequest
from app.llm.budgeted_model import JobModels
from app.llm.errors import ModelError
from app.pipeline.lessons import (
    ChromaRanking,
    FullTextRanking,
    JobExperience,
    check_installed,
    issue_text,
    learned_lessons_note,
    lessons_for_model,
    lessons_of,
    recall,
    used_lessons_note,
)
from app.pipeline.planner import PlanConversation, ProposedPlan
from app.repo.git_store import GitStore
from app.repo.index.survey import RepositorySurvey
from app.repo.instructions import Instructions, ignored_by_git, instructions, skills
from app.sandbox.workspaces import Workspaces
from app.verify.examples.checks import mark_hidden
from app.verify.examples.executors import HELP, languages_here
from app.verify.examples.judge import ExampleJudge
from app.verify.project import FixUnderTest
from app.verify.reproduction import revert_fix

if TYPE_CHECKING:
    from app.core.model_usage import WorkKind


class JobLessons:
    """One job's lessons; without `lessons`, none are known or stored. `forget` is the command that deletes a lesson."""

    def __init__(
        self,
        job: Job,
        lessons: SqlLessonStore | None,
        ranking: LessonRanking,
        *,
        forget: str,
        redactor: Redactor,
    ) -> None:
        self._job = job
        self._lessons = lessons
        self._ranking = ranking
        self._forget = forget
        self._redactor = redactor
        self._lessons_shown: tuple[Lesson, ...] = ()

    async def recall(self, tree: Tree, progress: Progress) -> None:
        """Call before the first prompt; repeatable after a crash."""
        if self._lessons is not None:
            self._lessons_shown = await recall(self._lessons, self._ranking, tree, self._job.id, self._job.task)
        for note in self.used:
            progress.report("note", note)

    async def learn(self, experience: JobExperience, progress: Progress) -> str:
        """Returns a note for people."""
        if self._lessons is None:
            return ""
        drafts = await asyncio.to_thread(lessons_of, experience)
        harmless = [draft for draft in drafts if not self._redactor.found(draft.text)]
        learned = await asyncio.to_thread(self._lessons.learn, harmless) if harmless else ()
        note = learned_lessons_note(learned, self._forget)
        if note:
            progress.report("note", note)
        return note

    @property
    def used(self) -> tuple[str, ...]:
        """For people; empty if there were none."""
        return tuple(filter(None, (used_lessons_note(self._lessons_shown),)))

    @property
    def shown(self) -> str:
        """The text for the model."""
        return lessons_for_model(self._lessons_shown)


def job_lessons(job: Job, lessons: SqlLessonStore | None, settings: Settings, *, forget: str) -> JobLessons:
    """Raises AgentFixError if the index that `AGENT_FIX_LESSONS` names is not installed."""
    ranking = make_ranking(settings, lessons.repository) if lessons else FullTextRanking()
    return JobLessons(job, lessons, ranking, forget=forget, redactor=Redactor(settings.secrets))


def make_ranking(settings: Settings, repository: str) -> LessonRanking:
    kind, _, directory = settings.lessons.partition(":")
    if kind != "chroma":
        return FullTextRanking()
    check_installed()
    return ChromaRanking(Path(directory), repository, FullTextRanking())


_IMAGE_ERRORS: Final = frozenset({"bad_request", "refused"})
"""Errors that concern only this call."""
IMAGE_TOKENS: Final = 2_000
_CHARACTERS_PER_TOKEN: Final = 4
NO_VISION_MODEL: Final = "none of the job's models is known to take images"
ASK_FOR_WORDS: Final = (
    "The issue says nothing but its title and an image that was not shown to a model. What should be changed?"
)


class ImageDescription(Record):
    """The description, limited in length; `why_not` tells people why there is none."""

    text: str = ""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class JobInputs:
    """The same for server, Action and command line; `notes` go to everyone who reads the result."""

    job: Job
    config: RepoConfig
    tree: Tree
    mirror: GitStore
    store: JobStore
    settings: Settings
    notes: tuple[str, ...] = ()
    overrides: Overrides | None = None
    """The default branch's prompts, if the base is another branch."""
    earlier: EarlierProof | None = None
    """What was proved on the pull request that the job follows up; None if nothing is known."""
    lessons: SqlLessonStore | None = None
    """The lessons of the job's repository; None if there are none."""

    def show(self, result: JobResult) -> None:
        """Store what people are asked about, or what exists at a limit, while the job waits for them. Blocking."""
        self.store.store_result(self.job.id, result.model_dump(mode="json"))


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


class ImageDescriber:
    """Describes an issue's images for the agent. Without images, no model is called and no step is made."""

    def __init__(self, job: Job, job_models: JobModels, contents: Callable[[str], bytes]) -> None:
        self._job = job
        self._job_models = job_models
        self._contents = contents
        self._description = ImageDescription()

    async def describe(self, journal: Journal, progress: Progress) -> None:
        """Call before the first prompt; repeatable after a crash.

        The model is chosen inside the step, so that a resumed job has the same steps. A model that rejects these images
        never fails the job. Errors that concern all calls (no money, no provider) are raised.
        """
        if self._job.task.images:
            self._description = await journal.step("images.answer", ImageDescription, self._ask_vision_model)
        for note in self.notes:
            progress.report("note", note)

    @property
    def shown(self) -> str:
        """The text for the agent."""
        return self._description.text

    @property
    def notes(self) -> tuple[str, ...]:
        """For people: what was described, and what was not."""
        what = count(len(self._job.task.images), "image")
        summary = f"{what} of the issue went to a model, and the agent was given its description." if self.shown else ""
        return tuple(filter(None, (summary, self._description.why_not, *self._job.task.images_left_out)))

    async def _ask_vision_model(self) -> ImageDescription:
        """Ask the cheapest model that is known to accept images."""
        kinds: tuple[WorkKind, ...] = ("cheap", "answer") if self._job.aim == "ask" else ("cheap", "code", "plan")
        models = map(self._job_models.of, kinds)
        budgeted_model = next((each for each in models if each.info.vision), None)
        if budgeted_model is None:
            return ImageDescription(why_not=self._not_shown(NO_VISION_MODEL))
        try:
            answer = await budgeted_model.ask("images", self._request())
        except ModelError as error:
            if error.kind != "shrink" and error.reason not in _IMAGE_ERRORS:
                raise
            return ImageDescription(why_not=self._not_shown(error.message.rstrip(".")))
        text = plain(answer.content).strip()
        if not text:
            return ImageDescription(why_not=self._not_shown("the model's answer was empty"))
        return ImageDescription(text=beginning_of(text, IMAGE_TOKENS * _CHARACTERS_PER_TOKEN))

    def _not_shown(self, why: str) -> str:
        number = len(self._job.task.images)
        return f"{count(number, 'image')} {'was' if number == 1 else 'were'} not shown to a model: {why}."

    def _request(self) -> ModelRequest:
        images = self._job.task.images
        text = "\n".join(f"Image {image.number}: {image.width} by {image.height} pixels" for image in images)
        contents = tuple(
            ImageContent(media_type=image.media_type, data=base64.b64encode(self._contents(image.digest)).decode())
            for image in images
        )
        messages = (
            Message(role="system", content=render("images")),
            Message(role="user", content=text, images=contents),
        )
        return ModelRequest(messages=messages, max_tokens=2 * IMAGE_TOKENS)


MAP_TOKENS = 220
OUTLINE_TOKENS = 100
GUARDS = 3
INSTRUCTION_TOKENS = 8_000
_INSTRUCTION_SHARE = 8
"""The instructions take at most this part of the smallest context window."""
_NEAR = 5
"""Likely files whose folders' instructions are shown before there is a plan."""
_MAX_FURTHER = 20


class PromptBuilder:
    """Used by a job runner; `survey` also tells verification which tests guard a change."""

    def __init__(
        self,
        inputs: JobInputs,
        kind: TaskKindSetup,
        memory: JobLessons,
        image_describer: ImageDescriber,
        survey: RepositorySurvey,
        *,
        job_models: JobModels,
    ) -> None:
        self._inputs = inputs
        self._job_models = job_models
        self._kind = kind
        self._memory = memory
        self._image_describer = image_describer
        self.survey = survey
        self.notes: tuple[str, ...] = ()
        """For people: instruction files that were too long to be shown in full."""
        self.judge: ExampleJudge | None = None
        """Runs a plan's examples on the base."""
        self._conversation: PlanConversation | None = None

    async def plan(
        self,
        journal: Journal,
        workspaces: Workspaces,
        progress: Progress,
        answers: Sequence[QuestionAnswers] = (),
    ) -> ProposedPlan:
        """The plan that people edited, for which the model writes examples if it has none; or else the model's."""
        job = self._inputs.job
        given = with_origin(parse_plan_file(job.plan_file), job.examples) if job.plan_file else None
        if given is not None and (given.examples or not job.expects_red):
            return ProposedPlan(plan=given, found=PlanExamples(outdated=job.outdated))
        if given is None and not answers and self._has_only_hidden_images:
            return ProposedPlan(plan=Plan(summary=ASK_FOR_WORDS, questions=(ASK_FOR_WORDS,)))
        # Not in a thread: a job's steps are numbered in the order in which they start.
        if self._conversation is None:
            self._conversation = self._planning(workspaces, progress, given)
        proposed = await self._conversation.make_plan(self._job_models.of("plan"), journal, answers)
        if given is None:
            return proposed
        return ProposedPlan(plan=given.model_copy(update={"examples": proposed.plan.examples}), found=proposed.found)

    @property
    def _has_only_hidden_images(self) -> bool:
        """True if nobody says in words what is wanted, and no model saw the images."""
        task = self._inputs.job.task
        words = has_words(task.issue.body) or task.request.strip() or task.sections
        return bool(task.images or task.images_left_out) and not words and not self._image_describer.shown

    def with_hidden(self, found: PlanExamples) -> PlanExamples:
        """The examples, each marked if the work's prompt has none of its values."""
        conversation = self._conversation
        if conversation is not None and self._continues:
            return conversation.with_hidden(found)
        return mark_hidden(found, (issue_text(self._inputs.job.task),), "")

    @property
    def _continues(self) -> bool:
        """True if the work continues the conversation in which the plan was made."""
        job = self._inputs.job
        return job.runner == "native" and job.chosen.of("plan") == job.main_model

    def assignment(
        self, plan: Plan | None, examples: PlanExamples | None, answers: Sequence[QuestionAnswers] = ()
    ) -> Assignment:
        """What the work begins with; it continues the looks that its plan was made from."""
        start_text = partial(
            render_start,
            self._inputs.job,
            plan=plan,
            outline=self.survey.outline(plan.candidate_files, OUTLINE_TOKENS) if plan else "",
            examples=render_examples(examples, self._inputs.earlier),
            guards=self.survey.guards(plan.candidate_files)[:GUARDS] if plan else (),
            planned=plan is not None,
            instructions=self._rules_of(plan.candidate_files) if plan else (),
        )
        brief = self._brief(answers)
        full_brief = "\n\n".join((brief, start_text(brief)))
        opening = self._conversation.opening() if self._conversation is not None and self._continues else ()
        if not opening:
            return Assignment(brief=full_brief)
        answered = f"{render_answers(answers)}\n\n" if answers else ""
        start = Message(role="user", content=f"{answered}{start_text(brief)}")
        return Assignment(brief=full_brief, opening=(*opening, start))

    def question(self) -> str:
        """The brief of a job that answers a question."""
        return self._brief(())

    def _planning(self, workspaces: Workspaces, progress: Progress, given: Plan | None) -> PlanConversation:
        job = self._inputs.job
        task = job.task.model_copy(update={"sections": ()})
        asks = render_planning(job, self._kind.overrides, self._runs if job.expects_red else (), given)
        smallest = render_brief(job.model_copy(update={"task": task}), overrides=self._kind.overrides)
        return PlanConversation(
            brief="\n\n".join(filter(None, (self._brief(()), asks))),
            smallest="\n\n".join(filter(None, (smallest, asks))),
            title=job.task.issue.title,
            issue=issue_text(job.task),
            open_sandbox=partial(workspaces.temporary_sandbox, "plan"),
            progress=progress,
            freeze=self.judge.freeze if self.judge is not None and job.expects_red else None,
        )

    @cached_property
    def _runs(self) -> Sequence[tuple[str, str]]:
        """How an example's program can be run here, with a line of help for each."""
        return [(run, HELP[run]) for run in languages_here(self._inputs.tree)]

    def _brief(self, answers: Sequence[QuestionAnswers]) -> str:
        inputs = self._inputs
        task = inputs.job.task
        found = self._instructions
        page = f"{inputs.settings.github_url}/{task.repository}/issues/{task.issue.number}" if task.origin else ""
        return render_brief(
            self._kind.shown,
            answers=answers,
            # a pull request's diff shows better where to look
            repository_map="" if task.follows_up and inputs.job.aim == "fix" else self._map,
            instructions=[
                *([(".github/agent-fix.yml", inputs.config.instructions)] if inputs.config.instructions else ()),
                *((file.path, file.text) for file in found.files),
            ],
            further="\n".join(filter(None, (listed(found.further, _MAX_FURTHER), skills(inputs.tree)))),
            lessons=self._memory.shown,
            images=self._image_describer.shown,
            overrides=self._kind.overrides,
            address=task.issue.url or page,
            ignored=ignored_by_git(inputs.tree),
        )

    def review(self, known: Verification, diff: str) -> str:
        """The first message for the reviewer of a submitted change."""
        return render_review(
            self._inputs.job,
            diff=diff,
            known=known.examples.examples if known.examples is not None else (),
            runs=self._runs,
            images=self._image_describer.shown,
        )

    @cached_property
    def _map(self) -> str:
        return self.survey.map(MAP_TOKENS)

    @cached_property
    def _instruction_tokens(self) -> int:
        windows = [self._job_models.of(kind).info.context_window for kind in ("plan", "code")]
        return min(INSTRUCTION_TOKENS, min(windows) // _INSTRUCTION_SHARE)

    @cached_property
    def _instructions(self) -> Instructions:
        """Always the same for the same base."""
        likely = [each.path for each in self.survey.ranked[:_NEAR]]
        found = instructions(self._inputs.tree, self._instruction_tokens, likely)
        if cut := [file.path for file in found.files if file.cut]:
            limit = f"instruction files may have {self._instruction_tokens:,} tokens together"
            self.notes = (f"The model was shown only the beginning of {listed(cut, 3)}: {limit}.",)
        return found

    def _rules_of(self, paths: Sequence[str]) -> list[tuple[str, str]]:
        """The instruction files in the folders of a plan's files that the brief did not have."""
        found = instructions(self._inputs.tree, self._instruction_tokens, paths)
        return [(file.path, file.text) for file in found.files if file.path in self._instructions.further]
