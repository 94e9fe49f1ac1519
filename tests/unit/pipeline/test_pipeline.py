"""The story's rules: what is taken as it is, what goes back, and how an ending becomes a final state."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from app.agent.base import Assignment, Reviewer, ReviewResult, RunnerEnding, Submission
from app.core.errors import ExitCode
from app.core.evidence import Control, Outcome
from app.core.job import Budget, Job, Journal, QuestionAnswers, UserMessage, WaitingForUser
from app.core.money import Totals
from app.core.patch import FileChange, Patch
from app.core.plan import Plan
from app.core.result import JobResult
from app.core.task import Issue, Task
from app.core.verification import (
    BaselineResult,
    Cap,
    Facts,
    FailureReason,
    Reproduction,
    Settlement,
    Specification,
    SpecificationResult,
    SpecifiedTest,
    SuiteComparison,
    UnchangedSubmission,
    Verdict,
    Verification,
    VerifiedPatch,
)
from app.pipeline.attempts import Attempt, ShareSpentError
from app.pipeline.pipeline import JobServices, PublishedChange, solve
from app.pipeline.questions import questions_wait, refuse_questions
from app.pipeline.reviews import MAX_REVIEWS, is_acceptable
from app.sandbox.base import CompletedCommand, Sandbox
from app.verify.verdict import judged
from tests.support.memory_journal import CrashMoment, Died, MemoryJournal
from tests.support.recorded_progress import ListProgress

PLAN = Plan(summary="Round half up.")
BASE = "0" * 40


def verification(verdict: Verdict, base: FailureReason = "red", head: FailureReason = "green") -> Verification:
    return Verification(verdict=verdict, reproduction=Reproduction(command="c", on_base=base, on_head=head))


def capped(facts: Verification) -> Verification:
    return facts.model_copy(update={"caps": (Cap(rule="literal_branches", findings=("a.py:3: == 7",)),)})


def verified(verdict: Verdict) -> VerifiedPatch:
    return VerifiedPatch(patch=Patch(base=BASE), verification=verification(verdict, "green"))


@pytest.mark.parametrize(
    ("now", "before", "asked", "taken"),
    [
        (verification("proved"), [], False, True),
        (verification("broken"), [], False, False),
        (verification("broken", "red", "red"), ["unproved"], True, False),
        (verification("unproved", "green"), [], False, False),
        (verification("unproved", "green"), ["unproved"], False, True),
        (verification("unproved", "green"), ["broken"], False, False),
        (verification("tested", "green"), ["broken"], False, True),
        (capped(verification("tested")), [], False, False),
        (capped(verification("tested")), ["tested"], False, True),
        (verification("unproved", "not_run", "not_run"), [], True, True),
        (verification("tested", "red", "green"), [], False, True),
        (verification("unproved", "red", "green"), [], False, False),
        (verification("unproved", "red", "green"), ["unproved"], False, True),
        (verification("unproved", "was_not_there", "green"), [], False, False),
        (verification("broken"), ["broken"] * (MAX_REVIEWS - 1), False, True),
    ],
)
def test_what_is_taken_as_it_is(now: Verification, before: list[Verdict], *, asked: bool, taken: bool) -> None:
    assert is_acceptable(now, [verified(verdict) for verdict in before], was_requested=asked) is taken


class UnusedSandbox:
    """A sandbox that nobody needs: the agent is scripted."""

    key = "j.work"
    isolated = True
    left_out = ()
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
    name: str = "scripted"

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

    def trajectory(self) -> Iterator[str]:
        return iter(())


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
    progress: ListProgress = field(default_factory=ListProgress)
    plans: list[Plan] = field(default_factory=list)
    said: list[UserMessage] = field(default_factory=list)
    answered: list[tuple[str, ...]] = field(default_factory=list)
    known: list[BaselineResult] = field(default_factory=list)
    base_may_end: asyncio.Event = field(default_factory=asyncio.Event)
    base_suite: Callable[[], str] = str

    def __post_init__(self) -> None:
        self.base_may_end.set()

    def services(self) -> JobServices:
        return JobServices(
            progress=self.progress,
            plan=self.plan,
            approve=self.approve,
            assignment=lambda plan, specification, answers: Assignment(brief=f"{plan} {answers}"),
            open_work=self.open_work,
            export=self.export,
            runner=self.runner,
            verifier=self,
            publish=self.publish,
            totals=Totals,
            answer=self.answer,
        )

    async def plan(self, journal: Journal, answers: Sequence[QuestionAnswers]) -> Plan:
        self.answered.append(tuple(said.text for answer in answers for said in answer.messages))
        return await journal.step(f"plan.{len(answers)}", Plan, self._plan)

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

    def same_sources(self, patch: Patch, other: Patch) -> bool:
        return patch == other

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


async def test_what_was_verified_is_what_is_published() -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    result = await work(world)
    assert (result.exit_status, result.branch, result.exit_code) == ("pr_opened", "agent-fix/t", ExitCode.OK)
    assert world.published == [patch()]
    assert world.sandbox.destroyed


@pytest.mark.parametrize(("plan", "state"), [("none", "working"), ("auto", "planning")])
async def test_a_job_whose_suite_runs_on_the_base_is_not_reported_as_waiting(plan: str, state: str) -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    states: list[list[str]] = []

    async def note() -> None:
        states.append(world.progress.texts("state"))

    await solve(job(plan_mode=plan), replace(world.services(), set_up=note), MemoryJournal())
    assert states == [[state]]


@pytest.mark.parametrize("plan", ["none", "auto"])
async def test_the_work_begins_while_the_suite_runs_on_the_base_and_only_a_submission_waits_for_it(plan: str) -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    world.base_may_end.clear()
    told: list[str] = []

    def begun(sandbox: Sandbox, attempt: Attempt, base_suite: Callable[[], str]) -> Agent:
        told.append(base_suite())
        world.base_may_end.set()
        return world.runner(sandbox, attempt, base_suite)

    result = await solve(job(plan_mode=plan), replace(world.services(), runner=begun), MemoryJournal())
    assert result.exit_status == "pr_opened"
    assert (*told, world.base_suite()) == ("", "1 passed")
    assert [known.brief for known in world.known] == ["1 passed"]


async def test_a_suite_that_nobody_needs_any_more_ends_with_the_job() -> None:
    no_change = RunnerEnding(exit_status="no_change", claim="It works already.", turns=1)
    world = World(Agent([], no_change), [], [patch()])
    world.base_may_end.clear()
    journal = MemoryJournal()
    assert (await solve(job(), world.services(), journal)).exit_status == "no_change"
    assert "baseline" not in journal.kept


async def test_what_is_broken_is_never_published() -> None:
    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification("broken")] * 9, [patch()])
    result = await work(world)
    assert (result.exit_status, result.exit_code) == ("verification_failed", ExitCode.BROKEN)
    assert not world.published
    assert not result.branch


@pytest.mark.parametrize("verdict", ["broken", "proved"])
async def test_the_change_is_kept_for_people_whatever_becomes_of_it(verdict: Verdict) -> None:
    kept: list[Patch] = []

    def keep(change: Patch) -> str:
        kept.append(change)
        return "d" * 64

    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification(verdict)] * 9, [patch(), patch(b"2")])
    result = await solve(job(), replace(world.services(), keep_diff=keep), MemoryJournal())
    assert result.diff == "d" * 64
    assert kept == [patch() if verdict == "proved" else patch(b"2")], "the last one that was verified"


async def test_what_an_agent_says_of_nothing_is_no_reason() -> None:
    ending = RunnerEnding(exit_status="no_change", reason="Nothing was changed.", claim="It is right as it is.")
    result = await work(World(Agent([], ending), [], [patch()]))
    assert (result.exit_status, result.reason, result.summary) == (
        "no_change",
        "Nothing was changed.",
        "It is right as it is.",
    )


class Memory:
    """Hears what is learned from."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[Verdict], str]] = []

    async def learn(
        self, known: BaselineResult, verified: Sequence[VerifiedPatch], submission: Submission | None
    ) -> str:
        verdicts = [each.verification.verdict for each in verified]
        self.heard.append((known.brief, verdicts, submission.summary if submission else ""))
        return "1 lesson learned."


