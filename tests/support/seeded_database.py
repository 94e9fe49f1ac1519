"""A server's database as it looks after a busy day: jobs in every state, with plans, logs, costs, messages, effects."""

import atexit
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from sqlalchemy.engine import Engine

from app.core.errors import AgentFixError
from app.core.job import Budget, JobResult, JobState
from app.core.plan import Plan, render_plan
from app.core.task import Issue, IssueRef
from app.github.base import ReactionTarget
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobQueries, JobStore
from app.jobs.tables import sqlite_engine
from app.jobs.trigger_log import JobMessages
from app.llm.base import Usage
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import AddReaction, ChangeLabels, Receipt, UpdateStatusComment
from app.publish.outbox import Outbox
from tests.support.clock import SettableClock
from tests.support.pull_requests import HEAD, verification
from tests.support.server_jobs import job, job_context, trigger

PLACES = (("octo-org", "invoices", 600), ("octo-org", "web-shop-frontend", 601), ("ada", "sample", 602))
PEOPLE = ("ada", "grace-hopper", "octocat", "linus", "margaret")
TITLES = (
    "Invoice totals are a cent too low",
    "Login page shows a blank screen on Safari 18 when third-party cookies are blocked",
    "Parser accepts trailing commas in strict mode",
    "Search results are not ordered by date",
    "TypeError: cannot read properties of undefined (reading 'map')",
    "Support `--json` in the export command",
    "Leap years are off by one in the calendar",
    "Upload of files > 2 GB never ends",
    "Deprecation warning: datetime.utcnow()",
    "Flaky test: test_retry_after_timeout",
)
PLAN = Plan(
    summary="Amounts are rounded per line with ROUND_HALF_EVEN; the total must be rounded once, half up.",
    candidate_files=("app/billing/invoice.py", "app/billing/rounding.py", "tests/test_rounding.py"),
    steps=(
        "Write a test that fails for 0.125 times 3.",
        "Move the rounding from `Line` to `Invoice.total`.",
        "Use ROUND_HALF_UP everywhere money is rounded.",
    ),
)
LOG = (
    ("state", "planning"),
    ("note", "set-up: pip install -e ."),
    ("plan", render_plan(PLAN)),
    ("state", "working"),
    ("step", "1  Look at where amounts are rounded."),
    ("command", "grep -rn quantize app/billing"),
    (
        "observation",
        "rounding.py:9:    return amount.quantize(CENT)\ninvoice.py:31:    return rounded(price)",
    ),
    ("step", "2  Write the test that fails."),
    ("command", "python -m unittest tests.test_rounding"),
    ("observation", "FAIL: test_half_cents_go_up\nAssertionError: Decimal('0.12') != Decimal('0.13')"),
    ("cost", "$0.08 of $5.00"),
    ("step", "3  Round once, in the total."),
    ("warning", "The test suite has 1 test that fails on the base already."),
    ("state", "verifying"),
    ("verification", "proved: The reproduction fails on the base and passes on the head."),
)
_STATES: tuple[JobState, ...] = (
    "working",
    "queued",
    "queued",
    "planning",
    "verifying",
    "publishing",
    "awaiting_approval",
    "needs_input",
    "paused",
    "pr_opened",
    "pr_opened",
    "pr_updated",
    "answered",
    "no_change",
    "verification_failed",
    "limit_reached",
    "stopped",
    "no_access",
    "error",
    "pr_opened",
    "pr_opened",
    "pr_updated",
    "pr_opened",
)
_REASONS: dict[str, str] = {
    "awaiting_approval": "The plan is waiting for approval.",
    "needs_input": "The plan needs an answer first.",
    "paused": "The next model call could cost $0.31. Of the budget of $5.00, $4.86 is spent, and $0.14 is left.",
    "verification_failed": "2 tests newly fail: tests.test_dates.Leap.test_century and ….test_2100.",
    "limit_reached": "The job used all of its 100 turns.",
    "stopped": "It was stopped.",
    "no_access": "The repository was archived.",
    "error": "Its process died 3 times at the same step; the job was given up.",
}


def seeded(place: Path, now: datetime | None = None) -> Path:
    """A SQLite database in `place` with some two dozen jobs; ids are `seed00`, `seed01`, … in the order of time."""
    return Path(shutil.copy(_made_once(now or datetime.now(UTC)), place / "agent-fix.db"))


@cache
def _made_once(now: datetime) -> Path:
    path = Path(tempfile.mkdtemp(prefix="agent-fix-seed-")) / "agent-fix.db"
    atexit.register(shutil.rmtree, path.parent)
    engine = sqlite_engine(path, synced=False)
    prepare_tables(engine)
    SeededDay(engine, now).pass_by()
    engine.dispose()
    return path


