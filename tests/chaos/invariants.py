"""What must be true whatever died and when: ten invariants, looked for in GitHub, in the rows and on the machine."""

from collections import Counter, defaultdict
from itertools import pairwise

import sqlalchemy as sa

from app.forge.markers import says
from app.job import FINAL, JobState
from app.jobs.inbox import deliveries
from app.jobs.roster import Commissioned
from app.model.sql_ledger import calls
from app.publish.intent import Receipt
from app.publish.intents import intents, receipts
from app.result import Result
from tests.chaos.stage import CALLS, MENDED, ODD, PRICE, Spot, Stage
from tests.fakes.github.gate import app_key
from tests.repositories import git
from tests.server import SECRET

OURS = "agent-fix/"
OPENED: tuple[JobState, ...] = ("pr_opened",)


def assert_sound(stage: Stage, *, states: tuple[JobState, ...] = OPENED, lost_calls: int = 0) -> None:
    """Every job came to one of these states, and I1 to I10 hold. So many model calls may have been lost."""
    found = stage.jobs()
    account = stage.account()
    assert found, "nothing was begun"
    for each in found:
        assert each.row.state in states, f"{each.job.id} is {each.row.state}\n{account}"
    for spot in stage.spots:
        _assert_once(stage, spot, [each for each in found if _is_at(each, spot)])
    _assert_pushes(stage)
    _assert_pace(stage)
    _assert_no_secret(stage)
    _assert_nothing_undone(stage)
    _assert_spent_once(stage, lost_calls)
    _assert_tokens_of_one_repository(stage)
    assert_nothing_left(stage)


def _is_at(each: Commissioned, spot: Spot) -> bool:
    place = each.commission.place
    return (place.repository, place.number) == (spot.repo.id, spot.issue.number)


def _assert_once(stage: Stage, spot: Spot, found: list[Commissioned]) -> None:
    """I1: one job, one branch, one open draft, one status comment, one check, labels and reactions of one end. I9."""
    assert len(found) <= 1, f"{len(found)} jobs on one issue"
    bot = stage.github.ground.world.bot
    comments = [spot.repo.comments[number] for number in spot.issue.comments]
    for each in found:
        told = [comment for comment in comments if comment.user.id == bot.id and says(comment.body, each.job.id)]
        assert len(told) == 1, f"{len(told)} status comments of {each.job.id}"
        branches = [name for name in spot.repo.branches if name == each.job.branch]
        pulls = [pull for pull in spot.repo.pulls if pull.pull and pull.pull.head == each.job.branch]
        opened = each.row.state == "pr_opened"
        assert (len(branches), len(pulls)) == (opened, opened), f"{each.row.state}: {branches}, {len(pulls)} drafts"
        assert each.commission.target is not None
        target = each.commission.target.id
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


def _assert_as_verified(spot: Spot, each: Commissioned) -> None:
    """I9: what stands on the branch is the commit that was verified, and that changes what was to be changed."""
    result = Result.model_validate(each.row.result)
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


def _assert_pushes(stage: Stage) -> None:
    """I2: no branch but ours was ever pushed to; and none twice."""
    for repo in {spot.repo.id: spot.repo for spot in stage.spots}.values():
        refs = [line.split()[2] for line in repo.pushes]
        assert all(ref.startswith(f"refs/heads/{OURS}") for ref in refs), refs
        assert len(refs) == len(set(refs)), f"pushed more than once: {refs}"


def _assert_pace(stage: Stage) -> None:
    """I3: a second between two mutations of one installation, as one process sends them (a new one knows no last)."""
    by_installation: dict[int, list[float]] = defaultdict(list)
    for call in stage.github.ground.github.mutations():
        if call.token is not None:
            by_installation[call.token.installation].append(call.at)
    for moments in by_installation.values():
        hurried = sum(later - earlier < 0.9 for earlier, later in pairwise(moments))
        assert hurried <= stage.deaths.count("publisher"), f"{hurried} mutations came too soon"


def _assert_no_secret(stage: Stage) -> None:
    """I4: neither key nor webhook secret was sent anywhere, or is in a log."""
    sent = str([call.body for call in stage.github.ground.github.calls]) + stage.server.log.read_text(errors="replace")
    assert SECRET not in sent
    assert app_key()[0].splitlines()[1] not in sent


def _assert_nothing_undone(stage: Stage) -> None:
    """I5: what was asked is dealt with, what was wished for is done, with a receipt, and every job is final."""
    assert all(each.row.state in FINAL for each in stage.jobs())
    with stage.server.premises.engine.connect() as db:
        assert set(db.execute(sa.select(deliveries.c.state)).scalars()) <= {"done"}
        assert set(db.execute(sa.select(intents.c.state)).scalars()) <= {"done", "withdrawn"}
        done = set(db.execute(sa.select(intents.c.key).where(intents.c.state == "done")).scalars())
        kept = {row.key: row.receipt for row in db.execute(sa.select(receipts.c.key, receipts.c.receipt))}
    assert done <= kept.keys(), "each has a receipt"
    for receipt in kept.values():
        Receipt.model_validate(receipt)


def _assert_spent_once(stage: Stage, lost: int) -> None:
    """I6: no answer was bought twice; nothing is held back for a call that nobody makes."""
    with stage.server.premises.engine.connect() as db:
        rows = db.execute(sa.select(calls.c.job_id, calls.c.call, calls.c.state, calls.c.cost)).all()
    booked = Counter((job, call) for job, call, state, _ in rows if state == "booked")
    assert all(times == 1 for times in booked.values()), booked
    assert {call for _, call in booked} <= set(CALLS)
    assert sum(cost for _, _, state, cost in rows if state == "booked") == PRICE * len(booked)
    others = [row for row in rows if row[2] != "booked"]
    assert len(others) <= lost, others


def _assert_tokens_of_one_repository(stage: Stage) -> None:
    """I10: whatever was asked of a repository was asked with a token for it alone."""
    for call in stage.github.ground.github.calls:
        if call.path.startswith("/repos/") and call.token is not None:
            assert len(call.token.repositories) == 1, f"{call.method} {call.path}"


def assert_nothing_left(stage: Stage) -> None:
    """I7: no process but the roles', no sandbox, no mount."""
    stage.until(lambda: not _left_over(stage), "the end of what jobs leave", patience=30)


def _left_over(stage: Stage) -> list[str]:
    roles = {process.pid for process in stage.server.processes.values()}
    left = [line for pid, line in stage.processes().items() if pid not in roles]
    sandboxes = stage.server.settings.state / "sandboxes"
    return left + ([path.name for path in sandboxes.iterdir()] if sandboxes.exists() else [])