async def test_what_is_published_is_learned_from_with_all_that_came_before_it() -> None:
    memory = Memory()
    world = World(
        Agent([SUBMISSION] * 2, SUBMITTED), [verification("broken"), verification("proved")], [patch(), patch(b"2")]
    )
    result = await solve(job(), replace(world.services(), learn=memory.learn, notes=("first",)), MemoryJournal())
    assert memory.heard == [("1 passed", ["broken", "proved"], "done")]
    assert result.notes == ("first", "1 lesson learned.")


async def test_of_what_is_not_published_nothing_is_learned() -> None:
    memory = Memory()
    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification("broken")] * 9, [patch()])
    result = await solve(job(), replace(world.services(), learn=memory.learn), MemoryJournal())
    assert (memory.heard, result.notes) == ([], ())


async def test_a_claim_without_a_verification_is_an_error() -> None:
    result = await work(World(Agent([], SUBMITTED), [], [patch()]))
    assert (result.exit_status, result.branch) == ("error", "")


async def test_an_agent_that_gives_up_on_broken_work_ends_with_the_facts() -> None:
    gives_up = RunnerEnding(exit_status="error", reason="went in a circle")
    result = await work(World(Agent([SUBMISSION], gives_up), [verification("broken")], [patch()]))
    assert (result.exit_status, result.reason) == ("verification_failed", "went in a circle")


