"""Makes independent attempts at one job until one is proved; each has its own tree, history and steps.

They share plan, baseline and budget. Each but the last gets a fair share of what is left; the verification decides
which one is chosen. The first attempt has the same steps as a job with a single attempt.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.agent.base import ModelPort, Runner, Submission
from app.core.errors import AgentFixError, ExitCode
from app.core.job import AttemptSummary, Budget, Job, JobResult, JobState, Journal, N
from app.core.model_usage import DOLLAR, MicroUSD
from app.core.record import Record
from app.core.verification import Verdict, VerifiedPatch
from app.llm.base import ModelAnswer, ModelInfo, ModelRequest
from app.llm.ledger import SHARE_USED_UP, Ledger
from app.verify.verdict import BEYOND_THE_FIXER


class ShareSpentError(AgentFixError):
    """An attempt has used its share; it stays ended, even if the job's budget is raised later."""


class AttemptBudget(Record):
    """The budget of one attempt. `until` is the job's spending at which it ends; 0 if only the job's own limit
    counts."""

    budget: Budget
    until: MicroUSD = 0


class SpentSoFar(Record):
    """What an attempt has used, according to its own steps."""

    turns: int = 0
    seconds: float = 0.0
    cost: MicroUSD = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to be made."""

    number: int
    journal: Journal
    attempt_budget: AttemptBudget
    pauses_at_limit: bool = True
    """True if the job pauses at a limit, because no other attempt can be used."""
    submissions: int = 0
    """How many submissions were verified in earlier attempts."""

    @property
    def prefix(self) -> str:
        return prefix_of(self.number)

    @property
    def name(self) -> str:
        """The name of its tree."""
        return "work" if self.number == 1 else f"work.{self.number}"

    def model_for(self, budgeted_model: ModelPort, ledger: Ledger) -> ModelPort:
        """The same model, with answers stored under this attempt's names; `ledger` is the job's."""
        if not self.prefix and not self.attempt_budget.until:
            return budgeted_model
        return _AttemptModel(budgeted_model, self.prefix, self.attempt_budget.until, ledger)


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How an attempt ended. `verified` are the facts of all its submissions, in order; the last ones are its result."""

    number: int
    result: JobResult
    verified: tuple[VerifiedPatch, ...] = ()
    submission: Submission | None = None
    spent: SpentSoFar = field(default_factory=SpentSoFar)
    changed_lines: int = 0

    @property
    def verdict(self) -> Verdict | None:
        return self.result.verification.verdict if self.result.verification else None

    @property
    def is_best(self) -> bool:
        """True if no other attempt could be better: proved, or not proved for a reason that no fixer can change."""
        verification = self.result.verification
        if verification is None or verification.verdict != "tested":
            return self.verdict == "proved"
        return bool(verification.rules) and BEYOND_THE_FIXER.issuperset(verification.rules)

    @property
    def is_publishable(self) -> bool:
        return self.result.exit_status == "pr_opened" and bool(self.verified)


AttemptWork = Callable[[Attempt], Awaitable[AttemptOutcome]]


async def try_until_proved(
    job: Job, journal: Journal, work: AttemptWork, spent: Callable[[], MicroUSD]
) -> tuple[AttemptOutcome, ...]:
    """The attempts in order: all requested, or up to the first that is proved.

    Raises what stops an attempt, so that the job can be resumed, unless an earlier attempt can be published.
    """
    outcomes: list[AttemptOutcome] = []
    for number in range(1, job.attempts + 1):
        attempt_budget = await _budget_for(job, journal, number, outcomes, spent)
        fallback = any(outcome.is_publishable for outcome in outcomes)
        scope = journal if job.attempts == 1 else AttemptJournal(journal, prefix_of(number), fallback=fallback)
        try:
            pauses_at_limit = number == job.attempts and not fallback
            submissions = sum(len(each.verified) for each in outcomes)
            outcome = await work(
                Attempt(number, scope, attempt_budget, pauses_at_limit=pauses_at_limit, submissions=submissions)
            )
        except AgentFixError as error:
            if not (error.final and fallback):
                raise
            outcomes.append(_failed_attempt(number, error))
            break  # what stops this one stops the others too
        journal.on_resume(_restore_nothing)  # its tree is gone, and nothing later depends on it
        outcomes.append(outcome)
        if outcome.is_publishable and outcome.is_best:
            break
    return tuple(outcomes)


def best(outcomes: Sequence[AttemptOutcome]) -> AttemptOutcome:
    """Compares the verdict, new failures, a reproduction that turned green, and the size of the change."""
    return min(outcomes, key=_rank)


def attempt_summaries(outcomes: Sequence[AttemptOutcome], chosen: AttemptOutcome) -> tuple[AttemptSummary, ...]:
    """The summary of each attempt for people."""
    return tuple(
        AttemptSummary(
            number=each.number,
            exit_status=each.result.exit_status,
            verdict=each.verdict,
            reason=each.result.reason,
            changed_lines=each.changed_lines,
            turns=each.spent.turns,
            cost=each.spent.cost,
            taken=each is chosen,
        )
        for each in outcomes
    )


