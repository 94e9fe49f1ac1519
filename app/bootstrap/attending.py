"""A server's job at its desk: people are asked through messages, and the change goes to the publisher as intents."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.bootstrap.desk import Desk
from app.bootstrap.ground import Ground
from app.bootstrap.metering import make_meters
from app.bootstrap.premises import Premises
from app.commission import Commission
from app.errors import AgentFixError, ExitCode
from app.failpoints import failpoint
from app.gitstore import GitStore
from app.job import Answers, Heard, Job, Journal, Parked, Progress
from app.jobs.lessons import SqlLessons
from app.jobs.progress import KeptProgress
from app.jobs.queue import Claim, paid_by
from app.jobs.store import JobStore
from app.model.sql_ledger import SqlLedger
from app.patch import Patch
from app.pipeline import Published
from app.plan import Plan
from app.plan_text import parse_plan_file
from app.publish.comments import commit_message, pull_request_body, pull_request_title
from app.publish.facts import facts_of
from app.publish.intent import Intent, OpenDraftPullRequest, PushCommits, Recipe
from app.questions import unanswered
from app.result import Result
from app.verify.facts import Verification
from app.verify.overlay import difference

if TYPE_CHECKING:
    from app.jobs.engine import Engine


class LostBaseError(AgentFixError):
    """The base commit is not on this machine; the publisher brings it."""

    @property
    def final(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Spoken:
    """What people say to one job, as the agent hears it (`app.job.Steering`)."""

    premises: Premises
    job: str

    async def since(self, seq: int) -> tuple[Heard, ...]:
        said = await asyncio.to_thread(self.premises.messages.since, self.job, seq, "steer")
        return tuple(Heard(seq=each.seq, who=each.who, text=each.text) for each in said)


class ServerDesk(Desk):
    """A job whose change is published by somebody else, who holds what this process never does."""

    def __init__(self, office: "Office", commission: Commission, ground: Ground, progress: Progress) -> None:
        job = ground.job
        ledger = office.ledger(job, commission)
        meters = make_meters(job, ground.settings, ledger, progress, fallbacks=ground.config.fallbacks)
        super().__init__(ground, progress, meters)
        self.steering = Spoken(office.premises, ground.job.id)
        self._premises = office.premises
        self._commission = commission
        self._claim = office.claim

    async def approve(self, plan: Plan) -> Plan:
        """The plan as it was approved, with its edits; Parked while nobody has."""
        said = await asyncio.to_thread(self._premises.messages.since, self.ground.job.id, 0, "approve")
        if not said:
            await asyncio.to_thread(self._show, Result(exit_status="awaiting_approval", plan=plan))
            raise Parked("awaiting_approval", "The plan waits for approval.", code=ExitCode.AWAITING_APPROVAL)
        if not said[-1].text:
            return plan
        edited = parse_plan_file(said[-1].text)
        await asyncio.to_thread(self._show, Result(exit_status="awaiting_approval", plan=edited))
        return edited

    async def answer(self, questions: tuple[str, ...], after: int) -> Answers:
        """What people answered since they were asked; Parked while nobody has."""
        said = await asyncio.to_thread(self._premises.messages.since, self.ground.job.id, after, "answer")
        if not said:
            asked = (self.plan or Plan(summary="")).model_copy(update={"questions": questions})
            await asyncio.to_thread(self._show, Result(exit_status="needs_input", plan=asked))
            raise unanswered(questions)
        heard = tuple(Heard(seq=each.seq, who=each.who, text=each.text) for each in said)
        return Answers(questions=questions, heard=heard)

    def _show(self, result: Result) -> None:
        """What people are asked about, where the status comment finds it."""
        self.ground.store.keep(self.ground.job.id, result.model_dump(mode="json"))

    def before(self) -> Patch:
        """The branch without the merge, where this machine has its commit."""
        tree, mirror, ours = self.ground.tree, self.ground.mirror, self._commission.parents[:1]
        return difference(tree, mirror.tree(ours[0])) if ours and mirror.keeps(ours[0]) else super().before()

    def diff_base(self) -> str:
        """The branch as it was, where its merge is what the agent works on."""
        ours = self._commission.parents[:1]
        return ours[0] if ours and self.ground.mirror.keeps(ours[0]) else super().diff_base()

    async def publish(self, patch: Patch, summary: str) -> Published:
        """Make the commit, so that its id is known, and keep the bytes from which the publisher makes it again."""
        job, mirror = self.ground.job, self.ground.mirror
        recipe = self._recipe(self.blobs.put(patch.model_dump_json().encode()), summary)
        commit = await asyncio.to_thread(make_commit, mirror, patch, recipe)
        failpoint("publish.committed")
        changes = await asyncio.to_thread(mirror.diff_stat, job.task.base, commit)
        return Published(branch=job.branch, commit=commit, changes=changes, patch=recipe.patch)

    def keep(self, result: Result) -> None:
        """Wish for what the result calls for, and hand the job over; or end it where nothing is to be published."""
        store, job = self.ground.store, self.ground.job
        verification = result.verification
        if result.exit_status != "pr_opened" or verification is None:
            store.finish(job.id, result.exit_status, result.reason, result.model_dump(mode="json"))
            return
        if self._commission.goal == "same_branch":
            result = result.model_copy(update={"exit_status": "pr_updated"})
        intent = self._intent(result, verification)
        self._premises.intents.want(job.id, self._claim.epoch, self._commission.place, intent)
        failpoint("publish.wanted")
        self._premises.queue.hand_over(self._claim, result.model_dump(mode="json"))

    def _intent(self, result: Result, verification: Verification) -> Intent:
        job, commission = self.ground.job, self._commission
        recipe = self._recipe(result.patch, result.summary)
        if commission.goal == "same_branch":
            return PushCommits(branch=job.branch, commit=result.commit, expected=commission.expected, recipe=recipe)
        return OpenDraftPullRequest(
            branch=job.branch,
            commit=result.commit,
            base=commission.base_ref,
            title=pull_request_title(job.task, commission.config),
            body=pull_request_body(facts_of(job, result, verification)),
            recipe=recipe,
        )

    def _recipe(self, patch: str, summary: str) -> Recipe:
        job, commission = self.ground.job, self._commission
        manual = commission.config.ci == "manual"
        return Recipe(
            patch=patch,
            message=commit_message(job.task, summary, skip_ci=manual),
            author=commission.author,
            date=job.created_at,
            parents=commission.parents,
        )


def make_commit(mirror: GitStore, patch: Patch, recipe: Recipe) -> str:
    """The same bytes make the same commit in every mirror."""
    return mirror.commit(patch, message=recipe.message, author=recipe.author, date=recipe.date, parents=recipe.parents)


class Office:
    """Where one process of a server works on one claimed job."""

    def __init__(self, premises: Premises, claim: Claim) -> None:
        self.premises = premises
        self.claim = claim
        self.store: JobStore = premises.store(fence=claim.epoch)

    def desk(self, watcher: Progress) -> ServerDesk:
        """The job's desk. LostBaseError where the base commit is not here. Blocking."""
        found = self.premises.roster.get(self.claim.job)
        if found is None:
            raise AgentFixError(f"There is no job {self.claim.job}.", code=ExitCode.INTERNAL)
        commission, mirror = found.commission, self.premises.mirror(found.commission.place.repository)
        job = found.job
        self._have(mirror, commission.place.repository, job.task.base, *commission.parents[:1])
        if fix := job.task.fixed_by:
            self._have(mirror, commission.place.repository, fix)
            self._have(mirror, commission.place.repository, *mirror.parents(fix)[:1])
        progress = KeptProgress(self.store, job.id, watcher)
        ground = Ground(
            job=job,
            config=commission.config,
            tree=mirror.tree(job.task.base),
            mirror=mirror,
            store=self.store,
            settings=self.premises.settings,
            notes=commission.notes,
            overrides=commission.overrides,
            lessons=self._lessons(commission),
        )
        return ServerDesk(self, commission, ground, progress)

    def _lessons(self, commission: Commission) -> SqlLessons | None:
        if self.premises.settings.lessons == "off":
            return None
        return self.premises.lessons(commission.place.repository, self.claim.epoch)

    def ledger(self, job: Job, commission: Commission) -> SqlLedger:
        """The job's account, within what it and others may cost in a day."""
        premises = self.premises
        clock = lambda: premises.clock().timestamp()  # noqa: E731
        shared = premises.caps.purses(commission, paid_by(job, commission), clock)
        return SqlLedger(premises.engine, job.id, job.budget.usd, shared=shared, clock=clock)

    def engine(self, work: Callable[[str, Journal], Awaitable[Result]]) -> "Engine[Result]":
        from app.jobs.engine import Engine  # noqa: PLC0415  # 0.3 s of imports, after everything that may refuse

        settings = self.premises.settings
        return Engine(settings.state, Result, work, scope=self.claim.job, database_url=settings.database_url)

    def _have(self, mirror: GitStore, repository: int, *commits: str) -> None:
        """Have commits in the mirror of this machine: they are there, come as parcels, or are waited for."""
        parcels = self.premises.parcels
        missing = [commit for commit in commits if not parcels.unpack_into(mirror, repository, commit)]
        for commit in missing:
            parcels.want(repository, commit)
        if missing:
            raise LostBaseError("The base commit is still on its way to this machine.")