async def test_the_same_submitted_again_is_taken_and_not_executed_again() -> None:
    world = World(Agent([SUBMISSION, SUBMISSION], SUBMITTED), [verification("unproved", "green")], [patch()])
    result = await work(world)
    assert [review.accepted for review in world.agent.reviews] == [False, True]
    assert "submit the same again" in world.agent.reviews[0].text
    assert world.executed == 1
    assert result.verification == verification("unproved", "green").model_copy(update={"submission": 2})


async def test_another_patch_is_verified_again() -> None:
    verdicts = [verification("broken"), verification("proved")]
    world = World(Agent([SUBMISSION, SUBMISSION], SUBMITTED), verdicts, [patch(b"1"), patch(b"2")])
    await work(world)
    assert world.executed == 2
    assert world.published == [patch(b"2")]


async def test_an_honest_reproduction_that_failed_is_not_forgotten() -> None:
    """What was red on the base for other reasons, or never red, is."""
    given: list[tuple[str, FailureReason, FailureReason]] = [
        ("a", "red", "red"),
        ("b", "green", "red"),
        ("c", "red", "red"),
        ("d", "was_not_there", "red"),
    ]
    facts = [
        verification("broken").model_copy(update={"reproduction": Reproduction(command=c, on_base=b, on_head=h)})
        for c, b, h in given
    ]
    submissions = [Submission(summary="done", reproduction=name) for name in "abcde"]
    world = World(Agent(submissions, SUBMITTED), [*facts, verification("proved")], [patch(b"%d" % n) for n in range(5)])
    await work(world)
    assert world.earlier == ("c", "a")


async def test_at_a_limit_the_job_waits() -> None:
    limited = RunnerEnding(exit_status="limit_reached", reason="100 steps")
    with pytest.raises(WaitingForUser) as parked:
        await work(World(Agent([], limited), [], [patch()]))
    assert (parked.value.state, parked.value.code) == ("paused", ExitCode.LIMIT_REACHED)


async def test_plan_only_opens_no_sandbox_and_asks_nobody() -> None:
    result = await work(World(Agent([], SUBMITTED), [], []), plan_mode="only")
    assert (result.exit_status, result.plan, result.exit_code) == ("answered", PLAN, ExitCode.OK)


async def test_approval_comes_before_work() -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    with pytest.raises(WaitingForUser):
        await work(world, plan_mode="approve")
    assert world.executed == 0


# questions


def asks(*questions: str) -> Plan:
    return Plan(summary="It depends.", questions=questions)


def says(seq: int, text: str) -> UserMessage:
    return UserMessage(seq=seq, author="octocat", text=text)


def willing(plans: list[Plan], *said: UserMessage) -> World:
    return World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()], plans=plans, said=list(said))


async def test_a_plan_with_questions_waits_for_people_and_is_made_again_with_what_they_said() -> None:
    world, journal = willing([asks("Which currency?")]), MemoryJournal()
    with pytest.raises(WaitingForUser) as parked:
        await solve(job(), world.services(), journal)
    assert (parked.value.state, parked.value.code) == ("needs_input", ExitCode.NEEDS_INPUT)
    assert "(1) Which currency?" in parked.value.message
    assert any("Which currency?" in text for kind, text in world.progress.said if kind == "plan")
    assert not world.agent.assignments

    world.said.append(says(7, "Euro."))
    resumed = journal.resumed()
    result = await solve(job(), world.services(), resumed)
    assert (result.exit_status, result.plan) == ("pr_opened", PLAN)
    assert world.answered[-1] == ("Euro.",)
    assert "Euro." in world.agent.assignments[0].brief
    assert resumed.executed == ["answers.1", "plan.1", "specification.answered", "verify.1", "publish"]


