"""Runs one job in one process, on a server, in the Action or on the command line."""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from app.agent.base import Runner, RunnerContext, Submission
from app.agent.external.runner import ExternalRunner
from app.agent.loop import NativeRunner
from app.agent.prompts import render_base_suite
from app.agent.reviewer import Reviewer
from app.agent.second_opinion import SecondOpinion, second_opinion
from app.config.settings import Settings
from app.core.errors import AgentFixError
from app.core.examples import JudgedExample, Review
from app.core.failpoints import failpoint
from app.core.job import (
    Job,
    JobResult,
    JobState,
    Journal,
    NoUserMessages,
    Progress,
    QuestionAnswers,
    UserMessages,
    waiting_for,
)
from app.core.patch import KeptChange, Patch
from app.core.plan import Plan
from app.core.text import head_and_tail, one_line
from app.core.tracing import job_trace
from app.core.verification import (
    BaselineResult,
    RestOrder,
    Verification,
    VerifiedPatch,
)
from app.jobs.store import JobBlobs
from app.llm.base import Model
from app.llm.budgeted_model import JobModels
from app.llm.circuit_breaker import CircuitBreakers, process_breakers
from app.llm.ledger import Ledger
from app.llm.prices import read_prices
from app.llm.registry import make_model, record_to, takes_reasoning
from app.pipeline.answer import AnswerServices, answer
from app.pipeline.attempts import Attempt, AttemptBudget, trajectory_of
from app.pipeline.change_verification import ChangeServices, verify_change
from app.pipeline.lessons import JobExperience, issue_text
from app.pipeline.pipeline import JobServices, OrderedRest, PublishedChange, solve
from app.pipeline.planner import ProposedPlan, refuse_questions
from app.pipeline.wiring.external_agent import external_agent
from app.pipeline.wiring.project_setup import ProjectSetup, SetupProject, propose_setup
from app.pipeline.wiring.prompts import ImageDescriber, JobInputs, PromptBuilder, TaskKindSetup, job_lessons
from app.pipeline.wiring.sandboxes import make_provider, setup_tools
from app.publish.secret_scan import SecretScan
from app.repo.git_store import GitError
from app.repo.index.ranking import MAX_COMMITS
from app.repo.index.survey import RepositorySurvey
from app.repo.inspection import notes_about_contents
from app.sandbox.base import Sandbox, SandboxSpec, SetupPlan
from app.sandbox.setup.run_commands import is_note
from app.sandbox.workspaces import AnotherAgent, Workspaces
from app.verify.candidates import TrialLimits
from app.verify.ending import why_it_ended
from app.verify.examples.judge import ExampleJudge
from app.verify.gates.candidate import count_changed_lines
from app.verify.overlay import difference
from app.verify.project import ProjectUnderTest, TimeLimits
from app.verify.verdict import examples_of
from app.verify.verifier import ChosenSuite, Verifier

if TYPE_CHECKING:
    from app.core.model_usage import WorkKind

MONEY_SHARE = 4
"""The reviewer may use at most a quarter of the job's money."""
MAX_DIFF = 24_000
"""Characters of a change that the reviewer is shown."""
DIFF_CONTEXT = 10
"""Lines around each change that the reviewer is shown, so that most changes need no look."""
_DIGESTS = re.compile(r"^index [0-9a-f]{40}.*\n", re.MULTILINE)
"""Lines of a diff that tell a reader nothing."""
MIN_BUDGET = 200_000
"""Micro-dollars that a job needs to have a reviewer."""
STARTS_OVER = (
    "This job was begun by a version of agent-fix that worked in other steps, so its work starts over. Its plan, what "
    "people said and what it has cost stay."
)
_NONE = KeptChange()


