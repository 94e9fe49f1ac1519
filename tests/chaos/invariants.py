"""What must be true whatever died and when: ten invariants, looked for in GitHub, in the rows and on the machine."""

from collections import Counter, defaultdict
from itertools import pairwise

import sqlalchemy as sa

from app.core.job import FINAL, JobResult, JobState
from app.github.base import has_marker
from app.jobs.store import JobWithContext
from app.jobs.tables import deliveries, effects, receipts
from app.llm.sql_ledger import calls
from app.publish.effects import Receipt
from tests.chaos.server import CALLS, MENDED, PRICE, ChaosServer, IssueUnderTest
from tests.support.github.authentication import app_key
from tests.support.repositories import git
from tests.support.sample_project import ODD
from tests.support.server_process import SECRET

OURS = "agent-fix/"
OPENED: tuple[JobState, ...] = ("pr_opened",)


def assert_sound(server: ChaosServer, *, states: tuple[JobState, ...] = OPENED, lost_calls: int = 0) -> None:
    """Every job came to one of these states, and I1 to I10 hold. So many model calls may have been lost."""
    found = server.jobs()
    account = server.account()
    assert found, "nothing was begun"
    for each in found:
        assert each.row.state in states, f"{each.job.id} is {each.row.state}\n{account}"
    for spot in server.spots:
        _assert_once(server, spot, [each for each in found if _is_at(each, spot)])
    _assert_pushes(server)
    _assert_pace(server)
    _assert_no_secret(server)
    _assert_nothing_undone(server)
    _assert_spent_once(server, lost_calls)
    _assert_tokens_of_one_repository(server)
    assert_nothing_left(server)


def _is_at(each: JobWithContext, spot: IssueUnderTest) -> bool:
    place = each.job_context.issue_ref
    return (place.repository, place.number) == (spot.repo.id, spot.issue.number)


def _assert_once(server: ChaosServer, spot: IssueUnderTest, found: list[JobWithContext]) -> None:
    """I1: one job, one branch, one open draft, one status comment, one check, labels and reactions of one end. I9."""
    assert len(found) <= 1, f"{len(found)} jobs on one issue"
    bot = server.github.fake_github.world.bot
    comments = [spot.repo.comments[number] for number in spot.issue.comments]
    for each in found:
        told = [comment for comment in comments if comment.user.id == bot.id and has_marker(comment.body, each.job.id)]
        assert len(told) == 1, f"{len(told)} status comments of {each.job.id}"
        branches = [name for name in spot.repo.branches if name == each.job.branch]
        pulls = [pull for pull in spot.repo.pulls if pull.pull and pull.pull.head == each.job.branch]
        opened = each.row.state == "pr_opened"
        assert (len(branches), len(pulls)) == (opened, opened), f"{each.row.state}: {branches}, {len(pulls)} drafts"
        assert each.job_context.target is not None
        target = each.job_context.target.id
        reactions = Counter(content for _, number, _, content in spot.repo.reactions if number == target)
        assert reactions["eyes"] == 1, reactions
        assert max(reactions.values()) == 1, reactions
        ours = [name for name in spot.issue.labels if name.startswith(("agent-", "agent-fix"))]
        assert len(ours) <= 1, ours
        if opened:
            _assert_as_verified(spot, each)
            assert ours == ["agent-done"], ours
            assert told[0].body.startswith("### 🚀"), told[0].body[:80]
            assert reactions == Counter({"eyes": 1, "rocket": 1})


def _assert_as_verified(spot: IssueUnderTest, each: JobWithContext) -> None:
    """I9: what stands on the branch is the commit that was verified, and that changes what was to be changed."""
    result = JobResult.model_validate(each.row.result)
    head = spot.repo.branches[each.job.branch]
    assert head == result.commit
    assert git(spot.repo.path, "show", f"{head}:money.py") == MENDED.strip()
    assert git(spot.repo.path, "show", f"{head}:test_money.py").endswith(ODD.rstrip())
    assert git(spot.repo.path, "rev-parse", f"{head}^") == each.job.task.base
    checks = [check for check in spot.repo.checks if check.head_sha == head]
    assert [check.conclusion for check in checks] == ["success"]
    (draft,) = [pull for pull in spot.repo.pulls if pull.pull and pull.pull.head == each.job.branch]
    assert draft.pull is not None
    assert draft.pull.draft, "always a draft"


