"""Several attempts: what each may use, when no more are made, which one is taken, and what survives a crash."""

import json
from dataclasses import dataclass, field, replace

import pytest

from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget, Job, JobResult, JobState, WaitingForUser
from app.core.patch import Patch
from app.core.verification import FailureReason, Reproduction, SuiteComparison, Verdict, Verification, VerifiedPatch
from app.llm.base import Message, ModelAnswer, ModelRequest, Usage
from app.llm.errors import BudgetError, ModelError
from app.pipeline.attempts import (
    Attempt,
    AttemptBudget,
    AttemptJournal,
    AttemptOutcome,
    ShareSpentError,
    SpentSoFar,
    attempt_summaries,
    best,
    spent_in,
    trajectory_of,
    try_until_proved,
)
from app.publish.pull_request_text import attempts_section, describe_attempts
from tests.support.agent_harness import UnbudgetedModel
from tests.support.memory_journal import Died, MemoryJournal
from tests.support.memory_ledger import MemoryLedger
from tests.support.scripted_job import BASE
from tests.support.scripted_job import job as a_job
from tests.support.scripted_model import ScriptedModel


def outcome(
    number: int,
    verdict: Verdict | None = None,
    state: JobState = "pr_opened",
    *,
    base: FailureReason = "red",
    failing: tuple[str, ...] = (),
    lines: int = 5,
    spent: SpentSoFar | None = None,
) -> AttemptOutcome:
    if verdict is None:
        return AttemptOutcome(number, JobResult(exit_status=state), spent=spent or SpentSoFar(turns=10, seconds=600))
    shown = Reproduction(command="c", on_base=base, on_head="green")
    facts = Verification(verdict=verdict, reproduction=shown, suite=SuiteComparison(command="s", newly_failing=failing))
    verified = (VerifiedPatch(patch=Patch(base=BASE), verification=facts),)
    result = JobResult(exit_status=state, verification=facts)
    return AttemptOutcome(
        number, result, verified, changed_lines=lines, spent=spent or SpentSoFar(turns=10, seconds=600)
    )


BETTER = [
    (outcome(2, "proved", lines=900), outcome(1, "tested", lines=1)),
    (outcome(2, "tested"), outcome(1, "unproved")),
    (outcome(2, "unproved"), outcome(1, state="no_change")),
    (outcome(2, "unproved"), outcome(1, "broken", "verification_failed")),
    (outcome(2, state="no_change"), outcome(1, "broken", "verification_failed")),
    (outcome(2, "tested"), outcome(1, "proved", "error")),
    (outcome(2, "broken", "verification_failed"), outcome(1, state="error")),
    (
        outcome(2, "broken", "verification_failed", lines=9),
        outcome(1, "broken", "verification_failed", failing=("t",)),
    ),
    (
        outcome(2, "broken", "verification_failed", failing=("t",)),
        outcome(1, "broken", "verification_failed", failing=("t", "u")),
    ),
    (outcome(2, "tested", lines=9), outcome(1, "tested", base="green", lines=1)),
    (outcome(2, "proved", lines=4), outcome(1, "proved", lines=5)),
    (outcome(1, "proved"), outcome(2, "proved")),
]


@pytest.mark.parametrize(("better", "worse"), BETTER)
def test_best_attempt_is_chosen_by_its_verification(better: AttemptOutcome, worse: AttemptOutcome) -> None:
    assert best([better, worse]) is better
    assert best([worse, better]) is better


@dataclass
class Site:
    """Attempts that end as they are told to."""

    ends: list[AttemptOutcome | Exception]
    job: Job = field(default_factory=lambda: a_job(attempts=3))
    money: int = 1_000_000
    made: list[Attempt] = field(default_factory=list)

    async def work(self, attempt: Attempt) -> AttemptOutcome:
        self.made.append(attempt)
        end = self.ends[attempt.number - 1]
        await attempt.journal.step("turn.1.act", JobResult, self.step)
        if isinstance(end, Exception):
            raise end
        return end

    async def step(self) -> JobResult:
        return JobResult(exit_status="working")

    async def run(self, journal: MemoryJournal | None = None) -> tuple[AttemptOutcome, ...]:
        return await try_until_proved(self.job, journal or MemoryJournal(), self.work, lambda: self.money)

    @property
    def numbers(self) -> list[int]:
        return [attempt.number for attempt in self.made]


async def test_no_further_attempt_after_a_proved_one() -> None:
    site = Site([outcome(1, "tested"), outcome(2, "proved"), outcome(3, "proved")])
    assert [each.verdict for each in await site.run()] == ["tested", "proved"]
    assert site.numbers == [1, 2]


async def test_no_further_attempt_when_no_better_verdict_is_possible() -> None:
    for rule, made in (("no_reviewer", [1]), ("existing_tests_changed", [1, 2, 3])):
        first = outcome(1, "tested")
        assert first.result.verification is not None
        facts = first.result.verification.model_copy(update={"rules": (rule,)})
        first = replace(first, result=first.result.model_copy(update={"verification": facts}))
        site = Site([first, outcome(2, "tested"), outcome(3, "tested")])
        await site.run()
        assert site.numbers == made