async def test_nobody_is_asked_a_third_time() -> None:
    plans = [asks("One?"), asks("Two?"), asks("Three?")]
    world = willing(plans, says(3, "Yes."), says(5, "No."), says(9, "Enough."))
    result = await work(world)
    assert world.answered == [(), ("Yes.",), ("Yes.", "No.")]
    assert result.exit_status == "pr_opened"
    assert result.plan == asks("Three?")


async def test_an_answer_counts_for_one_round_only() -> None:
    world = willing([asks("One?"), asks("Two?")], says(3, "Yes."))
    with pytest.raises(WaitingForUser) as parked:
        await work(world)
    assert "Two?" in parked.value.message


@pytest.mark.parametrize("step", ["plan.0", "baseline", "answers.1", "plan.1", "answers.2", "plan.2"])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
async def test_a_crash_while_asking_asks_nothing_twice(step: str, moment: CrashMoment) -> None:
    world = willing([], says(3, "Yes."), says(5, "No."))
    world.plans = [asks("One?"), asks("Two?"), PLAN]
    if moment == "during" and step.startswith("plan"):  # that plan was made and lost: the next process makes it again
        number = int(step.partition(".")[2])
        world.plans.insert(number, world.plans[number])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(), world.services(), journal)
    result = await solve(job(), world.services(), journal.resumed())
    assert (result.exit_status, result.plan) == ("pr_opened", PLAN)
    assert world.answered[-1] == ("Yes.", "No.")


async def test_a_plan_of_peoples_own_is_not_asked_about() -> None:
    result = await work(willing([asks("Which currency? Euro.")]), plan_file="summary: x")
    assert result.exit_status == "pr_opened"


async def test_plan_only_shows_its_questions_and_waits_for_nobody() -> None:
    result = await work(willing([asks("Which currency?")]), plan_mode="only")
    assert (result.exit_status, result.plan) == ("answered", asks("Which currency?"))


async def test_without_anybody_to_ask_the_hint_says_what_to_do() -> None:
    with pytest.raises(WaitingForUser) as parked:
        await refuse_questions(("Which currency?",), 0)
    assert (parked.value.state, parked.value.code) == ("needs_input", ExitCode.NEEDS_INPUT)
    assert "--no-plan" in parked.value.hint


# other assignments


async def test_a_resolved_merge_is_not_sent_back_for_a_reproduction() -> None:
    merged = Submission(summary="Both sides kept.")
    ending = RunnerEnding(exit_status="submitted", submission=merged)
    world = World(Agent([merged], ending), [verification("tested", "not_run", "not_run")], [patch()])
    result = await work(world, conflicts=("a",), plan_mode="none")
    assert result.exit_status == "pr_opened"
    assert world.agent.assignments[0].aim == "merge"


async def test_a_question_never_comes_near_what_publishes() -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    with pytest.raises(ValueError, match="asks a question"):
        await work(world, aim="ask")
    assert not world.agent.assignments
    assert not world.published


def test_a_test_that_vanished_goes_back_once_even_where_nothing_can_be_red() -> None:
    lost = Verification(verdict="unproved", suite=SuiteComparison(command="s", missing=("t",)))
    assert not is_acceptable(lost, [], was_requested=True)
    assert is_acceptable(lost, [VerifiedPatch(patch=patch(), verification=lost)], was_requested=True)


async def test_a_refactoring_is_taken_without_a_reproduction() -> None:
    moved = Submission(summary="Moved.")
    ending = RunnerEnding(exit_status="submitted", submission=moved)
    world = World(Agent([moved], ending), [verification("tested", "not_run", "not_run")], [patch()])
    task = job().task.model_copy(update={"kind": "refactoring"})
    result = await work(world, task=task, plan_mode="none")
    assert result.exit_status == "pr_opened"
    assert world.agent.assignments[0].aim == "upkeep"


# several attempts