def _assert_pushes(server: ChaosServer) -> None:
    """I2: no branch but ours was ever pushed to; and none twice."""
    for repo in {spot.repo.id: spot.repo for spot in server.spots}.values():
        refs = [line.split()[2] for line in repo.pushes]
        assert all(ref.startswith(f"refs/heads/{OURS}") for ref in refs), refs
        assert len(refs) == len(set(refs)), f"pushed more than once: {refs}"


def _assert_pace(server: ChaosServer) -> None:
    """I3: a second between two mutations of one installation, as one process sends them (a new one knows no last)."""
    by_installation: dict[int, list[float]] = defaultdict(list)
    for call in server.github.fake_github.github.mutations():
        if call.token is not None:
            by_installation[call.token.installation].append(call.at)
    for moments in by_installation.values():
        hurried = sum(later - earlier < 0.9 for earlier, later in pairwise(moments))
        assert hurried <= server.deaths.count("publisher"), f"{hurried} mutations came too soon"


def _assert_no_secret(server: ChaosServer) -> None:
    """I4: neither key nor webhook secret was sent anywhere, or is in a log."""
    sent = str([call.body for call in server.github.fake_github.github.calls]) + server.server.log.read_text(
        errors="replace"
    )
    assert SECRET not in sent
    assert app_key()[0].splitlines()[1] not in sent


def _assert_nothing_undone(server: ChaosServer) -> None:
    """I5: every delivery is processed, every effect is carried out with a receipt, and every job is final."""
    assert all(each.row.state in FINAL for each in server.jobs())
    with server.server.server_context.engine.connect() as db:
        assert set(db.execute(sa.select(deliveries.c.state)).scalars()) <= {"done"}
        assert set(db.execute(sa.select(effects.c.state)).scalars()) <= {"done", "withdrawn"}
        done = set(db.execute(sa.select(effects.c.key).where(effects.c.state == "done")).scalars())
        kept = {row.key: row.receipt for row in db.execute(sa.select(receipts.c.key, receipts.c.receipt))}
    assert done <= kept.keys(), "each has a receipt"
    for receipt in kept.values():
        Receipt.model_validate(receipt)


def _assert_spent_once(server: ChaosServer, lost: int) -> None:
    """I6: no answer was bought twice; nothing is held back for a call that nobody makes."""
    with server.server.server_context.engine.connect() as db:
        rows = db.execute(sa.select(calls.c.job_id, calls.c.call, calls.c.state, calls.c.cost)).all()
    booked = Counter((job, call) for job, call, state, _ in rows if state == "booked")
    assert all(times == 1 for times in booked.values()), booked
    assert {call for _, call in booked} <= set(CALLS)
    assert sum(cost for _, _, state, cost in rows if state == "booked") == PRICE * len(booked)
    others = [row for row in rows if row[2] != "booked"]
    assert all(row[2] == "lost" for row in others), others
    assert len(others) <= lost, others


def _assert_tokens_of_one_repository(server: ChaosServer) -> None:
    """I10: whatever was asked of a repository was asked with a token for it alone."""
    for call in server.github.fake_github.github.calls:
        if call.path.startswith("/repos/") and call.token is not None:
            assert len(call.token.repositories) == 1, f"{call.method} {call.path}"


def assert_nothing_left(server: ChaosServer) -> None:
    """I7: no process but the roles', no sandbox, no mount."""
    server.until(lambda: not _left_over(server), "the end of what jobs leave", timeout=30)


def _left_over(server: ChaosServer) -> list[str]:
    roles = {process.pid for process in server.server.processes.values()}
    left = [line for pid, line in server.processes().items() if pid not in roles]
    sandboxes = server.server.settings.state / "sandboxes"
    return left + ([path.name for path in sandboxes.iterdir()] if sandboxes.exists() else [])