class SeededDay:
    """Everything that happened, told in order."""

    def __init__(self, engine: Engine, end: datetime) -> None:
        self.clock = SettableClock(end)
        self.end = end
        self.engine = engine
        self.queue = JobQueue(engine, self.clock)
        self.store = JobStore(engine, self.clock)
        self.messages = JobMessages(engine, self.clock)
        self.outbox = Outbox(engine, self.clock)

    def pass_by(self) -> None:
        count = len(_STATES)
        for number in range(count):
            state = _STATES[count - 1 - number]
            fresh = state in {"working", "queued", "planning", "verifying", "publishing"}
            minutes = 2 + 3 * (count - number) if fresh else 20 + 41 * (count - number)
            self.clock.now = self.end - timedelta(minutes=minutes)
            self.one(number, state)
        self.clock.now = self.end
        for listed in JobQueries(self.engine, self.clock).without_base_commit():
            JobQueries(self.engine, self.clock).mark_ready(listed.job.id)

    def one(self, number: int, state: JobState) -> None:
        owner, name, repository = PLACES[number % len(PLACES)]
        where = IssueRef(installation=1, repository=repository, owner=owner, name=name, number=100 + number)
        title = TITLES[number % len(TITLES)]
        made = job(f"seed{number:02}", where, model="anthropic/claude-sonnet-4-5", created_at=self.clock.now)
        task = made.task.model_copy(update={"issue": Issue(title=title, body="…", number=where.number)})
        runner = "codex" if number == 12 else "native"
        made = made.model_copy(update={"task": task, "budget": Budget(usd=5_000_000), "runner": runner})
        aim = {"answered": "ask", "pr_updated": "follow_up"}.get(state, "fix")
        wanted = job_context(where, login=PEOPLE[number % len(PEOPLE)], aim=aim)
        self.queue.admit(made, wanted, trigger(f"seed/{number}", where), ready=state != "queued")
        if state == "queued":
            return
        claim = self.queue.claim("host:1:1", QueueLimits(jobs=100, per_repository=100), lease=timedelta(minutes=90))
        assert claim is not None
        self.works(made.id, number, state)
        self.tells(made.id, claim.epoch, where, state)
        if state in {"working", "planning", "verifying", "publishing"}:
            self.store.enter(made.id, state)
            return
        self.store.finish(made.id, state, _REASONS.get(state, ""), self.result(state).model_dump(mode="json"))
        self.queue.release(claim)

    def works(self, name: str, number: int, state: JobState) -> None:
        ledger = SqlLedger(self.engine, name, 5_000_000, clock=self.clock.now.timestamp)
        for call in range(3 + number):
            cost = 4_860_000 if state == "paused" and not call else 21_000 + 1_700 * call
            ledger.reserve(f"turn-{call}", cost)
            usage = Usage(
                prompt_tokens=9_000 + 700 * call, cached_tokens=7_100 + 600 * call, completion_tokens=420, cost=cost
            )
            ledger.book(f"turn-{call}", usage, "…")
            if state == "paused":
                break
        for kind, text in LOG[: 3 if state == "planning" else len(LOG)]:
            self.clock.now += timedelta(seconds=11)
            self.store.add_progress(name, kind, text)  # type: ignore[arg-type]  # plain words
        if state in {"working", "needs_input"}:
            self.messages.add(
                name, "steer", key=f"{name}/1", who="ada", text="Keep the public signature of `total()`, please."
            )

    def tells(self, name: str, epoch: int, where: IssueRef, state: JobState) -> None:
        self.outbox.add(
            name, epoch, where, AddReaction(target=ReactionTarget(kind="issue", id=where.number), content="eyes")
        )
        self.outbox.add(name, epoch, where, UpdateStatusComment(body="It works."))
        if state == "error":
            self.outbox.add(name, epoch, where, ChangeLabels(add=("agent-needs-human",)))
        while (claim := self.outbox.claim("publisher")) is not None:
            page = f"https://github.com/{claim.issue_ref.owner}/{claim.issue_ref.name}/issues/{claim.issue_ref.number}"
            if isinstance(claim.effect, ChangeLabels):
                self.outbox.failed(claim, AgentFixError("The App may not write issues here any more."))
            else:
                self.outbox.done(claim, Receipt(url=page))

    def result(self, state: JobState) -> JobResult:
        opened = state in {"pr_opened", "pr_updated"}
        proof = verification() if opened else None
        if state == "verification_failed":
            proof = verification(verdict="broken", reasons=("2 tests newly fail.",))
        return JobResult(
            exit_status=state,
            plan=PLAN,
            verification=proof,
            commit=HEAD if opened else "",
            turns=14,
            seconds=431.0,
            url="https://github.com/octo-org/invoices/pull/77" if opened else "",
        )
