"""A job whose agent, author, verifications and users are scripted."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from app.agent.base import Assignment, Reviewer, ReviewResult, RunnerEnding, Submission
from app.core.errors import ExitCode
from app.core.examples import Example, JudgedExample, OutdatedTest, PlanExamples, Review
from app.core.job import Budget, Job, JobResult, Journal, QuestionAnswers, UserMessage, WaitingForUser
from app.core.model_usage import Totals
from app.core.patch import FileChange, KeptChange, Patch
from app.core.plan import Plan
from app.core.task import Issue, Task
from app.core.verification import (
    BaselineResult,
    FailureReason,
    Reproduction,
    UnchangedSubmission,
    Verdict,
    Verification,
    VerifiedPatch,
)
from app.pipeline.attempts import Attempt, ShareSpentError
from app.pipeline.pipeline import JobServices, OrderedRest, PublishedChange, solve
from app.pipeline.planner import ProposedPlan, questions_wait
from app.pipeline.submission_verification import AskReviewer
from app.sandbox.base import CompletedCommand, Sandbox
from tests.support.memory_journal import MemoryJournal
from tests.support.recorded_progress import ListProgress

PLAN = Plan(summary="Round half up.")
BASE = "0" * 40


def verification(verdict: Verdict, base: FailureReason = "red", head: FailureReason = "green") -> Verification:
    own = Reproduction(command="c", on_base=base, on_head=head)
    return Verification(verdict=verdict, reproduction=own, review=Review(nothing="It is right."))


def doubtful(facts: Verification) -> Verification:
    return facts.model_copy(update={"rules": ("existing_tests_changed",)})


def verified(verdict: Verdict) -> VerifiedPatch:
    return VerifiedPatch(patch=Patch(base=BASE), verification=verification(verdict, "green"))


class UnusedSandbox:
    """A sandbox that nobody needs: the agent is scripted."""

    key = "j.work"
    isolated = True
    left_out = ()
    created = ()
    destroyed = False

    async def exec(self, argv: Sequence[str], **options: object) -> CompletedCommand:
        raise AssertionError(f"{argv} was not to be executed")

    async def close(self) -> None:
        pass

    async def destroy(self) -> None:
        self.destroyed = True


@dataclass
class Agent:
    """Submits until it is accepted, then ends as it is told."""

    submissions: list[Submission]
    ending: RunnerEnding
    reviews: list[ReviewResult] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)

    spends_its_share: list[bool] = field(default_factory=list)
    """Of each time that it works, whether it ends so; not where nothing is said."""

    async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
        self.assignments.append(assignment)
        if self.spends_its_share and self.spends_its_share.pop(0):
            raise ShareSpentError("This attempt's share of the money is used.", code=ExitCode.LIMIT_REACHED)
        for submission in self.submissions:
            self.reviews.append(await review(submission))
            if self.reviews[-1].accepted:
                break
        return self.ending

    def last_change(self) -> Patch:
        return Patch(base="0" * 40)

    def trajectory(self) -> Iterator[str]:
        return iter(())


async def no_review(key: str, patch: Patch, known: Verification) -> Review:
    return Review(absent="none was wanted.")


async def keep_all(written: Sequence[Example], outdated: Sequence[OutdatedTest]) -> tuple[PlanExamples, str]:
    return PlanExamples(examples=tuple(JudgedExample(**dict(one)) for one in written)), "kept"


async def no_lessons(accepted: VerifiedPatch, submission: Submission | None) -> str:
    return ""


async def no_rest(verified: VerifiedPatch, known: BaselineResult) -> OrderedRest | None:
    return None


async def no_setup() -> None:
    return None


@dataclass
class World:
    """A bench whose verifications are scripted, in order."""

    agent: Agent
    verdicts: list[Verification]
    patches: list[Patch]
    executed: int = 0
    earlier: tuple[str, ...] = ()
    sandbox: UnusedSandbox = field(default_factory=UnusedSandbox)
    published: list[Patch] = field(default_factory=list)
    kept: list[JobResult] = field(default_factory=list)
    progress: ListProgress = field(default_factory=ListProgress)
    plans: list[Plan] = field(default_factory=list)
    said: list[UserMessage] = field(default_factory=list)
    answered: list[tuple[str, ...]] = field(default_factory=list)
    known: list[BaselineResult] = field(default_factory=list)
    base_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    base_suite: Callable[[], str] = str
    ask_reviewer: AskReviewer = no_review
    found: PlanExamples = field(default_factory=lambda: PlanExamples(absent="none were written."))
    """What became of the plan's examples."""

    def __post_init__(self) -> None:
        self.base_may_end.set()

    def services(self) -> JobServices:
        return JobServices(
            progress=self.progress,
            plan=self.plan,
            approve=self.approve,
            assignment=lambda plan, examples, answers: Assignment(brief=f"{plan} {answers}"),
            open_work=self.open_work,
            export=self.export,
            runner=self.runner,
            verifier=self,
            publish=self.publish,
            totals=Totals,
            freeze=keep_all,
            hide=lambda found: found,
            works_already=lambda found: next(iter(found.already), None),
            ask_reviewer=self.ask_reviewer,
            answer=self.answer,
            learn=no_lessons,
            count_changed_lines=lambda _: 0,
            keep=self.keep,
            verified=lambda _: None,
            keep_diff=lambda _: KeptChange(),
            order_rest=no_rest,
            set_up=no_setup,
            notes=(),
            warnings=tuple,
        )

    async def keep(self, result: JobResult) -> None:
        self.kept.append(result)

    async def plan(self, journal: Journal, answers: Sequence[QuestionAnswers]) -> ProposedPlan:
        self.answered.append(tuple(said.text for answer in answers for said in answer.messages))
        plan = await journal.step(f"plan.{len(answers)}", Plan, self._plan)
        return ProposedPlan(plan=plan, found=self.found)

    async def _plan(self) -> Plan:
        return self.plans.pop(0) if self.plans else PLAN

    async def answer(self, questions: tuple[str, ...], after: int) -> QuestionAnswers:
        """What people have said since; a real one keeps them all, too."""
        heard = tuple(said for said in self.said if said.seq > after)
        if not heard:
            raise questions_wait(questions)
        return QuestionAnswers(questions=questions, messages=heard[:1])

    async def approve(self, plan: Plan) -> Plan:
        raise WaitingForUser("awaiting_approval", "waits", code=ExitCode.AWAITING_APPROVAL)

    async def open_work(self, name: str) -> Sandbox:
        return self.sandbox

    async def export(self, sandbox: Sandbox) -> Patch:
        return self.patches.pop(0) if len(self.patches) > 1 else self.patches[0]

    def runner(self, sandbox: Sandbox, attempt: Attempt, base_suite: Callable[[], str]) -> Agent:
        self.base_suite = base_suite
        return self.agent

    async def baseline(self) -> BaselineResult:
        await self.base_may_end.wait()
        return BaselineResult(brief="1 passed")

    async def verify(
        self, patch: Patch, submission: Submission, known: BaselineResult, earlier: Sequence[UnchangedSubmission] = ()
    ) -> VerifiedPatch:
        self.executed += 1
        self.known.append(known)
        self.earlier = tuple(one.command for one in earlier)
        found = self.verdicts.pop(0)
        return VerifiedPatch(
            patch=patch, reproduction=submission.reproduction, verification=found, feedback="the facts"
        )

    async def publish(self, patch: Patch, summary: str) -> PublishedChange:
        self.published.append(patch)
        return PublishedChange(branch="agent-fix/t", commit="1" * 40)


