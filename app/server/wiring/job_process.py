"""Builds the runner of a server's job: it asks people by messages and publishes through the outbox."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.errors import AgentFixError, ExitCode
from app.core.failpoints import failpoint
from app.core.job import Job, Journal, Progress, QuestionAnswers, UserMessage, WaitingForUser
from app.core.patch import Patch
from app.core.plan import Plan, parse_plan_file
from app.core.result import JobResult
from app.core.verification import Verification
from app.jobs.context import JobContext
from app.jobs.lessons import SqlLessonStore
from app.jobs.plan_versions import AGENT, PlanVersions
from app.jobs.queue import JobClaim, paid_by
from app.jobs.store import JobStore, StoredProgress
from app.llm.budgeted_model import CircuitBreakers
from app.llm.sql_ledger import SqlLedger
from app.pipeline.pipeline import PublishedChange
from app.pipeline.planner import questions_wait
from app.pipeline.wiring.job_runner import JobRunner, make_budgeted_models
from app.pipeline.wiring.prompts import JobInputs
from app.publish.effects import CommitRecipe, Effect, OpenDraftPullRequest, PushCommits
from app.publish.outbox import StaleEpoch
from app.publish.pull_request_text import commit_message, pull_request_body, pull_request_content, pull_request_title
from app.repo.git_store import GitStore
from app.server.wiring.context import ServerContext
from app.verify.overlay import difference

if TYPE_CHECKING:
    from app.jobs.engine import DurableEngine


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
        messages = await asyncio.to_thread(self.server_context.messages.since, self.job, seq, "steer")
        return tuple(UserMessage(seq=each.seq, author=each.who, text=each.text) for each in messages)


class ServerJobRunner(JobRunner):
    """A job whose change is published by another process, which holds the credentials that this one never has."""

    def __init__(
        self, job_process: "JobProcess", job_context: JobContext, inputs: JobInputs, progress: Progress
    ) -> None:
        job = inputs.job
        ledger = job_process.ledger(job, job_context)
        clock = job_process.server_context.clock
        breakers = CircuitBreakers(engine=job_process.server_context.engine, now=lambda: clock().timestamp())
        job_models = make_budgeted_models(
            job, inputs.settings, ledger, progress, fallbacks=inputs.config.fallbacks, breakers=breakers
        )
        super().__init__(inputs, progress, job_models)
        self.user_messages = MessageFeed(job_process.server_context, inputs.job.id)
        self._job_process = job_process
        self._server_context = job_process.server_context
        self._job_context = job_context
        self._claim = job_process.claim
        self._plans = PlanVersions(job_process.server_context.engine, job_process.server_context.clock)

    async def _plan(self, journal: Journal, answers: Sequence[QuestionAnswers] = ()) -> Plan:
        plan = await super()._plan(journal, answers)
        job, job_context = self.inputs.job, self._job_context
        who = (job_context.login or job_context.trigger) if job.plan_file else AGENT
        await asyncio.to_thread(self._plans.record, job.id, plan, who)
        return plan

    async def approve(self, plan: Plan) -> Plan:
        """The approved plan with its edits. Raises WaitingForUser if nobody has approved it."""
        messages = await asyncio.to_thread(self._server_context.messages.since, self.inputs.job.id, 0, "approve")
        if not messages:
            await asyncio.to_thread(self.show, JobResult(exit_status="awaiting_approval", plan=plan))
            raise WaitingForUser(
                "awaiting_approval", "The plan is waiting for approval.", code=ExitCode.AWAITING_APPROVAL
            )
        if not messages[-1].text:
            return plan
        edited = parse_plan_file(messages[-1].text)
        await asyncio.to_thread(self.show, JobResult(exit_status="awaiting_approval", plan=edited))
        return edited

    async def answer(self, questions: tuple[str, ...], after: int) -> QuestionAnswers:
        """People's answers since the question was asked. Raises WaitingForUser if there are none."""
        messages = await asyncio.to_thread(self._server_context.messages.since, self.inputs.job.id, after, "answer")
        if not messages:
            plan = (self.plan or Plan(summary="")).model_copy(update={"questions": questions})
            await asyncio.to_thread(self.show, JobResult(exit_status="needs_input", plan=plan))
            raise questions_wait(questions)
        answers = tuple(UserMessage(seq=each.seq, author=each.who, text=each.text) for each in messages)
        return QuestionAnswers(questions=questions, messages=answers)

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
        recipe = self._recipe(self.blobs.put(patch.model_dump_json().encode()), summary)
        commit = await asyncio.to_thread(make_commit, mirror, patch, recipe)
        failpoint("publish.committed")
        changes = await asyncio.to_thread(mirror.diff_stat, job.task.base, commit)
        return PublishedChange(branch=job.branch, commit=commit, changes=changes, patch=recipe.patch)

    def store_trajectory_base(self, result: JobResult) -> None:
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

    async def run_rest(self, journal: Journal) -> JobResult:
        """Run the rest of a published job's suite, between jobs that wait."""
        row = await asyncio.to_thread(self.inputs.store.get, self.inputs.job.id)
        if row is None or row.result is None:
            raise AgentFixError(f"There is no result of job {self.inputs.job.id}.", code=ExitCode.INTERNAL)
        return await self.finish_rest(JobResult.model_validate(row.result), journal, self._job_process.save_rest)

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
            body=pull_request_body(pull_request_content(job, result, verification)),
            recipe=recipe,
        )

    def _recipe(self, patch: str, summary: str) -> CommitRecipe:
        job, job_context = self.inputs.job, self._job_context
        manual = job_context.config.ci == "manual"
        return CommitRecipe(
            patch=patch,
            message=commit_message(job.task, summary, skip_ci=manual),
            author=job_context.author,
            date=job.created_at,
            parents=job_context.parents,
        )


