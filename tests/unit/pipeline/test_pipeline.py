"""One attempt: which submissions are accepted, which go back, and how an ending becomes a final state."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from app.agent.base import RunnerEnding, RunnerStatus, Submission
from app.core.errors import ExitCode, SetupError
from app.core.examples import Because, JudgedExample, PlanExamples, Review
from app.core.job import Journal, QuestionAnswers, WaitingForUser
from app.core.patch import KeptChange, Patch
from app.core.verification import (
    FailureReason,
    Reproduction,
    SuiteComparison,
    Verdict,
    Verification,
    VerifiedPatch,
)
from app.pipeline.attempts import Attempt
from app.pipeline.pipeline import solve
from app.pipeline.planner import ProposedPlan
from app.pipeline.submission_verification import MAX_REVIEWS, is_acceptable
from app.sandbox.base import Sandbox
from tests.support.memory_journal import MemoryJournal
from tests.support.scripted_job import (
    PLAN,
    SUBMISSION,
    SUBMITTED,
    Agent,
    Memory,
    World,
    doubtful,
    job,
    patch,
    verification,
    verified,
    work,
)


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
        (doubtful(verification("tested")), [], False, False),
        (doubtful(verification("tested")), ["tested"], False, True),
        (verification("unproved", "not_run", "not_run"), [], True, True),
        (verification("tested", "red", "green"), [], False, True),
        (verification("unproved", "red", "green"), [], False, False),
        (verification("unproved", "red", "green"), ["unproved"], False, True),
        (verification("unproved", "was_not_there", "green"), [], False, False),
        (verification("broken"), ["broken"] * (MAX_REVIEWS - 1), False, True),
    ],
)
def test_acceptance_depends_on_the_verdict_and_earlier_submissions(
    now: Verification, before: list[Verdict], *, asked: bool, taken: bool
) -> None:
    assert is_acceptable(now, [verified(verdict) for verdict in before], was_requested=asked) is taken


async def test_verified_patch_is_the_published_patch() -> None:
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


@pytest.mark.parametrize("plan", ["none", "auto", "approve"])
async def test_nothing_is_paid_for_before_a_set_up_is_known_to_be_possible(plan: str) -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    asked: list[str] = []

    async def impossible() -> None:
        raise SetupError("The package index has no such package.")

    async def planned(_journal: Journal, _answers: Sequence[QuestionAnswers]) -> ProposedPlan:
        asked.append("plan")
        return ProposedPlan(plan=PLAN)

    services = replace(world.services(), set_up=impossible, plan=planned)
    with pytest.raises(SetupError):
        await solve(job(plan_mode=plan), services, MemoryJournal())
    assert asked == []


@pytest.mark.parametrize("plan", ["none", "auto"])
async def test_work_starts_during_the_base_suite_and_submissions_wait_for_it(plan: str) -> None:
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


async def test_unneeded_base_suite_ends_with_the_job() -> None:
    no_change = RunnerEnding(exit_status="no_change", claim="It works already.", turns=1)
    world = World(Agent([], no_change), [], [patch()])
    world.base_may_end.clear()
    journal = MemoryJournal()
    assert (await solve(job(), world.services(), journal)).exit_status == "no_change"
    assert "baseline" not in journal.kept


async def test_broken_change_is_never_published() -> None:
    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification("broken")] * 9, [patch()])
    result = await work(world)
    assert (result.exit_status, result.exit_code) == ("verification_failed", ExitCode.BROKEN)
    assert not world.published
    assert not result.branch


@pytest.mark.parametrize("verdict", ["broken", "proved"])
async def test_change_is_kept_whatever_the_verdict(verdict: Verdict) -> None:
    kept: list[Patch] = []

    def keep(change: Patch) -> KeptChange:
        kept.append(change)
        return KeptChange(diff="d" * 64)

    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification(verdict)] * 9, [patch(), patch(b"2")])
    result = await solve(job(), replace(world.services(), keep_diff=keep), MemoryJournal())
    assert result.diff == "d" * 64
    assert kept == [patch() if verdict == "proved" else patch(b"2")], "the last one that was verified"


async def test_claim_of_the_agent_is_not_the_reason_for_no_change() -> None:
    ending = RunnerEnding(exit_status="no_change", reason="Nothing was changed.", claim="It is right as it is.")
    result = await work(World(Agent([], ending), [], [patch()]))
    assert (result.exit_status, result.reason, result.summary) == (
        "no_change",
        "Nothing was changed.",
        "It is right as it is.",
    )


async def test_lessons_are_learned_from_a_published_change() -> None:
    memory = Memory()
    world = World(
        Agent([SUBMISSION] * 2, SUBMITTED), [verification("broken"), verification("proved")], [patch(), patch(b"2")]
    )
    result = await solve(job(), replace(world.services(), learn=memory.learn, notes=("first",)), MemoryJournal())
    assert memory.heard == [("proved", "done")]
    assert result.notes == ("first", "1 lesson learned.")


async def test_no_lesson_is_learned_from_an_unpublished_change() -> None:
    memory = Memory()
    world = World(Agent([SUBMISSION] * 9, SUBMITTED), [verification("broken")] * 9, [patch()])
    result = await solve(job(), replace(world.services(), learn=memory.learn), MemoryJournal())
    assert (memory.heard, result.notes) == ([], ())


async def test_a_claim_without_a_verification_is_an_error() -> None:
    result = await work(World(Agent([], SUBMITTED), [], [patch()]))
    assert (result.exit_status, result.branch) == ("error", "")


async def test_giving_up_on_a_broken_change_ends_as_verification_failed() -> None:
    gives_up = RunnerEnding(exit_status="error", reason="went in a circle")
    result = await work(World(Agent([SUBMISSION], gives_up), [verification("broken")], [patch()]))
    assert (result.exit_status, result.reason) == ("verification_failed", "went in a circle")


async def test_unchanged_resubmission_is_accepted_without_a_new_run() -> None:
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


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        (Review(absent="no money.", short_of_money=True), ["review", "review.2"]),
        (Review(absent="its model does not answer."), ["review"]),
        (Review(nothing="It is right."), ["review"]),
    ],
)
async def test_a_reviewer_that_was_skipped_for_money_is_asked_at_the_next_submission(
    first: Review, asked: list[str]
) -> None:
    keys: list[str] = []

    async def ask(key: str, _patch: Patch, _known: Verification) -> Review:
        keys.append(key)
        return first if len(keys) == 1 else Review(nothing="It is right.")

    turns = Reproduction(command="c", on_base="red", on_head="green", ids=("t::test",))
    found = verification("unproved").model_copy(update={"review": None, "reproduction": turns})
    lost = found.model_copy(update={"suite": SuiteComparison(command="t", missing=("t::other",))})
    world = World(Agent([SUBMISSION, SUBMISSION], SUBMITTED), [lost, found], [patch(b"1"), patch(b"2")])
    world.ask_reviewer = ask
    await work(world)
    assert keys == asked


async def test_failed_reproduction_of_an_earlier_submission_is_kept() -> None:
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


async def test_job_pauses_at_a_limit() -> None:
    limited = RunnerEnding(exit_status="limit_reached", reason="100 steps")
    with pytest.raises(WaitingForUser) as parked:
        await work(World(Agent([], limited), [], [patch()]))
    assert (parked.value.state, parked.value.code) == ("paused", ExitCode.LIMIT_REACHED)


async def test_plan_only_job_opens_no_sandbox() -> None:
    result = await work(World(Agent([], SUBMITTED), [], []), plan_mode="only")
    assert (result.exit_status, result.plan, result.exit_code) == ("answered", PLAN, ExitCode.OK)


def _example(name: str, kind: Literal["shows", "keeps"], *, quoted: bool = True) -> JudgedExample:
    because = Because(quote="one cent is lost", source="issue")
    return JudgedExample(behaviour=name, because=because, kind=kind, run="python", program=name, quoted=quoted)


async def test_a_reproduction_ends_with_the_first_program_that_shows_the_issue_by_its_words() -> None:
    world = World(Agent([], SUBMITTED), [], [])
    world.found = PlanExamples(
        examples=(
            _example("unquoted", "shows", quoted=False),
            _example("quoted", "shows"),
            _example("third", "shows"),
            _example("k", "keeps"),
        )
    )
    result = await work(world, aim="reproduce", plan_mode="only")
    assert (result.exit_status, result.exit_code, result.summary) == ("reproduced", ExitCode.OK, PLAN.summary)
    assert result.examples is not None
    assert result.examples.best is not None
    assert result.examples.best.behaviour == "quoted"
    assert world.executed == 0
    assert not world.agent.assignments


@pytest.mark.parametrize(
    ("found", "tried"),
    [
        (PlanExamples(absent="the plan has none."), ()),
        (PlanExamples(examples=(_example("k", "keeps"),)), ()),
        (PlanExamples(refused=("A: it prints nothing",)), ("A: it prints nothing",)),
    ],
)
async def test_issue_that_no_program_shows_is_not_reproduced(found: PlanExamples, tried: tuple[str, ...]) -> None:
    world = World(Agent([], SUBMITTED), [], [])
    world.found = found
    asking = PLAN.model_copy(update={"questions": ("Which version?",)})
    world.plans = [asking]
    result = await work(world, aim="reproduce", plan_mode="only")
    assert (result.exit_status, result.exit_code) == ("not_reproduced", ExitCode.NOT_REPRODUCED)
    assert result.plan == asking, "its questions are shown; nobody waits for answers"
    assert result.examples is not None
    assert result.examples.why_not_shown == tried


async def test_an_issue_that_is_solved_is_not_reproduced_but_works_already() -> None:
    world = World(Agent([], SUBMITTED), [], [])
    world.found = PlanExamples(already=(_example("a", "shows"),))
    result = await work(world, aim="reproduce", plan_mode="only")
    assert (result.exit_status, result.exit_code) == ("already_works", ExitCode.ALREADY_WORKS)


async def test_a_plan_alone_says_nothing_of_what_works_already() -> None:
    world = World(Agent([], SUBMITTED), [], [])
    world.found = PlanExamples(already=(_example("a", "shows"),))
    assert (await work(world, plan_mode="only")).exit_status == "answered"


async def test_approval_comes_before_work() -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    with pytest.raises(WaitingForUser):
        await work(world, plan_mode="approve")
    assert world.executed == 0


async def test_a_resolved_merge_is_not_sent_back_for_a_reproduction() -> None:
    merged = Submission(summary="Both sides kept.")
    ending = RunnerEnding(exit_status="submitted", submission=merged)
    world = World(Agent([merged], ending), [verification("tested", "not_run", "not_run")], [patch()])
    result = await work(world, conflicts=("a",), plan_mode="none")
    assert result.exit_status == "pr_opened"
    assert world.agent.assignments[0].aim == "merge"


async def test_question_job_never_publishes() -> None:
    world = World(Agent([SUBMISSION], SUBMITTED), [verification("proved")], [patch()])
    with pytest.raises(ValueError, match="asks a question"):
        await work(world, aim="ask")
    assert not world.agent.assignments
    assert not world.published


def test_vanished_test_is_sent_back_once_even_if_no_red_is_expected() -> None:
    lost = Verification(verdict="unproved", suite=SuiteComparison(command="s", missing=("t",)))
    assert not is_acceptable(lost, [], was_requested=True)
    assert is_acceptable(lost, [VerifiedPatch(patch=patch(), verification=lost)], was_requested=True)


async def test_refactoring_is_accepted_without_a_reproduction() -> None:
    moved = Submission(summary="Moved.")
    ending = RunnerEnding(exit_status="submitted", submission=moved)
    world = World(Agent([moved], ending), [verification("tested", "not_run", "not_run")], [patch()])
    task = job().task.model_copy(update={"kind": "refactoring"})
    result = await work(world, task=task, plan_mode="none")
    assert result.exit_status == "pr_opened"
    assert world.agent.assignments[0].aim == "upkeep"


@pytest.mark.parametrize("status", ["error", "limit_reached"])
async def test_an_ending_names_what_the_last_submission_failed_by(status: RunnerStatus) -> None:
    ending = RunnerEnding(exit_status=status, reason="It was stuck in a loop.", turns=5)
    failed = verification("broken").model_copy(update={"reasons": ("Newly failing: tests.test_a.",)})
    world = World(Agent([SUBMISSION], ending), [failed], [patch()])
    seen: list[VerifiedPatch] = []
    services = replace(world.services(), verified=seen.append)
    if status == "limit_reached":
        with pytest.raises(WaitingForUser):
            await solve(job(), services, MemoryJournal())
    else:
        result = await solve(job(), services, MemoryJournal())
        assert result.reason.startswith("It was stuck in a loop. The last submission was broken: Newly failing: ")
    assert [each.verification.reasons for each in seen] == [failed.reasons]