async def test_an_attempt_that_used_its_share_gives_way_to_the_next_and_leaves_nothing() -> None:
    agent = Agent([SUBMISSION], SUBMITTED, spends_its_share=[True, False])
    world = World(agent, [verification("proved")], [patch()])
    result = await work(world, attempts=2)
    assert [each.exit_status for each in result.attempts] == ["limit_reached", "pr_opened"]
    assert result.attempts[0].reason == "This attempt's share of the money is used."
    assert world.sandbox.destroyed
    assert world.published == [patch()]


async def test_at_a_limit_the_last_attempt_waits_unless_an_earlier_one_can_be_published() -> None:
    limited = RunnerEnding(exit_status="limit_reached", reason="50 steps")
    with pytest.raises(WaitingForUser):
        await work(World(Agent([], limited), [], [patch()]), attempts=2)

    @dataclass
    class ExhaustedAgent(Agent):
        async def work(self, assignment: Assignment, review: Reviewer) -> RunnerEnding:
            return await super().work(assignment, review) if not self.assignments else limited

    tested = verification("tested", "red", "green")
    result = await work(World(ExhaustedAgent([SUBMISSION], SUBMITTED), [tested], [patch()]), attempts=2)
    assert [(each.exit_status, each.taken) for each in result.attempts] == [
        ("pr_opened", True),
        ("limit_reached", False),
    ]
    assert result.exit_status == "pr_opened"


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("step", ["attempt.1.share", "verify.1", "attempt.2.verify.1", "publish"])
async def test_a_crash_at_any_step_of_several_attempts_changes_nothing(step: str, moment: CrashMoment) -> None:
    facts = [verification("tested", "red", "green"), verification("proved"), verification("proved")]
    if step == "verify.1" and moment == "during":  # it was executed and lost: the next process executes it again
        facts.insert(0, facts[0])
    world = World(Agent([SUBMISSION], SUBMITTED), facts, [patch()])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(attempts=3), world.services(), journal)
    result = await solve(job(attempts=3), world.services(), journal.resumed())
    assert [(each.verdict, each.taken) for each in result.attempts] == [("tested", False), ("proved", True)]


# the independent author's tests


def specified(*heads: Outcome) -> SpecificationResult:
    tests = (
        SpecifiedTest(id=f"t::{number}", sentence=f"Sentence {number}.", role="shows", varies=True, head=head)
        for number, head in enumerate(heads)
    )
    return SpecificationResult(tests=tuple(tests), digest="d")


def facts(*heads: Outcome) -> Verification:
    return judged(Facts(specification=specified(*heads)))


FROZEN = Specification(tests=specified("not_run", "not_run").tests, digest="d", example="t/test_example.py")


def objects(text: str = "The issue leaves that open.") -> Submission:
    return Submission(summary="done", reproduction="c", objection=text)


@dataclass
class Author:
    """Freezes the given tests, and decides objections as it is told."""

    withdraws: tuple[str, ...] = ()
    asked: list[tuple[str, int]] = field(default_factory=list)
    decided: list[str] = field(default_factory=list)

    async def specify(self, key: str, answers: Sequence[QuestionAnswers]) -> Specification:
        self.asked.append((key, len(answers)))
        return FROZEN

    async def decide_objection(self, key: str, found: SpecificationResult, objection: str) -> Settlement:
        self.decided.append(key)
        failing = [test.id for test in found.failing]
        kept = tuple(name for name in failing if name not in self.withdraws)
        return Settlement(objection=objection, kept=kept, withdrawn=self.withdraws, reason="So says the issue.")

    def services(self, world: World) -> JobServices:
        return replace(world.services(), specify=self.specify, decide_objection=self.decide_objection)


async def test_the_tests_are_frozen_once_for_all_attempts_and_every_resume() -> None:
    author, world = Author(), World(Agent([SUBMISSION], SUBMITTED), [facts("passed")] * 3, [patch()])
    journal = MemoryJournal(die_at="verify.1", moment="before")
    with pytest.raises(Died):
        await solve(job(attempts=2), author.services(world), journal)
    await solve(job(attempts=2), author.services(world), journal.resumed())
    assert author.asked == [("specification", 0)]
    assert world.known[-1].specification == FROZEN


async def test_where_nothing_is_to_be_red_nobody_writes_tests() -> None:
    author, world = Author(), World(Agent([SUBMISSION], SUBMITTED), [verification("tested")], [patch()])
    await solve(job(conflicts=("a",)), author.services(world), MemoryJournal())
    assert author.asked == []
    assert world.known[-1].specification is None