def make_budgeted_models(
    job: Job,
    settings: Settings,
    ledger: Ledger,
    progress: Progress,
    *,
    fallbacks: Sequence[str] = (),
    record: Path | None = None,
    breakers: CircuitBreakers | None = None,
) -> JobModels:
    """Raises AgentFixError if the operator's prices cannot be read. All answers go to `record`, if there is one."""
    environment, prices = settings.model_environment, read_prices(settings.prices)
    main = job.main_model

    def plain(name: str) -> Model:
        """Only the main model must accept a reasoning setting; others get it if they are known to accept one."""
        wanted = job.reasoning if name == main or takes_reasoning(name, environment) else ""
        return make_model(name, environment=environment, prices=prices, reasoning=wanted)

    def make(name: str) -> Model:
        model = plain(name)
        return model if record is None else record_to(record, model, of=plain(main).info)

    return JobModels(job.chosen, make, ledger, progress, fallbacks=fallbacks, breakers=breakers or process_breakers())


class Approver(ABC):
    """The people behind a job: they approve its plan, answer its questions and send it messages."""

    forget = "/agent forget"
    """The command by which they delete a lesson."""
    user_messages: UserMessages = NoUserMessages()
    approved = False
    """True if they had approved the plan when this process began."""

    @abstractmethod
    async def keep_plan(self, plan: Plan) -> None:
        """Store the plan that was made, so that people can read and edit it."""

    @abstractmethod
    async def approve(self, plan: Plan) -> Plan:
        """The approved plan, with people's edits. Raises WaitingForUser until there is one."""

    async def answer(self, plan: Plan | None, questions: tuple[str, ...], after: int) -> QuestionAnswers:
        """People's answers to the questions of a plan. Raises WaitingForUser until there are some."""
        return await refuse_questions(questions, after)


class ChangePublisher(ABC):
    """Where a job's change goes, and what it is compared with there."""

    def __init__(self, inputs: JobInputs) -> None:
        self.inputs = inputs
        self.blobs = JobBlobs(inputs.store.engine, inputs.job.id)
        self.redactor = inputs.store.redactor

    def publishable_summary(self, patch: Patch, summary: str) -> str:
        """The summary without what looks like anybody's secret. Raises SecretFound if one of ours is in it or in the
        patch."""
        scan = SecretScan(self.redactor)
        scan.refuse_patch(self.inputs.job.id, patch)
        scan.refuse(self.inputs.job.id, [summary])
        return self.redactor.redact(summary)

    @abstractmethod
    async def publish(self, patch: Patch, summary: str) -> PublishedChange:
        """Make the commit and publish it; idempotent."""

    @abstractmethod
    def finish(self, result: JobResult) -> None:
        """Store the result in the job before its workflow ends. Blocking."""

    def before(self) -> Patch:
        """For a merge with conflicts: the patch that turns its base into the branch as it was."""
        return Patch(base=self.inputs.tree.commit)

    def diff_base(self) -> str:
        """The commit to compare the change with for people; empty for the patch's own base."""
        return ""

    def commit_history(self) -> bytes:
        """The log of the commits up to the base, if this machine has it."""
        return self.inputs.mirror.log(self.inputs.job.task.base, MAX_COMMITS)


