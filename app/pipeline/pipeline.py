"""The job's pipeline: plan, work, verify, publish; each step is stored as soon as it is done.

plan with examples ─► questions? ─► approval? ─► work ⇄ review ─► publish ─► Result
suite on base ──────────────────────────────────► note     ► needed here
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple

from app.agent.base import Assignment, AssignmentAim, Runner, RunnerEnding, Submission
from app.core.errors import AgentFixError, ExitCode, PublicationError
from app.core.examples import JudgedExample, PlanExamples
from app.core.job import Job, JobResult, Journal, Progress, QuestionAnswers, WaitingForUser
from app.core.model_usage import Totals
from app.core.patch import FileStat, KeptChange, Patch
from app.core.plan import Plan, render_plan, with_origin
from app.core.record import Record
from app.core.task import STRUCTURAL
from app.core.verification import (
    BaselineResult,
    RestOfSuite,
    VerifiedPatch,
)
from app.pipeline.attempts import (
    Attempt,
    AttemptOutcome,
    ShareSpentError,
    attempt_summaries,
    best,
    spent_in,
    try_until_proved,
)
from app.pipeline.planner import Answerer, Freeze, Planner, ProposedPlan, resolve_questions
from app.pipeline.submission_verification import (
    AskReviewer,
    SubmissionVerifier,
    VerifierPort,
)
from app.sandbox.base import Sandbox
from app.verify.ending import why_it_ended


class PublishedChange(Record):
    """Where the patch was published."""

    branch: str
    commit: str
    changes: tuple[FileStat, ...] = ()
    patch: str = ""
    """Digest of the patch among the job's blobs, if another process makes its commit."""


class ApprovedPlan(Record):
    """The plan that a person approved, with their edits."""

    plan: Plan


LearnStep = Callable[[VerifiedPatch, Submission | None], Awaitable[str]]
"""Stores the lessons of a published change; returns a note for people, or an empty text."""


class OrderedRest(NamedTuple):
    """What of a long suite is run after publication, and the digest of its RestOrder among the job's blobs."""

    rest: RestOfSuite
    order: str


OrderRest = Callable[[VerifiedPatch, BaselineResult], Awaitable[OrderedRest | None]]
"""Decides what of the suite is left to run once a change is published; None for nothing."""


@dataclass(frozen=True, slots=True)
class JobServices:
    """One job's services, built in `app.pipeline.wiring`; all side effects go through them."""

    progress: Progress
    plan: Planner
    """Makes the plan; it stores its own steps."""
    approve: Callable[[Plan], Awaitable[Plan]]
    assignment: Callable[[Plan | None, PlanExamples | None, Sequence[QuestionAnswers]], Assignment]
    open_work: Callable[[str], Awaitable[Sandbox]]
    """Opens the work tree of that name, as it was left."""
    export: Callable[[Sandbox], Awaitable[Patch]]
    runner: Callable[[Sandbox, Attempt, Callable[[], str]], Runner]
    """The last argument returns what the agent is told about the suite on the base; empty until that is known."""
    verifier: VerifierPort
    publish: Callable[[Patch, str], Awaitable[PublishedChange]]
    totals: Callable[[], Totals]
    freeze: Freeze
    hide: Callable[[PlanExamples], PlanExamples]
    """Marks the examples that the fixer has not seen."""
    works_already: Callable[[PlanExamples], JudgedExample | None]
    """The reporter's own example, if it prints today what it should."""
    ask_reviewer: AskReviewer
    answer: Answerer
    learn: LearnStep
    count_changed_lines: Callable[[Patch], int]
    keep: Callable[[JobResult], Awaitable[None]]
    """Stores a verified result that is about to be published, so that it outlives whatever goes wrong then."""
    verified: Callable[[VerifiedPatch], None]
    """Called with the facts of each submission, so that they outlive whatever ends the job."""
    keep_diff: Callable[[Patch], KeptChange]
    """Keeps a change for people, whatever becomes of it."""
    order_rest: OrderRest
    set_up: Callable[[], Awaitable[None]]
    """Returns once the repository's set-up is known to be possible; raises SetupError if it is not."""
    notes: Sequence[str]
    warnings: Callable[[], tuple[str, ...]]
    """Called when the work is done, because some appear only then."""
    approved: bool = False
    """True if people have approved the plan, so that the job goes on where it waited."""