def job(**options: object) -> Job:
    task = Task(repository="/r", issue=Issue(title="T", body=""), base=BASE, base_ref="HEAD", slug="t")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Job.model_validate(
        {"id": "j", "task": task, "branch": "b", "budget": Budget(), "model": "m", "created_at": now, **options}
    )


def patch(content: bytes = b"1") -> Patch:
    return Patch(base=BASE, changes=(FileChange(path="a", mode="100644", content=content),))


SUBMISSION = Submission(summary="done", reproduction="c")
SUBMITTED = RunnerEnding(exit_status="submitted", submission=SUBMISSION, turns=3)


async def work(world: World, **options: object) -> JobResult:
    return await solve(job(**options), world.services(), MemoryJournal())


class Memory:
    """Hears what is learned from."""

    def __init__(self) -> None:
        self.heard: list[tuple[Verdict, str]] = []

    async def learn(self, accepted: VerifiedPatch, submission: Submission | None) -> str:
        self.heard.append((accepted.verification.verdict, submission.summary if submission else ""))
        return "1 lesson learned."


def asks(*questions: str) -> Plan:
    return Plan(summary="It depends.", questions=questions)


def says(seq: int, text: str) -> UserMessage:
    return UserMessage(seq=seq, author="octocat", text=text)


def willing(plans: list[Plan], *said: UserMessage) -> World:
    return World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()], plans=plans, said=list(said))
