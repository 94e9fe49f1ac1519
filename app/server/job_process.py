"""The process that works on one server job; the worker starts it for that job only.

It ends when the job cannot continue here: done, waiting for people, postponed, or drained for a deployment. All results
are in the database by then, so ending is the same as being killed, only with a message.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from sqlalchemy.exc import SQLAlchemyError

from app.config.settings import Settings, process_environment, settings_from
from app.core import failpoints, log
from app.core.errors import AgentFixError, ExitCode, LostSandboxError, SandboxError, UnforeseenError
from app.core.failpoints import failpoint
from app.core.job import (
    STREAMED,
    Job,
    JobResult,
    Journal,
    N,
    NoProgress,
    Progress,
    ProgressKind,
    QuestionAnswers,
    UserMessage,
    WaitingForUser,
)
from app.core.patch import Patch
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.core.processes import this_process
from app.core.redaction import Redactor
from app.core.text import clip
from app.core.verification import Verification
from app.jobs.context import JobContext, paid_by
from app.jobs.job_actions import AGENT, PlanVersions
from app.jobs.lessons import SqlLessonStore
from app.jobs.queue import LEASE, JobClaim
from app.jobs.status import WaitingFor
from app.jobs.store import StoredProgress
from app.jobs.tables import is_unreachable
from app.llm.circuit_breaker import CircuitBreakers
from app.llm.errors import BudgetError, DayBudgetError, ModelError
from app.llm.sql_ledger import SqlLedger
from app.pipeline.pipeline import PublishedChange
from app.pipeline.planner import questions_wait
from app.pipeline.wiring.job_runner import (
    STARTS_OVER,
    Approver,
    ChangePublisher,
    JobRunner,
    make_budgeted_models,
)
from app.pipeline.wiring.prompts import JobInputs
from app.publish.effects import CommitRecipe, Effect, OpenDraftPullRequest, PushCommits
from app.publish.outbox import StaleEpoch
from app.publish.pull_request_text import (
    PullRequestContent,
    commit_message,
    merge_subject,
    pull_request_body,
    pull_request_title,
)
from app.repo.git_store import GitStore
from app.server.context import ServerContext
from app.server.launch.base import DRAIN_SECONDS, HEARTBEAT_SECONDS
from app.server.terminal import end_process
from app.verify.overlay import difference

if TYPE_CHECKING:
    from app.jobs.engine import DurableEngine


logger = logging.getLogger("app.server.job_process")  # which is `__main__` here


class LostBaseError(AgentFixError):
    """The base commit is not on this machine; the publisher brings it."""

    repeatable = True


class PreemptedError(AgentFixError):
    """The rest of a suite is left for a job that waits."""

    repeatable = True


@dataclass(frozen=True, slots=True)
class MessageFeed:
    """Reads people's messages to one job for the agent (`app.core.job.UserMessages`)."""

    server_context: ServerContext
    job: str

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        messages = await asyncio.to_thread(self.server_context.messages.since, self.job, seq, "steer", "continue")
        return tuple(UserMessage(seq=each.seq, author=each.who, text=each.text) for each in messages if each.text)


class ServerApprover(Approver):
    """People decide on GitHub, on the dashboard and through the API; what they said is in the database."""

    def __init__(self, server_context: ServerContext, job_context: JobContext, inputs: JobInputs) -> None:
        self.user_messages = MessageFeed(server_context, inputs.job.id)
        self._messages = server_context.messages
        self._plans = PlanVersions(server_context.engine, server_context.clock)
        by_people = inputs.job.plan_file and inputs.job.plan_mode != "approve"
        self._author_of_plan = (job_context.login or job_context.trigger) if by_people else AGENT
        self._inputs = inputs
        self.approved = bool(self._messages.since(inputs.job.id, 0, "approve"))

    async def keep_plan(self, plan: Plan) -> None:
        shown = Plan.model_validate(self._inputs.store.redactor.redact_all(plan.model_dump(mode="json")))
        await asyncio.to_thread(self._plans.record, self._inputs.job.id, shown, self._author_of_plan)

    async def approve(self, plan: Plan) -> Plan:
        """The approved plan with its edits. Raises WaitingForUser if nobody has approved it."""
        messages = await asyncio.to_thread(self._messages.since, self._inputs.job.id, 0, "approve")
        if not messages:
            await asyncio.to_thread(self._inputs.show, JobResult(exit_status="awaiting_approval", plan=plan))
            raise WaitingForUser(
                "awaiting_approval", "The plan is waiting for approval.", code=ExitCode.AWAITING_APPROVAL
            )
        if not messages[-1].text:
            return plan
        edited = parse_plan_file(messages[-1].text)
        if self._inputs.job.plan_file and not edited.examples:
            return plan  # approved before it had any: the job starts over
        await asyncio.to_thread(self._inputs.show, JobResult(exit_status="awaiting_approval", plan=edited))
        return edited

    async def answer(self, plan: Plan | None, questions: tuple[str, ...], after: int) -> QuestionAnswers:
        """People's answers since the question was asked. Raises WaitingForUser if there are none."""
        messages = await asyncio.to_thread(self._messages.since, self._inputs.job.id, after, "answer")
        if not messages:
            shown = (plan or Plan(summary="")).model_copy(update={"questions": questions})
            await asyncio.to_thread(self._inputs.show, JobResult(exit_status="needs_input", plan=shown))
            raise questions_wait(questions)
        answers = tuple(UserMessage(seq=each.seq, author=each.who, text=each.text) for each in messages)
        return QuestionAnswers(questions=questions, messages=answers)