async def solve(job: Job, services: JobServices, journal: Journal) -> JobResult:
    """Run a job from plan to result. Raises WaitingForUser if people must decide something."""
    if job.aim == "ask":
        raise ValueError(f"job {job.id} asks a question; `app.pipeline.answer` handles those")
    started = monotonic()
    base = BaseSuite(services, journal)
    try:
        prepared = await _prepare(job, services, journal, base)
        result = JobResult(
            exit_status="answered",
            plan=prepared.plan,
            examples=prepared.examples,
            model=job.model,
            notes=tuple(services.notes),
        )
        if prepared.works_already is not None:
            result = _already_works(result, prepared.works_already)
        elif job.aim == "reproduce":
            result = _reproduced(result, prepared)
        elif job.plan_mode != "only":
            result = await _work(job, services, journal, result, prepared)
    finally:
        await base.cancel()
    totals = {"warnings": services.warnings(), "usage": services.totals(), "seconds": round(monotonic() - started, 3)}
    return result.model_copy(update=totals)


class BaseSuite:
    """The suite on the base, which runs beside the work: nobody waits for it before the first submission."""

    def __init__(self, services: JobServices, journal: Journal) -> None:
        self._services = services
        self._journal = journal
        self._running: asyncio.Task[BaselineResult] | None = None

    def start(self) -> None:
        """Request its step at once, so that the journal has a job's first steps in the same order each time."""
        self._running = asyncio.create_task(self._run())

    async def result(self) -> BaselineResult:
        """Wait for it. Raises what ended it."""
        if self._running is None:
            return BaselineResult()
        return await asyncio.shield(self._running)

    def brief(self) -> str:
        """Its result in a sentence or two; empty until it is known. Raises what ended it."""
        return self._running.result().brief if self._running is not None and self._running.done() else ""

    async def cancel(self) -> None:
        """Once the job has ended, nobody needs it; an interrupted step is not recorded."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> BaselineResult:
        found = await self._journal.step("baseline", BaselineResult, self._services.verifier.baseline)
        if found.brief:
            self._services.progress.report("note", found.brief)
        return found


class PreparedWork(NamedTuple):
    """What the work starts from."""

    plan: Plan | None
    base: BaseSuite
    examples: PlanExamples | None = None
    answers: Sequence[QuestionAnswers] = ()
    works_already: JudgedExample | None = None


async def _prepare(job: Job, services: JobServices, journal: Journal, base: BaseSuite) -> PreparedWork:
    """The approved plan, with its examples as they ran on the base, while the suite runs there, too.

    Both start their first step before either waits, so that the journal has these in the same order each time.
    """
    planned = job.plan_mode == "none" or services.approved
    services.progress.report("state", "working" if planned else "planning")
    if job.plan_mode != "only" or job.aim == "reproduce":
        await services.set_up()  # nothing is paid for before this is known to be possible
    if job.plan_mode == "none":
        base.start()
        absent = PlanExamples(absent="the job has no plan.") if job.expects_red else None
        return PreparedWork(None, base, absent)
    planning = asyncio.ensure_future(services.plan(journal, ()))
    if job.plan_mode != "only":
        base.start()
    proposed = await planning
    services.progress.report("plan", render_plan(proposed.plan))
    already = services.works_already(proposed.found)
    if already is not None and (job.plan_mode != "only" or job.aim == "reproduce"):
        return PreparedWork(proposed.plan, base, proposed.found, works_already=already)
    if job.plan_mode == "only":
        return PreparedWork(proposed.plan, base, proposed.found if job.expects_red else None)
    answers: Sequence[QuestionAnswers] = ()
    if not job.plan_file:
        proposed, answers = await resolve_questions(
            proposed, services.plan, services.answer, journal, services.progress
        )
    plan = proposed.plan
    if job.plan_mode == "approve":
        approval = await journal.step("approval", ApprovedPlan, partial(_approve, services, plan))
        approved = with_origin(approval.plan, plan.examples)
        if approved != plan:
            services.progress.report("plan", render_plan(approved))
        plan = approved
    if not job.expects_red:
        return PreparedWork(plan, base, None, answers)
    examples = await journal.step("examples", PlanExamples, partial(_examples, services, proposed, plan))
    already = services.works_already(examples)  # an older plan's, if the issue was solved since
    return PreparedWork(plan, base, examples, answers, already)


async def _examples(services: JobServices, proposed: ProposedPlan, plan: Plan) -> PlanExamples:
    """The plan's examples on the base; those that people changed are run again."""
    found = proposed.found
    if (plan.examples and plan.examples != proposed.plan.examples) or (not found.examples and plan.examples):
        found = (await services.freeze(plan.examples, found.outdated))[0]
        for refused in found.refused:
            services.progress.report("warning", f"an example of the plan is not used: {refused}")
    elif not plan.examples:
        found = PlanExamples(absent=found.absent or "the plan has none.", outdated=found.outdated)
    found = services.hide(found)
    hidden = sum(one.hidden for one in found.examples)
    services.progress.report("note", f"{len(found.examples)} examples, {hidden} of them hidden from the agent")
    return found