async def test_all_attempts_are_made_while_none_is_proved() -> None:
    site = Site([outcome(1, "tested"), outcome(2, state="error"), outcome(3, "unproved")])
    assert best(await site.run()).number == 1
    assert site.numbers == [1, 2, 3]


async def test_proved_but_unpublishable_attempt_is_followed_by_another() -> None:
    site = Site([outcome(1, "proved", "error"), outcome(2, "proved"), outcome(3, "proved")])
    assert best(await site.run()).number == 2


async def test_attempts_share_the_remaining_budget_equally() -> None:
    ends = [outcome(number, "tested", spent=SpentSoFar(turns=20, seconds=600)) for number in (1, 2, 3)]
    site = Site(list(ends), a_job(attempts=3, budget=Budget(usd=4_000_000, minutes=60, steps=90)))
    await site.run()
    shares = [attempt.attempt_budget for attempt in site.made]
    assert [(share.budget.steps, share.budget.minutes) for share in shares] == [(30, 20), (35, 25), (50, 40)]
    assert [share.until for share in shares] == [2_000_000, 2_500_000, 0]


async def test_single_attempt_gets_the_whole_budget_and_plain_step_names() -> None:
    journal = MemoryJournal()
    site = Site([outcome(1, "tested")], a_job())
    await site.run(journal)
    assert site.made[0].attempt_budget == AttemptBudget(budget=Budget())
    assert site.made[0].journal is journal
    assert journal.executed == ["turn.1.act"]


async def test_later_attempts_have_their_own_step_names() -> None:
    journal = MemoryJournal()
    await Site([outcome(1, "tested"), outcome(2, "tested"), outcome(3, "tested")]).run(journal)
    assert journal.executed == [
        "attempt.1.share",
        "turn.1.act",
        "attempt.2.share",
        "attempt.2.turn.1.act",
        "attempt.3.turn.1.act",
    ]


async def test_share_of_an_attempt_does_not_grow_with_the_budget() -> None:
    site = Site([outcome(1, "tested"), outcome(2, "tested"), outcome(3, "tested")])
    journal = MemoryJournal(die_at="attempt.2.turn.1.act")
    with pytest.raises(Died):
        await site.run(journal)
    richer = Site(site.ends, site.job.model_copy(update={"budget": Budget(usd=90_000_000)}), money=70_000_000)
    resumed = journal.resumed()
    await richer.run(resumed)
    assert [each.attempt_budget for each in richer.made[:2]] == [each.attempt_budget for each in site.made[:2]]
    assert richer.made[2].attempt_budget.budget.usd == 90_000_000
    assert resumed.executed == ["attempt.2.turn.1.act", "attempt.3.turn.1.act"]


async def test_tree_of_an_ended_attempt_is_not_restored() -> None:
    journal = MemoryJournal(is_resumed=True)
    site = Site([outcome(1, "tested"), outcome(2, "proved")], a_job(attempts=2))

    async def gone() -> None:
        raise AssertionError("its sandbox is gone")

    async def work(attempt: Attempt) -> AttemptOutcome:
        if attempt.number == 1:
            attempt.journal.on_resume(gone)
            return outcome(1, "tested")
        return await site.work(attempt)

    kept = await journal.step("attempt.1.share", AttemptBudget, share_of)
    assert kept.until == 0
    again = journal.resumed()
    assert len(await try_until_proved(site.job, again, work, lambda: 0)) == 2


async def share_of() -> AttemptBudget:
    return AttemptBudget(budget=Budget())


# ends that are none


@pytest.mark.parametrize(
    "error",
    [
        AgentFixError("Refused for good.", code=ExitCode.MODEL),
        WaitingForUser("paused", "100 steps", code=ExitCode.LIMIT_REACHED),
        BudgetError("No money."),
    ],
)
async def test_error_of_the_first_attempt_ends_the_job(error: AgentFixError) -> None:
    with pytest.raises(type(error)):
        await Site([error]).run()


async def test_permanent_error_of_a_later_attempt_keeps_the_earlier_one() -> None:
    site = Site([outcome(1, "tested"), AgentFixError("Refused for good.", code=ExitCode.MODEL)])
    found = await site.run()
    assert best(found).number == 1
    assert found[1].result.reason == "Refused for good."
    assert site.numbers == [1, 2], "what keeps one from its end keeps others from theirs"


async def test_a_temporary_error_is_waited_for() -> None:
    down = ModelError("Down.", kind="retry", reason="unreachable")
    with pytest.raises(ModelError):
        await Site([outcome(1, "tested"), down]).run()