def make_commit(mirror: GitStore, patch: Patch, recipe: CommitRecipe) -> str:
    """Make the commit; the same bytes give the same commit in every repository."""
    return mirror.commit(patch, message=recipe.message, author=recipe.author, date=recipe.date, parents=recipe.parents)


class JobProcess:
    """The resources with which a process works on one claimed job."""

    def __init__(self, server_context: ServerContext, claim: JobClaim) -> None:
        self.server_context = server_context
        self.claim = claim
        self.store: JobStore = server_context.job_store(fence=claim.epoch)

    def runner(self, watcher: Progress) -> ServerJobRunner:
        """The job's runner. Raises LostBaseError if the base commit is not here. Blocking."""
        found = self.server_context.job_queries.get(self.claim.job)
        if found is None:
            raise AgentFixError(f"There is no job {self.claim.job}.", code=ExitCode.INTERNAL)
        job_context, mirror = found.job_context, self.server_context.mirror(found.job_context.issue_ref.repository)
        job = found.job
        self._fetch_missing(mirror, job_context.issue_ref.repository, job.task.base, *job_context.parents[:1])
        if fix := job.task.fixed_by:
            self._fetch_missing(mirror, job_context.issue_ref.repository, fix)
            self._fetch_missing(mirror, job_context.issue_ref.repository, *mirror.parents(fix)[:1])
        progress = StoredProgress(self.store, job.id, watcher, streams=True)
        inputs = JobInputs(
            job=job,
            config=job_context.config,
            tree=mirror.tree(job.task.base),
            mirror=mirror,
            store=self.store,
            settings=self.server_context.settings,
            notes=job_context.notes,
            overrides=job_context.overrides,
            lessons=self._lessons(job_context),
        )
        return ServerJobRunner(self, job_context, inputs, progress)

    def save_rest(self, result: JobResult) -> None:
        """Store what the remaining tests showed so far.

        A resumed process begins with nothing and repeats the parts that are known: these are stored already. Raises
        StaleEpoch if the claim was lost, and PreemptedError if another job waits for a place. Blocking.
        """
        row, queue = self.store.get(self.claim.job), self.server_context.queue
        known = JobResult.model_validate(row.result).rest if row and row.result else None
        is_news = known is None or result.rest is None or result.rest.parts >= known.parts
        if is_news and not queue.store_rest(self.claim, result.model_dump(mode="json")):
            raise StaleEpoch(self.claim.job)
        if queue.others_wait(self.claim, self.server_context.limits):
            raise PreemptedError("Another job waits; the remaining tests continue after it.")

    def end_rest(self, result: JobResult) -> None:
        """Hand the result with the remaining tests to the publisher. Raises StaleEpoch if the claim was lost."""
        failpoint("rest.done")
        if not self.server_context.queue.end_rest(self.claim, result.model_dump(mode="json")):
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