def _already_works(result: JobResult, example: JudgedExample) -> JobResult:
    reason = "The reporter's own example prints today what the issue asks for, so nothing was changed."
    return result.model_copy(update={"exit_status": "already_works", "reason": reason, "summary": example.behaviour})


def _reproduced(result: JobResult, prepared: PreparedWork) -> JobResult:
    """What the examples showed on the base; what was tried, if none showed the issue."""
    plan, found = prepared.plan, prepared.examples or PlanExamples()
    summary = plan.summary if plan else ""
    if found.best is not None:
        return result.model_copy(update={"exit_status": "reproduced", "summary": summary})
    reason = "No program that was tried shows the issue." if found.why_not_shown else "No program was tried."
    return result.model_copy(update={"exit_status": "not_reproduced", "reason": reason, "summary": summary})


async def _approve(services: JobServices, plan: Plan) -> ApprovedPlan:
    return ApprovedPlan(plan=await services.approve(plan))


async def _work(
    job: Job, services: JobServices, journal: Journal, result: JobResult, prepared: PreparedWork
) -> JobResult:
    """The agent works until a submission is accepted; then exactly what was verified is published."""
    services.progress.report("state", "working")
    work = partial(_attempt, job, services, prepared, result)
    outcomes = await try_until_proved(job, journal, work, lambda: services.totals().cost)
    chosen = best(outcomes)
    result = chosen.result if job.attempts == 1 else _with_attempts(chosen, outcomes, services)
    if chosen.verified and not result.diff:
        kept = await asyncio.to_thread(services.keep_diff, chosen.verified[-1].patch)
        result = result.model_copy(update=dict(kept))
    if chosen.is_publishable:
        result = await _with_rest(services, result, chosen.verified[-1], await prepared.base.result())
        services.progress.report("state", "publishing")
        await services.keep(result.model_copy(update={"exit_status": "publishing", "unpublished": True}))
        publish = partial(_publish, services, chosen.verified[-1].patch, result.summary)
        published = await journal.step("publish", PublishedChange, publish)
        learned = await services.learn(chosen.verified[-1], chosen.submission)
        notes = (*result.notes, *filter(None, (learned,)))
        result = result.model_copy(update={**dict(published), "notes": notes})
    return result


async def _publish(services: JobServices, patch: Patch, summary: str) -> PublishedChange:
    """Whatever goes wrong here may be repaired and tried again, so the journal never keeps it as the step's outcome."""
    try:
        return await services.publish(patch, summary)
    except AgentFixError as error:
        raise PublicationError(error.message, code=error.code, hint=error.hint) from error


async def _with_rest(
    services: JobServices, result: JobResult, verified: VerifiedPatch, known: BaselineResult
) -> JobResult:
    """The result, with what of a long suite is to be run once the change is published."""
    ordered = await services.order_rest(verified, known)
    if ordered is None or result.verification is None:
        return result
    verification = result.verification.model_copy(update={"rest": ordered.rest})
    return result.model_copy(update={"verification": verification, "rest_order": ordered.order})