class JobRunner:
    """Runs one job: an approver says what people decide, and a publisher takes the change."""

    def __init__(
        self,
        inputs: JobInputs,
        progress: Progress,
        job_models: JobModels,
        approver: Approver,
        publisher: ChangePublisher,
    ) -> None:
        self.inputs = inputs
        self.progress = progress
        self.job_models = job_models
        self.approver = approver
        self.publisher = publisher
        self.budgeted_model = job_models.of("answer" if inputs.job.aim == "ask" else "code")
        self.blobs = publisher.blobs
        self.provider = make_provider(inputs.job.sandbox, inputs.settings, e2b_template=inputs.config.e2b_template)
        self.external_agent = external_agent(inputs.job, inputs.settings)
        self.setup = self._project_setup()
        self.setup_notes: tuple[str, ...] = ()
        self.workspaces = self._workspaces()
        forget = approver.forget
        self.memory = job_lessons(inputs.job, inputs.lessons, inputs.settings, forget=forget)
        self.kind = TaskKindSetup(inputs.job, inputs.mirror, inputs.tree, inputs.overrides)
        self.image_describer = ImageDescriber(inputs.job, job_models, self.blobs.get)
        index, text = inputs.settings.state / "caches" / "index", issue_text(inputs.job.task)
        survey = RepositorySurvey(inputs.tree, text, cache=index, read_history=publisher.commit_history)
        self.prompts = PromptBuilder(
            inputs, self.kind, self.memory, self.image_describer, survey, job_models=job_models
        )
        self.runners: list[Runner] = []
        """One for each attempt, in order."""
        self.plan: Plan | None = None
        self.verified: list[VerifiedPatch] = []
        """Every submission's facts, in order."""

    async def work(self, journal: Journal) -> JobResult:
        """Run the whole job; its final state is stored before the workflow ends."""
        job, environment = self.inputs.job, self.inputs.settings.environment
        about = {"agent_fix.repository": job.task.repository, "agent_fix.kind": job.kind}
        about["gen_ai.request.model"] = job.main_model
        try:
            with job_trace(job.id, environment, about) as trace:
                result = await self._work(journal)
                verdict = result.verification.verdict if result.verification else ""
                trace.add({"agent_fix.exit_status": result.exit_status, "agent_fix.verdict": verdict})
                return result
        finally:
            if self.external_agent is not None:
                self.external_agent.close()

    async def _work(self, journal: Journal) -> JobResult:
        job = self.inputs.job
        try:
            await self.memory.recall(self.inputs.tree, self.progress)
            await self.image_describer.describe(journal, self.progress)
            if job.aim == "ask":
                result = await answer(job, self.answer_services(), journal)
            elif job.aim == "verify":
                verifier = self._verifier()
                change = self.change_services(verifier.judge)
                result = await verify_change(job, self.services(verifier), change, journal)
            else:
                result = await solve(job, self.services(), journal)
        except AgentFixError as error:
            if not error.final:
                raise
            result = JobResult(
                exit_status="error",
                reason=error.message,
                hint=error.hint,
                error_code=error.code,
                plan=self.plan,
                usage=self.job_models.ledger.totals(),
                model=job.model,
            )
        setup = (*self.setup_notes, *filter(is_note, self.workspaces.left_out))
        notes = (
            *result.notes,
            *filter(None, setup),
            *self.memory.used,
            *self.image_describer.notes,
            *self.prompts.notes,
        )
        result = self._redacted(result.model_copy(update={"trajectory": self.keep_trajectory(), "notes": notes}))
        self.publisher.finish(result)
        failpoint("finished")
        return result

    async def _learn(self, accepted: VerifiedPatch, submission: Submission | None) -> str:
        experience = JobExperience(self.inputs.job, self.inputs.tree, accepted, submission)
        return await self.memory.learn(experience, self.progress)

    def _redacted(self, result: JobResult) -> JobResult:
        return JobResult.model_validate(self.publisher.redactor.redact_all(result.model_dump(mode="json")))

    def keep_trajectory(self) -> str:
        """The digest of the stored steps so far, redacted; empty if there are none."""
        steps = (self.publisher.redactor.redact_all(json.loads(line)) for line in trajectory_of(self.runners))
        lines = [json.dumps(step, ensure_ascii=False) for step in steps]
        return self.blobs.put("".join(f"{line}\n" for line in lines).encode("utf-8", "replace")) if lines else ""

    async def check_models(self) -> None:
        """Raises AgentFixError for unusable models before anything costs money."""
        only: dict[str, tuple[WorkKind, ...]] = {"ask": ("answer", "cheap"), "reproduce": ("plan", "cheap")}
        only["verify"] = ("plan", "review", "cheap")
        await self.job_models.check(*only.get(self.inputs.job.aim, ("plan", "code", "review", "cheap")))

    async def prove_sandbox(self) -> None:
        """Open an empty sandbox before anything costs money. Raises SandboxError if a property does not hold."""
        proof = await self.provider.open(SandboxSpec(key=f"{self.inputs.job.id}.proof", fill=lambda _: None))
        await proof.destroy()

    async def finish_rest(self, result: JobResult, journal: Journal, begin: Callable[[JobResult], None]) -> JobResult:
        """Run the rest of a long suite: the same result with the verdict that follows.

        `begin` is told the result so far before each part, and may raise.
        """
        if result.verification is None or not result.rest_pending:
            return result
        order = RestOrder.model_validate_json(self.blobs.get(result.rest_order))
        self.setup.propose = None  # no model is called any more

        def with_rest(found: Verification) -> JobResult:
            update = {"verification": found, "reason": " ".join(found.reasons)}
            return self._redacted(result.model_copy(update=update))

        with waiting_for(self.progress, "the remaining tests"):
            known = result.verification
            return with_rest(await self._verifier().rest(known, order, journal, lambda found: begin(with_rest(found))))

    def _verifier(self) -> Verifier:
        job, config = self.inputs.job, self.inputs.config
        project = ProjectUnderTest(
            self.workspaces,
            self.inputs.tree,
            self.progress,
            TimeLimits.within(job.budget),
            guards=self.prompts.survey.guards,
            find_before=self.publisher.before if job.conflicts else None,
            guarded=self.kind.guarded,
            build=config.build,
        )
        return Verifier(
            project,
            test=config.test,
            lint=config.lint,
            gates=tuple(gate for gate in config.gates if gate.applies(job.kind)),
            protected_paths=config.protected_paths,
            allowed_paths=job.task.allowed_paths,
            conflicts=job.conflicts,
            wants_red=job.expects_red,
            text=issue_text(job.task),
            earlier=self.inputs.earlier,
            choose=None if job.conflicts else self._chosen_suite,
            of_others=job.aim == "verify",
        )

    def services(self, verifier: Verifier | None = None) -> JobServices:
        verifier = verifier or self._verifier()
        self.prompts.judge = verifier.judge
        return JobServices(
            progress=self.progress,
            plan=self._plan,
            approve=self.approver.approve,
            approved=self.approver.approved,
            assignment=self.prompts.assignment,
            open_work=self.workspaces.work,
            export=self.workspaces.export,
            runner=self._runner,
            verifier=verifier,
            publish=self.publisher.publish,
            totals=self.job_models.ledger.totals,
            freeze=verifier.judge.freeze,
            hide=self.prompts.with_hidden,
            works_already=verifier.judge.works_already,
            ask_reviewer=partial(self._ask_reviewer, verifier.judge),
            answer=self._answer,
            learn=self._learn,
            keep=self._keep,
            verified=self.verified.append,
            keep_diff=self._keep_diff,
            count_changed_lines=partial(count_changed_lines, self.inputs.tree),
            order_rest=partial(self._order_rest, verifier),
            set_up=self._set_up,
            notes=(*self.inputs.notes, *self.kind.notes, *notes_about_contents(self.inputs.tree)),
            warnings=self._warnings,
        )

    def change_services(self, judge: ExampleJudge) -> ChangeServices:
        mirror, job = self.inputs.mirror, self.inputs.job

        async def ask_again(whose: str, examples: Sequence[JudgedExample]) -> SecondOpinion:
            other = self.job_models.of("review" if whose == "author" else "plan")
            with waiting_for(self.progress, "a second opinion"):
                return await second_opinion(partial(other.ask, f"opinion.{whose}"), job, examples)

        return ChangeServices(
            patch=lambda: difference(self.inputs.tree, mirror.tree(job.change)),
            stat=mirror.patch_stat,
            issue=issue_text(job.task),
            ask_again=ask_again,
            counter=judge.counter,
        )

    async def _order_rest(
        self, verifier: Verifier, verified: VerifiedPatch, known: BaselineResult
    ) -> OrderedRest | None:
        suite = verified.verification.suite
        if suite is None or not suite.nearest or known.suite is None:
            return None
        rest = await verifier.rest_of(suite, verified.patch, self.inputs.job.budget.rest_minutes)
        if rest is None:
            return None
        order = RestOrder(patch=verified.patch, known=known.suite, nearest=suite.nearest)
        return OrderedRest(rest, self.blobs.put(order.model_dump_json().encode()))

    def answer_services(self) -> AnswerServices:
        only = AttemptBudget(budget=self.inputs.job.budget)
        return AnswerServices(
            progress=self.progress,
            brief=self.prompts.question,
            open_work=self.workspaces.work,
            runner=lambda sandbox, journal: self._runner(sandbox, Attempt(1, journal, only), str),
            totals=self.job_models.ledger.totals,
            notes=self.inputs.notes,
            warnings=self._warnings,
        )

    def _warnings(self) -> tuple[str, ...]:
        unprotected = "The job ran without a sandbox (--sandbox none)."
        left_out = [text.partition("\n")[0] for text in self.workspaces.left_out if not is_note(text)]
        return (*((unprotected,) if self.inputs.job.sandbox == "none" else ()), *left_out)

    def _workspaces(self) -> Workspaces:
        job, mirror = self.inputs.job, self.inputs.mirror
        return Workspaces(
            self.provider,
            job=job.id,
            fill=lambda directory, patch: mirror.checkout(job.task.base, directory, patch.changes if patch else ()),
            tree=self.inputs.tree,
            setup=self._setup,
            on_output=self._on_output,
            on_note=lambda text: self.progress.report("warning", text),
            agent=AnotherAgent(self._tools, self.external_agent.socket) if self.external_agent else None,
        )

    async def _setup(self) -> SetupPlan:
        chosen = await self.setup.chosen()
        setup = chosen.plan
        self.setup_notes = (chosen.sentence, *setup.notes)
        for command in setup.short or setup.commands:
            self.progress.report("note", f"set-up: {one_line(command)[:160]}")
        for note in setup.notes:
            self.progress.report("note", f"set-up: {note}")
        return setup

    async def _chosen_suite(self) -> ChosenSuite:
        chosen = await self.setup.chosen()
        return ChosenSuite(chosen.suite, chosen.base)

    async def _set_up(self) -> None:
        with waiting_for(self.progress, "the project's set-up"):
            await self.setup.possible()

    def _project_setup(self) -> ProjectSetup:
        job, config, settings = self.inputs.job, self.inputs.config, self.inputs.settings
        mirror, base = self.inputs.mirror, job.task.base
        return ProjectSetup(
            SetupProject(
                self.inputs.tree,
                lambda: mirror.date(base).date(),
                # What a pull request's commit prepares is for its own jobs only.
                f"{job.task.repository} {base if job.task.follows_up else ''}",
                config.setup,
                config.test,
                config.network,
                config.build,
            ),
            self.provider,
            lambda: setup_tools(job.sandbox, settings),
            lambda directory: mirror.checkout(base, directory),
            f"{job.id}.setup",
            self.progress,
            settings.state / "caches" / "choices",
            limits=TrialLimits.of_job(job.budget),
            on_output=self._on_output,
            trials="never" if job.conflicts or job.aim == "ask" else "to choose",
            propose=partial(propose_setup, partial(self.job_models.of("cheap").ask, "setup"), self.inputs.tree)
            if config.setup_by_model
            else None,
        )

    def _on_output(self, output: bytes) -> None:
        self.progress.report("output", output.decode(errors="replace"))

    async def _tools(self) -> SetupPlan:
        """The set-up of another agent's programs, if one does the work."""
        if self.external_agent is None:
            raise ValueError("our own runner needs no programs")
        self.progress.report("note", f"runner: {self.external_agent.recipe.title} {self.external_agent.recipe.version}")
        tools = await setup_tools(self.inputs.job.sandbox, self.inputs.settings)
        return await self.external_agent.tools(tools.python, tools.clients, tools.find_tool)

    async def _plan(self, journal: Journal, answers: Sequence[QuestionAnswers] = ()) -> ProposedPlan:
        proposed = await self.prompts.plan(journal, self.workspaces, self.progress, answers)
        self.plan = proposed.plan
        await self.approver.keep_plan(proposed.plan)
        return proposed

    async def _ask_reviewer(self, judge: ExampleJudge, key: str, patch: Patch, known: Verification) -> Review:
        """A reviewer's counter-examples against a submitted change, or why there are none."""
        job = self.inputs.job
        budgeted_model = self.job_models.of("review")
        if not self.inputs.config.reviewer:
            return Review(absent="the repository's configuration turns it off.")
        if job.budget.usd < MIN_BUDGET and budgeted_model.info.priced and budgeted_model.info.output_price:
            return Review(absent="the budget is too small for one.", short_of_money=True)
        taken = [one.name for one in examples_of(known)]
        reviewer = Reviewer(
            budgeted_model=budgeted_model,
            progress=self.progress,
            open_sandbox=partial(self.workspaces.temporary_sandbox, "review", patch),
            run=lambda examples: judge.counter(examples, patch, taken),
            share=job.budget.usd // (2 if job.aim == "verify" else MONEY_SHARE),
        )
        diff = await asyncio.to_thread(partial(self.inputs.mirror.patch_diff, patch, context=DIFF_CONTEXT))
        shown = _DIGESTS.sub("", diff.decode("utf-8", "replace"))
        with waiting_for(self.progress, "a reviewer"):
            return await reviewer.review(key, self.prompts.review(known, head_and_tail(shown, MAX_DIFF)))

    async def _answer(self, questions: tuple[str, ...], after: int) -> QuestionAnswers:
        return await self.approver.answer(self.plan, questions, after)

    async def _keep(self, result: JobResult) -> None:
        await asyncio.to_thread(self.inputs.store.store_result, self.inputs.job.id, result.model_dump(mode="json"))

    def _keep_diff(self, patch: Patch) -> KeptChange:
        """Store the change for people, redacted. One that git rejects is empty, which is reported."""
        mirror, base = self.inputs.mirror, self.publisher.diff_base()
        try:
            diff = mirror.patch_diff(patch, base=base)
            shown = self.publisher.redactor.redact_diff(diff)
            return (
                KeptChange(diff=self.blobs.put(shown), changes=mirror.patch_stat(patch, base=base)) if diff else _NONE
            )
        except GitError as error:
            self.progress.report("warning", f"git cannot show this change: {error}")
            return _NONE

    def so_far(self, reason: str, state: JobState, *, at_limit: bool) -> JobResult:
        """What is known of a job that stops before its end: plan, cost, the last verification; at a limit the change.

        Blocking.
        """
        last = self.verified[-1].verification if self.verified and at_limit else None
        return JobResult(
            exit_status=state,
            reason=why_it_ended(reason, last),
            plan=self.plan,
            verification=last,
            model=self.inputs.job.model,
            **dict(self.keep_last_diff() if at_limit else _NONE),
        )

    def keep_last_diff(self) -> KeptChange:
        """Store what the agent has changed so far, submitted or not. Blocking.

        A change that cannot be read or stored is reported: the limit is still what ended the job.
        """
        try:
            return self._keep_diff(self.runners[-1].last_change()) if self.runners else _NONE
        except (AgentFixError, OSError, KeyError) as error:  # such as a full disk, or a file that is not stored
            self.progress.report("warning", f"the change so far could not be stored: {type(error).__name__}: {error}")
            return _NONE

    def _runner(self, sandbox: Sandbox, attempt: Attempt, base_brief: Callable[[], str]) -> Runner:
        context = RunnerContext(
            budgeted_model=attempt.model_for(self.budgeted_model, self.job_models.ledger),
            sandbox=sandbox,
            baseline=self.workspaces.baseline,
            journal=attempt.journal,
            blobs=self.blobs,
            progress=self.progress,
            budget=attempt.attempt_budget.budget,
            user_messages=self.approver.user_messages,
            base_suite=lambda: render_base_suite(self.inputs.job, base_brief()),
        )
        runner: Runner = NativeRunner(context)
        if external := self.external_agent:
            model_socket = external.model_socket(self.job_models.ledger, attempt.attempt_budget.until)
            runner = ExternalRunner(external.recipe, context, model_socket, pauses_at_limit=attempt.pauses_at_limit)
        self.runners.append(runner)
        return runner