async def test_what_people_answered_is_for_the_author_too() -> None:
    author, world = Author(), willing([asks("Which currency?")], says(7, "Euro."))
    await solve(job(), author.services(world), MemoryJournal())
    assert author.asked == [("specification", 0), ("specification.answered", 1)]


async def test_an_objection_is_heard_once_and_what_is_withdrawn_caps_the_verdict() -> None:
    author = Author(withdraws=("t::0",))
    agent = Agent([SUBMISSION, objects(), objects("Again.")], SUBMITTED)
    world = World(agent, [facts("failed", "failed"), facts("failed", "failed"), facts("failed", "passed")], [patch()])
    world.patches = [patch(b"1"), patch(b"2"), patch(b"3")]
    result = await solve(job(), author.services(world), MemoryJournal())
    assert author.decided == ["objection"]
    assert [review.accepted for review in agent.reviews] == [False, False, True]
    assert "  - Sentence 1." in agent.reviews[1].text
    assert "  - Sentence 0." not in agent.reviews[1].text
    assert "these requirements stand" in agent.reviews[1].text
    assert result.verification is not None
    assert (result.verification.verdict, result.verification.rules[0]) == ("unproved", "nothing_shown")
    assert "specification_disputed" in result.verification.rules


async def test_an_upheld_test_that_still_fails_is_stated_and_the_change_unproved() -> None:
    author, agent = Author(), Agent([objects(), objects()], SUBMITTED)
    world = World(agent, [facts("failed")], [patch()])
    result = await solve(job(), author.services(world), MemoryJournal())
    assert result.verification is not None
    assert (result.verification.verdict, result.exit_code) == ("unproved", ExitCode.UNPROVED)
    assert result.verification.rules[0] == "specification_disputed"
    assert result.exit_status == "pr_opened", "people see the disagreement"
    assert world.executed == 1


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize("step", ["specification", "objection"])
async def test_a_crash_around_the_author_changes_nothing(step: str, moment: CrashMoment) -> None:
    author = Author(withdraws=("t::0",))
    world = World(Agent([objects()], SUBMITTED), [facts("failed", "passed")], [patch()])
    journal = MemoryJournal(die_at=step, moment=moment)
    with pytest.raises(Died):
        await solve(job(), author.services(world), journal)
    result = await solve(job(), author.services(world), journal.resumed())
    assert result.verification is not None
    assert "specification_disputed" in result.verification.rules
    assert len(author.decided) + len(author.asked) == (3 if moment == "during" else 2)


async def test_the_same_sources_have_to_end_the_same_way_each_time() -> None:
    """A submission that was only unlucky before is one that was only lucky now."""
    submissions = [SUBMISSION, Submission(summary="done", reproduction="other")]
    world = World(Agent(submissions, SUBMITTED), [facts("failed"), facts("passed")], [patch()])
    result = await solve(job(), Author().services(world), MemoryJournal())
    assert result.verification is not None
    assert "repeats_agree" in result.verification.rules
    assert any("an earlier submission with the same sources" in reason for reason in result.verification.reasons)


async def test_the_fixers_own_tests_have_to_end_the_same_way_each_time_too() -> None:
    """The same command on the same sources: red before, green now."""
    control = Control(name="failing_copies_fail", outcome="held")
    red = Reproduction(command="run", on_base="red", on_head="red", controls=(control,))
    ended = [red, red.model_copy(update={"on_head": "green", "ids": ("t::own",)})]
    submissions = [SUBMISSION, Submission(summary="done", reproduction=" run")]
    world = World(Agent(submissions, SUBMITTED), [judged(Facts(reproduction=each)) for each in ended], [patch()])
    result = await work(world)
    assert result.verification is not None
    assert (result.verification.verdict, result.verification.rules[0]) == ("unproved", "repeats_agree")


async def test_all_submissions_of_a_job_count() -> None:
    world = World(Agent([SUBMISSION] * 2, SUBMITTED), [verification("unproved")] * 4, [patch(), patch(b"2")])
    result = await work(world, attempts=2)
    assert result.verification is not None
    assert {each.verdict for each in result.attempts} == {"unproved"}
    assert result.verification.submission in (2, 4)