async def _attempt(
    job: Job, services: JobServices, prepared: PreparedWork, result: JobResult, attempt: Attempt
) -> AttemptOutcome:
    """One agent in its own tree; at a limit the last attempt's tree is kept, so that the job can be resumed."""
    if job.attempts > 1:
        services.progress.report("note", f"attempt {attempt.number} of at most {job.attempts}")
    sandbox = await services.open_work(attempt.name)
    try:
        submission_verifier = SubmissionVerifier(
            services.verifier,
            partial(services.export, sandbox),
            attempt.journal,
            services.progress,
            partial(_known, prepared),
            no_reproduction_expected=not job.expects_red,
            ask_reviewer=services.ask_reviewer,
            key_prefix=attempt.prefix,
            earlier_submissions=attempt.submissions,
            verified=services.verified,
        )
        assignment = services.assignment(prepared.plan, prepared.examples, prepared.answers)
        shown = prepared.examples is not None and bool(prepared.examples.examples)
        assignment = assignment.model_copy(update={"aim": _aim(job), "has_examples": shown})
        runner = services.runner(sandbox, attempt, prepared.base.brief)
        ending = await _run_agent(runner, assignment, submission_verifier)
    finally:
        await sandbox.close()
    if ending.exit_status == "limit_reached":
        if attempt.pauses_at_limit:
            raise WaitingForUser("paused", ending.reason, code=ExitCode.LIMIT_REACHED, hint=_CONTINUE)
        kept = await asyncio.to_thread(lambda: services.keep_diff(runner.last_change()))
        result = result.model_copy(update=dict(kept))
    await sandbox.destroy()
    verified = tuple(submission_verifier.verified)
    last = verified[-1] if verified else None
    return AttemptOutcome(
        number=attempt.number,
        result=_final_result(result, ending, last),
        verified=verified,
        submission=ending.submission,
        spent=spent_in(runner.trajectory()),
        changed_lines=services.count_changed_lines(last.patch) if last and job.attempts > 1 else 0,
    )


async def _known(prepared: PreparedWork) -> BaselineResult:
    """What a submission is compared with."""
    return (await prepared.base.result()).model_copy(update={"examples": prepared.examples})


async def _run_agent(runner: Runner, assignment: Assignment, submission_verifier: SubmissionVerifier) -> RunnerEnding:
    try:
        return await runner.work(assignment, submission_verifier.review)
    except ShareSpentError as error:
        return RunnerEnding(exit_status="limit_reached", reason=error.message)


def _aim(job: Job) -> AssignmentAim:
    if job.conflicts:
        return "merge"
    return "upkeep" if job.kind in STRUCTURAL else "change"


def _with_attempts(chosen: AttemptOutcome, outcomes: Sequence[AttemptOutcome], services: JobServices) -> JobResult:
    """The result with the outcome of each attempt."""
    services.progress.report("note", f"attempt {chosen.number} of {len(outcomes)} is chosen")
    return chosen.result.model_copy(update={"attempts": attempt_summaries(outcomes, chosen)})


def _final_result(result: JobResult, ending: RunnerEnding, last: VerifiedPatch | None) -> JobResult:
    """The job's final state, from the agent's ending and the last verification."""
    verification = last.verification if last else None
    summary = ending.submission.summary if ending.submission else ""
    update = {"verification": verification, "summary": summary, "turns": ending.turns}
    update["reason"] = why_it_ended(ending.reason, verification)
    match ending.exit_status:
        case "limit_reached":
            update["exit_status"] = "limit_reached"
        case "submitted" if verification is not None:
            broken = verification.verdict == "broken"
            update["exit_status"] = "verification_failed" if broken else "pr_opened"
            update["reason"] = why_it_ended("", verification)
        case "no_change":
            update |= {"exit_status": "no_change", "summary": ending.claim, "reason": ending.reason}
        case _ if verification is not None and verification.verdict == "broken":
            update["exit_status"] = "verification_failed"
        case _:
            update["exit_status"] = "error"
            update["error_code"] = ExitCode.MODEL
    return result.model_copy(update=update)


_CONTINUE = "Run the same command with a higher limit (--budget, --max-steps, --max-minutes) to continue."