async def test_only_the_last_attempt_pauses_at_a_limit_if_none_is_publishable() -> None:
    site = Site([outcome(1, state="error"), outcome(2, state="error"), outcome(3, state="error")])
    await site.run()
    assert [attempt.pauses_at_limit for attempt in site.made] == [False, False, True]
    site = Site([outcome(1, "tested"), outcome(2, state="error"), outcome(3, state="error")])
    await site.run()
    assert [attempt.pauses_at_limit for attempt in site.made] == [False, False, False]


async def no_money() -> JobResult:
    raise BudgetError("The next call could cost too much.")


@pytest.mark.parametrize(("fallback", "kept"), [(True, True), (False, False)])
async def test_spent_budget_ends_the_attempts_if_one_is_publishable(fallback: bool, kept: bool) -> None:
    inner = MemoryJournal()
    journal = AttemptJournal(inner, "attempt.2.", fallback=fallback)
    with pytest.raises(AgentFixError) as caught:
        await journal.step("turn.1.answer", JobResult, no_money)
    assert isinstance(caught.value, ShareSpentError if kept else BudgetError)
    assert ("attempt.2.turn.1.answer" in inner.kept) is kept
    if kept:
        with pytest.raises(ShareSpentError):
            await AttemptJournal(inner.resumed(), "attempt.2.", fallback=True).step(
                "turn.1.answer", JobResult, no_money
            )


# the model


REQUEST = ModelRequest(messages=(Message(role="user", content="?"),))


def asking(number: int, until: int) -> tuple[ScriptedModel, Attempt]:
    return ScriptedModel([ModelAnswer(content="1"), ModelAnswer(content="2")]), Attempt(
        number, MemoryJournal(), AttemptBudget(budget=Budget(), until=until)
    )


async def test_model_calls_are_named_per_attempt_and_end_with_its_share() -> None:
    ledger = MemoryLedger(1_000)
    model, attempt = asking(2, 100)
    asks = attempt.model_for(UnbudgetedModel(model), ledger)
    assert (await asks.ask("turn.1", REQUEST)).content == "1"
    assert model.keys == ["attempt.2.turn.1"]
    spend(ledger, "attempt.2.turn.1", 100)
    with pytest.raises(ShareSpentError):
        await asks.ask("turn.2", REQUEST)


async def test_answer_bought_with_the_rest_of_a_share_is_used_after_a_crash() -> None:
    ledger, (model, attempt) = MemoryLedger(1_000), asking(2, 100)
    spend(ledger, "attempt.2.turn.1", 100, answer="{}")
    assert (await attempt.model_for(UnbudgetedModel(model), ledger).ask("turn.1", REQUEST)).content == "1"


def spend(ledger: MemoryLedger, call: str, cost: int, answer: str = "") -> None:
    ledger.reserve(call, cost)
    ledger.book(call, Usage(cost=cost), answer)


def test_single_attempt_uses_the_job_model_directly() -> None:
    model, attempt = asking(1, 0)
    budgeted_model = UnbudgetedModel(model)
    assert attempt.model_for(budgeted_model, MemoryLedger(0)) is budgeted_model


# what is told


LINE = {"step": 1, "seconds": {"model": 1.5, "actions": 0.5}, "usage": {"cost": 0.25}}


@dataclass
class RecordedRun:
    lines: list[str]
    name: str = "ran"

    async def work(self, *_: object) -> object:
        raise AssertionError("it has worked")

    def last_change(self) -> Patch:
        raise AssertionError("nobody asks")

    def trajectory(self) -> list[str]:
        return self.lines


def test_usage_of_an_attempt_is_summed_over_its_steps() -> None:
    line = json.dumps(LINE)
    assert spent_in([line, line, "{}"]) == SpentSoFar(turns=3, seconds=4.0, cost=500_000)


def test_trajectory_lines_name_their_attempt_if_there_are_several() -> None:
    one, two = RecordedRun(['{"step": 1}']), RecordedRun(['{"step": 1}', '{"step": 2}'])
    assert trajectory_of([one]) == ['{"step": 1}']  # type: ignore[list-item]  # a runner that has run
    lines = trajectory_of([one, two])  # type: ignore[list-item]
    assert [json.loads(line) for line in lines] == [
        {"attempt": 1, "step": 1},
        {"attempt": 2, "step": 1},
        {"attempt": 2, "step": 2},
    ]


def test_attempts_section_describes_each_attempt_and_the_choice() -> None:
    outcomes = [outcome(1, "tested"), outcome(2, state="error"), outcome(3, "unproved")]
    tried = attempt_summaries(outcomes, outcomes[0])
    text = attempts_section(tried, 3)
    assert text.startswith("3 attempts of 3 requested, each in its own tree")
    assert "Attempt 1 was chosen by its verification" in text
    assert "| 1 (taken) | tested | 5 | 10 turns |" in text
    assert "| 2 | failed |" in text
    assert describe_attempts(tried[0]) == "tested, 5 changed lines, taken: "
    assert describe_attempts(tried[1]).startswith("failed: ")
    assert attempts_section((), 1) == attempts_section(tried, 1) == ""