class EffectPublisher(ChangePublisher):
    """Requests the change's effects of the publisher, which holds the credentials that this process never has."""

    def __init__(
        self, server_context: ServerContext, job_context: JobContext, claim: JobClaim, inputs: JobInputs
    ) -> None:
        super().__init__(inputs)
        self._server_context = server_context
        self._job_context = job_context
        self._claim = claim

    def before(self) -> Patch:
        """The branch without the merge, if this machine has its commit."""
        tree, mirror, ours = self.inputs.tree, self.inputs.mirror, self._job_context.parents[:1]
        return difference(tree, mirror.tree(ours[0])) if ours and mirror.keeps(ours[0]) else super().before()

    def diff_base(self) -> str:
        """The branch's own commit, if the agent works on a merge."""
        ours = self._job_context.parents[:1]
        return ours[0] if ours and self.inputs.mirror.keeps(ours[0]) else super().diff_base()

    async def publish(self, patch: Patch, summary: str) -> PublishedChange:
        """Make the commit, so that its id is known, and store the bytes from which the publisher makes it again."""
        job, mirror = self.inputs.job, self.inputs.mirror
        message = self.publishable_summary(patch, summary)
        recipe = self._recipe(self.blobs.put(patch.model_dump_json().encode()), message)
        commit = await asyncio.to_thread(recipe.commit, mirror, patch)
        failpoint("publish.committed")
        changes = await asyncio.to_thread(mirror.diff_stat, job.task.base, commit)
        return PublishedChange(branch=job.branch, commit=commit, changes=changes, patch=recipe.patch)

    def finish(self, result: JobResult) -> None:
        """Request the result's effects and hand the job over; or end it if nothing is to be published."""
        store, job = self.inputs.store, self.inputs.job
        verification = result.verification
        if result.exit_status != "pr_opened" or verification is None:
            store.finish(job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
            return
        if self._job_context.publish_target == "same_branch":
            result = result.model_copy(update={"exit_status": "pr_updated"})
        effect = self._effect(result, verification)
        self._server_context.outbox.add(job.id, self._claim.epoch, self._job_context.issue_ref, effect)
        failpoint("publish.wanted")
        self._server_context.queue.hand_over(self._claim, result.model_dump(mode="json"))

    def _effect(self, result: JobResult, verification: Verification) -> Effect:
        job, job_context = self.inputs.job, self._job_context
        recipe = self._recipe(result.patch, result.summary)
        if job_context.publish_target == "same_branch":
            return PushCommits(branch=job.branch, commit=result.commit, expected=job_context.expected, recipe=recipe)
        return OpenDraftPullRequest(
            branch=job.branch,
            commit=result.commit,
            base=job_context.base_ref,
            title=pull_request_title(job.task, job_context.config),
            body=pull_request_body(PullRequestContent(job, result, verification)),
            recipe=recipe,
        )

    def _recipe(self, patch: str, summary: str) -> CommitRecipe:
        job, job_context = self.inputs.job, self._job_context
        manual = job_context.config.ci == "manual"
        signed_off_by = job_context.author if job_context.config.signoff else None
        merge = merge_subject(job_context.base_ref, job.branch) if job.conflicts else ""
        return CommitRecipe(
            patch=patch,
            message=commit_message(job.task, summary, skip_ci=manual, signed_off_by=signed_off_by, merge=merge),
            author=job_context.author,
            date=job.created_at,
            parents=job_context.parents,
        )


LOOK_SECONDS = 0.5
"""Between two checks whether the job must stop."""
REMOTE_LOOK_SECONDS = 2.0
"""The same in a cluster, where thousands of jobs may read the database."""
RETRY_AFTER_FAULT = timedelta(seconds=90)
"""Before a job is tried again after a failure that may pass: the provider is down, the disk full, a commit not here."""
BASE_SECONDS = 60.0
"""How long a process waits for its base commit from the publisher; a new process would usually take longer."""
RETRY_AFTER_EMPTY_BUDGET = timedelta(minutes=10)
"""Before a job is tried again after a daily budget was used up."""
FOR_PEOPLE: frozenset[ExitCode] = frozenset({ExitCode.LIMIT_REACHED, ExitCode.SANDBOX, ExitCode.CONFIG})
MAX_REASON = 300
"""Characters of an error that ended the remaining tests."""
_PR_SET_PDEATHSIG = 1


class WorkerDraining(AgentFixError):  # noqa: N818  # a request, not a fault
    """The worker is shutting down; another one will continue this job."""

    repeatable = True


class LoggedProgress:
    """Writes progress to this process's log, which a cluster collects; fragments of text are left out."""

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind not in STREAMED:
            logger.info("%s: %s", kind, text)


class InterruptibleJournal:
    """The job's journal; it starts no new step once the process must end, and reports each finished step."""

    def __init__(self, journal: Journal, draining: asyncio.Event, finished: Callable[[], None]) -> None:
        self._journal = journal
        self._draining = draining
        self._finished = finished

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        self._journal.on_resume(restore)

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        executed = False

        async def begin() -> N:
            nonlocal executed
            if self._draining.is_set():
                raise WorkerDraining("The worker is shutting down; another worker continues.")
            executed = True
            return await work()

        result = await self._journal.step(name, kind, begin)
        if executed:
            self._finished()
        return result


class JobProcess:
    """Works on one claimed job in this process.

    `alone`: no supervising worker runs beside it, so it keeps its own lease and gives the job back itself.
    """

    def __init__(self, server_context: ServerContext, claim: JobClaim, *, alone: bool = False) -> None:
        self.server_context = server_context
        self.claim = claim
        self.store = server_context.job_store(fence=claim.epoch)
        self._queue = server_context.queue
        self._alone = alone
        self._progress: Progress = LoggedProgress() if alone else NoProgress()  # the job's log stores it anyway
        self._draining = asyncio.Event()
        self._runner: JobRunner | None = None

    async def run(self) -> ExitCode:
        """Work until the job is done or cannot continue here; its state then says which."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._drain)
        watching = [asyncio.create_task(self._watch_for_stop())]
        if self._alone:
            watching.append(asyncio.create_task(self._keep_lease()))
        try:
            self._runner = runner = await self._wait_for_runner()
            rest = await asyncio.to_thread(self._is_rest)
            if not rest:
                runner.job_models.warm()
            await runner.prove_sandbox()
            if not rest:
                await runner.check_models()
            result = await self._work(runner, rest=rest)
        except (WorkerDraining, PreemptedError):
            return ExitCode.INTERRUPTED
        except StaleEpoch as error:
            return error.code
        except AgentFixError as error:
            if self._draining.is_set() and isinstance(error, LostSandboxError):  # it may have been sent SIGTERM as well
                return ExitCode.INTERRUPTED
            await asyncio.to_thread(self.release, error, self._runner)
            return error.code
        finally:
            for task in watching:
                task.cancel()
        logger.info("job %s: %s", self.claim.job, result.exit_status)
        return ExitCode.OK

    async def _wait_for_runner(self) -> JobRunner:
        clock = asyncio.get_running_loop().time
        end = clock() + BASE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.runner)
            except LostBaseError:
                if self._draining.is_set() or clock() >= end:
                    raise
                await asyncio.sleep(LOOK_SECONDS)

    def _is_rest(self) -> bool:
        """Whether the job is published, and only the rest of its suite is to be run. Blocking."""
        row = self.store.get(self.claim.job)
        return row is not None and row.final

    async def _work(self, runner: JobRunner, *, rest: bool) -> JobResult:
        progressed = partial(self._queue.made_progress, self.claim.job)

        async def work(_job: str, journal: Journal) -> JobResult:
            interruptible = InterruptibleJournal(journal, self._draining, progressed)
            return await (self._run_rest(runner, interruptible) if rest else runner.work(interruptible))

        engine = await asyncio.to_thread(self.engine, work)
        await asyncio.to_thread(engine.launch)
        name = f"{self.claim.job}.rest" if rest else self.claim.job
        if not rest and await engine.starts_over(name):
            self._runner = runner = await asyncio.to_thread(self._start_over)
        if not await engine.has_succeeded(name):
            begun = await engine.has_begun(self.claim.job)
            await asyncio.to_thread(self._fix_sandbox, begun=begun)
        result = await engine.carry_out(name, resumed=self.claim.resumed)
        if rest:  # after the workflow, which may have succeeded in a process that died or lost its claim here
            await asyncio.to_thread(self.end_rest, result)
        return result

    def _start_over(self) -> JobRunner:
        """The runner of a job that a version with other steps began. What it cost and its plan stay. Blocking."""
        found = self.server_context.job_queries.get(self.claim.job)
        if found is None:
            raise _unknown(self.claim.job)
        self.ledger(found.job, found.job_context).set_aside()
        plans = PlanVersions(self.server_context.engine, self.server_context.clock).of(self.claim.job)
        if plans and found.job.plan_mode == "approve" and not plans[-1].plan.questions:
            self.store.replace(found.job.model_copy(update={"plan_file": render_plan_file(plans[-1].plan)}))
        runner = self.runner()
        runner.progress.report("warning", STARTS_OVER)
        return runner

    def _fix_sandbox(self, *, begun: bool) -> None:
        """Store in which sandbox the job begins, and raise SandboxError if it has begun in another one. Blocking."""
        row, ours = self.store.get(self.claim.job), self.server_context.settings.sandbox
        if row is None or row.job.sandbox == ours:
            return
        if begun:
            first = row.job.sandbox
            raise SandboxError(
                f"The job began in the sandbox {first}, and the worker's is {ours} now: their results do not compare.",
                hint=f"`/agent retry` starts again; `/agent continue` goes on once AGENT_FIX_SANDBOX is {first} again.",
            )
        self.store.replace(row.job.model_copy(update={"sandbox": ours}))

    def release(self, error: AgentFixError, runner: JobRunner | None = None) -> None:
        """Set the job's state for its next owner: waiting for people, or postponed; at a limit, keep the change."""
        job, store = self.claim.job, self.store
        reason = error.message
        if runner is not None and error.code == ExitCode.LIMIT_REACHED:
            shown = runner.so_far(reason, "paused", at_limit=True)
            reason = shown.reason
            if shown.diff or shown.verification:
                store.store_result(job, shown.model_dump(mode="json"))
        if self._is_rest():
            self._release_rest(error)
        elif isinstance(error, WaitingForUser):
            store.enter(job, error.state, reason)
        elif isinstance(error, DayBudgetError):
            reason, pause = f"{error.message} {error.hint}", RETRY_AFTER_EMPTY_BUDGET
            self._queue.postpone(self.claim, reason, pause, waiting_for="daily_budget")
        elif is_for_people(error):
            waiting_for: WaitingFor = "money" if isinstance(error, BudgetError) else ""
            store.enter(job, "paused", f"{reason} {error.hint}".strip(), waiting_for=waiting_for)
        elif isinstance(error, LostSandboxError):  # some code may kill its sandboxes: that is counted
            self._queue.postpone(self.claim, f"{error.message} The job continues in a new sandbox.", RETRY_AFTER_FAULT)
            self._queue.release(self.claim, crashed=True, cause=error.message)
        elif error.final:
            store.enter(job, "error", f"{error.message} {error.hint}".strip())
        else:
            self._queue.retry_later(self.claim, error.message, RETRY_AFTER_FAULT)
        logger.warning("job %s released: %s", job, error.message)

    def _release_rest(self, error: AgentFixError) -> None:
        """End the remaining tests, or postpone them; after some failures at the same step they are given up."""
        queue, row = self._queue, self.store.get(self.claim.job)
        if row is None or not row.rest_pending:  # others have ended the job meanwhile
            return
        result = JobResult.model_validate(row.result)
        reason = clip(error.message, MAX_REASON)
        stored = result.with_rest_state("given_up" if error.final else "pending", reason).model_dump(mode="json")
        if error.final:
            queue.end_rest(self.claim, stored)
            return
        queue.store_rest(self.claim, stored)
        queue.postpone(self.claim, "", RETRY_AFTER_FAULT)
        queue.release(self.claim, crashed=True)

    def _drain(self) -> None:
        """Start no new step. Without a worker that would kill it, the process ends after a while, whatever it does."""
        self._draining.set()
        if self._alone:
            timer = threading.Timer(DRAIN_SECONDS, self._give_back)
            timer.daemon = True
            timer.start()

    def _give_back(self) -> None:
        self._queue.release(self.claim)
        end_process(ExitCode.INTERRUPTED)

    async def _watch_for_stop(self) -> None:
        """End the process if the job must stop or has another owner."""
        while True:
            try:
                await self._check_for_stop()
            except SQLAlchemyError as error:  # the database is down: the lease decides
                logger.warning("the database did not answer: %s", type(error).__name__)
            await asyncio.sleep(REMOTE_LOOK_SECONDS if self._alone else LOOK_SECONDS)

    async def _check_for_stop(self) -> None:
        job, store, queue = self.claim.job, self.store, self._queue
        row = await asyncio.to_thread(store.get, job)
        if row is None or row.epoch != self.claim.epoch:
            end_process(ExitCode.BUSY)
        # No await between stopping the job and ending the process, so that no effect can be requested in between.
        if row.stop_requested and (row.rest_pending or store.stop(job, queue.stop_reason(job))):
            end_process(ExitCode.STOPPED)

    async def _keep_lease(self) -> None:
        """Extend the lease. Ends the process when that failed for as long as a lease lasts: others have the job now."""
        clock, queue = asyncio.get_running_loop().time, self._queue
        kept_at = clock()
        while True:
            try:
                if not await asyncio.to_thread(queue.heartbeat, self.claim):
                    end_process(ExitCode.BUSY)
                kept_at = clock()
            except SQLAlchemyError:
                if clock() - kept_at >= LEASE.total_seconds():
                    end_process(ExitCode.BUSY)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    def runner(self) -> JobRunner:
        """The job's runner. Raises LostBaseError if the base commit is not here. Blocking."""
        found = self.server_context.job_queries.get(self.claim.job)
        if found is None:
            raise _unknown(self.claim.job)
        job_context, mirror = found.job_context, self.server_context.mirror(found.job_context.issue_ref.repository)
        settings = self.server_context.settings
        job = found.job.model_copy(update={"sandbox": settings.sandbox})  # this machine's operator chooses it
        self._fetch_missing(mirror, job_context.issue_ref.repository, job.task.base, *job_context.parents[:1])
        if job.change:
            self._fetch_missing(mirror, job_context.issue_ref.repository, job.change)
        if fix := job.task.fixed_by:
            self._fetch_missing(mirror, job_context.issue_ref.repository, fix)
            self._fetch_missing(mirror, job_context.issue_ref.repository, *mirror.parents(fix)[:1])
        progress = StoredProgress(self.store, job.id, self._progress, streams=True)
        inputs = JobInputs(
            job=job,
            config=job_context.config,
            tree=mirror.tree(job.task.base),
            mirror=mirror,
            store=self.store,
            settings=settings,
            notes=job_context.notes,
            overrides=job_context.overrides,
            earlier=self.server_context.job_queries.earlier_proof(job_context, job.branch),
            lessons=self._lessons(job_context),
        )
        models = make_budgeted_models(
            job,
            settings,
            self.ledger(job, job_context),
            progress,
            fallbacks=inputs.config.fallbacks,
            breakers=CircuitBreakers(
                engine=self.server_context.engine, now=lambda: self.server_context.clock().timestamp()
            ),
        )
        approver = ServerApprover(self.server_context, job_context, inputs)
        publisher = EffectPublisher(self.server_context, job_context, self.claim, inputs)
        return JobRunner(inputs, progress, models, approver, publisher)

    async def _run_rest(self, runner: JobRunner, journal: Journal) -> JobResult:
        """Run the rest of a published job's suite, between jobs that wait."""
        row = await asyncio.to_thread(self.store.get, self.claim.job)
        if row is None or row.result is None:
            raise AgentFixError(f"There is no result of job {self.claim.job}.", code=ExitCode.INTERNAL)
        return await runner.finish_rest(JobResult.model_validate(row.result), journal, self.save_rest)

    def save_rest(self, result: JobResult) -> None:
        """Store what the remaining tests showed so far.

        A resumed process begins with nothing and repeats the parts that are known: these are stored already. Raises
        StaleEpoch if the claim was lost, and PreemptedError if another job waits for a place. Blocking.
        """
        row, queue = self.store.get(self.claim.job), self._queue
        known = JobResult.model_validate(row.result).rest if row and row.result else None
        is_news = known is None or result.rest is None or result.rest.parts >= known.parts
        if is_news and not queue.store_rest(self.claim, result.model_dump(mode="json")):
            raise StaleEpoch(self.claim.job)
        if queue.others_wait(self.claim, self.server_context.limits):
            raise PreemptedError("Another job waits; the remaining tests continue after it.")

    def end_rest(self, result: JobResult) -> None:
        """Hand the result with the remaining tests to the publisher. Raises StaleEpoch if the claim was lost."""
        failpoint("rest.done")
        if not self._queue.end_rest(self.claim, result.model_dump(mode="json")):
            raise StaleEpoch(self.claim.job)

    def _lessons(self, job_context: JobContext) -> SqlLessonStore | None:
        if self.server_context.settings.lessons == "off":
            return None
        return self.server_context.lessons(job_context.issue_ref.repository, self.claim.epoch)

    def ledger(self, job: Job, job_context: JobContext) -> SqlLedger:
        """The job's account, limited by its own cap and by the daily caps."""
        server_context = self.server_context
        clock = lambda: server_context.clock().timestamp()  # noqa: E731
        shared = server_context.caps.budgets(job_context, paid_by(job, job_context), clock)
        return SqlLedger(server_context.engine, job.id, job.budget.usd, shared=shared, clock=clock)

    def engine(self, work: Callable[[str, Journal], Awaitable[JobResult]]) -> "DurableEngine[JobResult]":
        from app.jobs.engine import DurableEngine  # noqa: PLC0415  # 0.3 s of imports, after everything that may refuse

        settings = self.server_context.settings
        return DurableEngine(settings.state, JobResult, work, scope=self.claim.job, database_url=settings.database_url)

    def _fetch_missing(self, mirror: GitStore, repository: int, *commits: str) -> None:
        """Make commits available on this machine: they exist, are transferred, or are waited for."""
        transfers = self.server_context.transfers
        missing = [commit for commit in commits if not transfers.unpack_into(mirror, repository, commit)]
        for commit in missing:
            transfers.request(repository, commit)
        if missing:
            raise LostBaseError("The base commit has not arrived on this machine yet.")


def is_for_people(error: AgentFixError) -> bool:
    """True if only a person can fix it: money, a key, this machine's sandbox. A lost sandbox can be replaced."""
    if isinstance(error, LostSandboxError):
        return False
    return error.code in FOR_PEOPLE or (isinstance(error, ModelError) and error.kind == "give_up")


def main() -> NoReturn:
    """Run `python -I -m app.server.job_process JOB EPOCH`, as the worker starts it. It dies with the worker."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    job, epoch, owner = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    settings = settings_from(process_environment())  # the worker has checked it
    log.configure(form=settings.log, redactor=Redactor(settings.secrets))
    failpoints.arm(settings.failpoint)
    if not owner.startswith(f"{this_process().split(':')[0]}:{os.getppid()}:"):
        end_process(ExitCode.BUSY)  # the parent has died already
    end_process(_work(ServerContext(settings), JobClaim(job, epoch, owner, resumed=epoch > 1)))


def run_job(settings: Settings, job: str, epoch: int, owner: str) -> NoReturn:
    """Work on a claimed job without a worker beside it, as a cluster starts it: `serve --role worker --job …`."""
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    server_context, claim = ServerContext(settings), JobClaim(job, epoch, owner, resumed=epoch > 1)
    if not server_context.queue.heartbeat(claim):
        logger.warning("job %s has another owner by now", job)
        end_process(ExitCode.BUSY)
    code = _work(server_context, claim, alone=True)
    server_context.queue.release(claim, crashed=code == ExitCode.INTERNAL)
    end_process(code)


def _unknown(job: str) -> AgentFixError:
    return AgentFixError(f"There is no job {job}.", code=ExitCode.INTERNAL)


def _work(server_context: ServerContext, claim: JobClaim, *, alone: bool = False) -> ExitCode:
    try:
        return asyncio.run(JobProcess(server_context, claim, alone=alone).run())
    except Exception as error:
        logger.exception("job %s failed", claim.job)
        if is_unreachable(error):
            return ExitCode.INTERRUPTED
        with suppress(SQLAlchemyError):  # which may be what failed
            server_context.queue.note_failure(claim, UnforeseenError.of(error).message)
        return ExitCode.INTERNAL


if __name__ == "__main__":
    main()