def spent_in(trajectory: Iterable[str]) -> SpentSoFar:
    """What a trajectory's steps used; a line without figures counts as a turn."""
    turns, seconds, cost = 0, 0.0, 0.0
    for line in trajectory:
        entry = json.loads(line)
        turns += 1
        seconds += sum(entry.get("seconds", {}).values())
        cost += entry.get("usage", {}).get("cost", 0.0)
    return SpentSoFar(turns=turns, seconds=round(seconds, 3), cost=round(cost * DOLLAR))


def trajectory_of(runners: Sequence[Runner]) -> list[str]:
    """The JSON lines of all attempts, one after the other; with several, each line names its attempt."""
    if len(runners) < 2:
        return [line for runner in runners for line in runner.trajectory()]
    numbered = ((number, line) for number, runner in enumerate(runners, 1) for line in runner.trajectory())
    return [json.dumps({"attempt": number, **json.loads(line)}, ensure_ascii=False) for number, line in numbered]


def prefix_of(number: int) -> str:
    return "" if number == 1 else f"attempt.{number}."


class AttemptJournal:
    """The job's journal with names for this attempt.

    With a `fallback`, running out of money ends this attempt for good instead of waiting for more.
    """

    def __init__(self, journal: Journal, prefix: str, *, fallback: bool) -> None:
        self._journal = journal
        self._prefix = prefix
        self._fallback = fallback

    def on_resume(self, restore: Callable[[], Awaitable[None]]) -> None:
        self._journal.on_resume(restore)

    async def step(self, name: str, kind: type[N], work: Callable[[], Awaitable[N]]) -> N:
        return await self._journal.step(f"{self._prefix}{name}", kind, partial(self._carry_out, work))

    async def _carry_out(self, work: Callable[[], Awaitable[N]]) -> N:
        try:
            return await work()
        except AgentFixError as error:
            if self._fallback and not error.final and error.code == ExitCode.LIMIT_REACHED:
                raise ShareSpentError(error.message, code=ExitCode.LIMIT_REACHED) from error
            raise


class _AttemptModel:
    """A budgeted model under other names, up to an amount."""

    def __init__(self, budgeted_model: ModelPort, prefix: str, until: MicroUSD, ledger: Ledger) -> None:
        self._budgeted_model = budgeted_model
        self._prefix = prefix
        self._until = until
        self._ledger = ledger

    @property
    def info(self) -> ModelInfo:
        return self._budgeted_model.info

    async def ask(self, key: str, request: ModelRequest) -> ModelAnswer:
        key = f"{self._prefix}{key}"
        if self._until and await asyncio.to_thread(self._nothing_left, key):
            raise ShareSpentError(SHARE_USED_UP, code=ExitCode.LIMIT_REACHED)
        return await self._budgeted_model.ask(key, request)

    def _nothing_left(self, key: str) -> bool:
        """True if the share is used, unless the answer was bought before a process died. Blocking."""
        return self._ledger.spent() >= self._until and not self._ledger.stored_answer(key)


async def _restore_nothing() -> None:
    """To be done before the next step."""


async def _budget_for(
    job: Job, journal: Journal, number: int, outcomes: Sequence[AttemptOutcome], spent: Callable[[], MicroUSD]
) -> AttemptBudget:
    """A fair, stored share: money added later goes to the last attempt."""
    used = SpentSoFar(
        turns=sum(each.spent.turns for each in outcomes), seconds=sum(each.spent.seconds for each in outcomes)
    )
    if number == job.attempts:
        return AttemptBudget(budget=_remaining_share(job.budget, used, 1))

    async def share() -> AttemptBudget:
        attempts = job.attempts - number + 1
        budget, so_far = _remaining_share(job.budget, used, attempts), await asyncio.to_thread(spent)
        money = max(job.budget.usd - so_far, 0) // attempts
        return AttemptBudget(budget=budget.model_copy(update={"usd": money}), until=so_far + money)

    return await journal.step(f"attempt.{number}.share", AttemptBudget, share)


def _remaining_share(budget: Budget, used: SpentSoFar, attempts: int) -> Budget:
    """The share of the remaining turns and minutes for each of the remaining attempts; at least something."""
    if not used.turns and attempts == 1:
        return budget
    minutes = max(budget.minutes - used.seconds / 60, 0.1) / attempts
    return budget.model_copy(update={"minutes": minutes, "steps": max((budget.steps - used.turns) // attempts, 1)})


def _failed_attempt(number: int, error: AgentFixError) -> AttemptOutcome:
    state: JobState = "limit_reached" if error.code == ExitCode.LIMIT_REACHED else "error"
    result = JobResult(exit_status=state, reason=error.message, hint=error.hint, error_code=error.code)
    return AttemptOutcome(number, result)


_VERDICTS: dict[Verdict | None, int] = {"proved": 0, "tested": 1, "unproved": 2, "broken": 3, None: 4}
_STATES = ("pr_opened", "no_change", "verification_failed", "limit_reached", "error")


def _rank(outcome: AttemptOutcome) -> tuple[int, int, int, bool, int, int]:
    """Smaller is better; the number makes the order unique."""
    verification = outcome.result.verification
    reproduction = verification.reproduction if verification else None
    turned_green = reproduction is not None and (reproduction.on_base, reproduction.on_head) == ("red", "green")
    failing = len(verification.suite.newly_failing) if verification and verification.suite else 0
    state = outcome.result.exit_status
    position = _STATES.index(state) if state in _STATES else len(_STATES)
    return position, _VERDICTS[outcome.verdict], failing, not turned_green, outcome.changed_lines, outcome.number
