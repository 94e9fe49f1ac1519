"""A draft that is opened before there is a change: one branch, one pull request, and nobody's commit is ever lost."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from app.config import RepoConfig
from app.job import Job
from app.model.sql_ledger import SqlLedger
from app.plan import Plan
from app.plan_text import render_plan
from app.publish.early import early_key, telling_key
from app.publish.follow_up import with_state
from app.publish.herald import Herald
from app.publish.intent import OpenDraftPullRequest, OpenEarlyDraft, TellDraft
from tests.fakes.github.faults import Fault
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.world import Issue
from tests.publishing import HALF, Desk, desk_at
from tests.repositories import git

EARLY = RepoConfig(pull_request="early")
PLAN = Plan(summary="Half cents are rounded down. @everyone", steps=("Round half up.", "Add a test."))


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def desk(ground: Ground, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_at(ground, tmp_path) as desk:
        yield desk


async def begin(desk: Desk, config: RepoConfig = EARLY, **how: object) -> Job:
    """A job whose plan stands and whose work has begun."""
    made = await desk.admit(config=config, **how)  # type: ignore[arg-type]
    desk.store.say(made.id, "plan", render_plan(PLAN))
    desk.store.enter(made.id, "working")
    return made


async def see(desk: Desk, ground: Ground) -> None:
    """Until everything was told, whatever has to wait for the next edit."""
    for _ in range(4):
        await desk.everything()
        ground.world.tick(12)
    await desk.everything()


async def opened(desk: Desk, ground: Ground) -> tuple[Job, Issue]:
    made = await begin(desk)
    await see(desk, ground)
    (pull,) = ground.repo.pulls
    return made, pull


async def stopped(desk: Desk, ground: Ground, made: Job, state: str, reason: str = "") -> None:
    desk.queue.end(made.id, state, reason)  # type: ignore[arg-type]
    await see(desk, ground)


def one(ground: Ground) -> Issue:
    (pull,) = ground.repo.pulls
    assert pull.pull is not None
    assert sorted(ground.repo.branches) == sorted(["main", pull.pull.head])
    return pull


async def test_a_draft_is_opened_with_the_plan_and_nothing_else(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    assert pull.pull is not None
    assert (pull.pull.draft, pull.pull.head, pull.pull.base) == (True, made.branch, "main")
    assert pull.title == "Fix: Totals are a cent too low"
    assert pull.body.startswith("Fixes #1: ")
    assert "**Not verified yet.**" in pull.body
    assert "1. Round half up." in pull.body
    assert "`@everyone`" in pull.body, "what a model wrote pings nobody"
    head = ground.repo.branches[made.branch]
    assert git(ground.repo.path, "rev-parse", f"{head}^") == made.task.base
    assert git(ground.repo.path, "diff", "--name-only", made.task.base, head) == ""
    assert "[skip ci]" in git(ground.repo.path, "show", "-s", "--format=%B", head)
    status = desk.comments()[0]
    assert f"Draft pull request: https://github.example/ada/sample/pull/{pull.number} (not verified yet)" in status
    pushes = len(ground.repo.pushes)
    await see(desk, ground)
    assert (len(ground.repo.pushes), len(ground.repo.pulls)) == (pushes, 1) == (1, 1)


async def test_the_verified_change_takes_the_empty_commits_place(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    first = ground.repo.branches[made.branch]
    await desk.work(made)
    await see(desk, ground)
    state, result = desk.ended(made.id)
    assert state == "pr_opened", result.reason
    assert (result.branch, result.url.endswith(f"/pull/{pull.number}")) == (made.branch, True)
    assert one(ground) is pull
    head = ground.repo.branches[made.branch]
    assert git(ground.repo.path, "rev-list", "--parents", "-1", head).split() == [result.commit, made.task.base]
    assert head != first
    assert "Not verified yet" not in pull.body
    assert "## Verification" in pull.body
    assert "### 🚀 A draft pull request is open" in desk.comments()[0]


@pytest.mark.parametrize("state", ["queued", "planning", "awaiting_approval"])
async def test_nothing_is_opened_before_the_plan_stands(desk: Desk, ground: Ground, state: str) -> None:
    made = await desk.admit(config=EARLY)
    desk.store.enter(made.id, state)  # type: ignore[arg-type]
    await see(desk, ground)
    assert ground.repo.pulls == []
    where = desk.commissioned(made.id)
    wish = OpenEarlyDraft(branch=made.branch, base="main", title="x", body="x")
    desk.intents.want(made.id, where.row.epoch, where.commission.place, wish)
    await see(desk, ground)
    assert (ground.repo.pulls, ground.repo.pushes) == ([], []), "whoever wishes for it"
    desk.store.enter(made.id, "working")
    ground.world.tick(60)
    await see(desk, ground)
    assert len(ground.repo.pulls) == 1


@pytest.mark.parametrize(
    ("config", "changes", "job"),
    [
        (RepoConfig(), {}, {}),
        (EARLY, {"aim": "plan", "goal": "nowhere"}, {"plan_mode": "only"}),
        (EARLY, {"aim": "ask", "goal": "nowhere"}, {"aim": "ask", "plan_mode": "none"}),
        (EARLY, {"aim": "follow_up", "goal": "sibling"}, {}),
    ],
)
async def test_only_the_work_on_an_issue_opens_one(
    desk: Desk, ground: Ground, config: RepoConfig, changes: dict[str, str], job: dict[str, str]
) -> None:
    made = await begin(desk, config, job_changes=job, **changes)
    where = desk.commissioned(made.id)
    await see(desk, ground)
    assert desk.intents.standing(early_key(made.id)) is None
    wish = OpenEarlyDraft(branch=made.branch, base="main", title="x", body="x")
    key = desk.intents.want(made.id, where.row.epoch, where.commission.place, wish)
    await see(desk, ground)
    assert desk.standing(key).state == "failed", "whatever its worker wishes"
    assert ground.repo.pushes == []


@pytest.mark.parametrize("what", ["write access", "issue", "branch", "base", "handed over", "installation"])
async def test_it_is_asked_again_whether_it_may_be(desk: Desk, ground: Ground, what: str) -> None:
    made = await begin(desk)
    where = desk.commissioned(made.id)
    branch, base = made.branch, "main"
    match what:
        case "write access":
            ground.repo.collaborators[ground.owner.id] = "read"
        case "issue":
            ground.issue.state = "closed"
        case "branch":
            branch = "main"
        case "base":
            base = "release"
        case "handed over":
            await desk.work(made)
        case "installation":
            again = ground.world.install(ground.repo)
            ground.world.installations = {again.id: again, **ground.world.installations}
    wish = OpenEarlyDraft(branch=branch, base=base, title="x", body="x")
    row = desk.commissioned(made.id).row
    key = desk.intents.want(made.id, row.epoch, where.commission.place, wish)
    await desk.publish()
    assert desk.standing(key).state == "failed"
    assert all("Begin:" not in git(ground.repo.path, "show", "-s", "--format=%s", tip) for tip in ground.repo.branches)


async def test_a_persons_commit_on_the_draft_is_never_lost(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    theirs = ground.world.push_as_human(ground.repo, made.branch, {"mine.txt": "mine\n"})
    await desk.work(made)
    await see(desk, ground)
    state, result = desk.ended(made.id)
    assert state == "error"
    assert "Somebody else has pushed" in result.reason
    assert one(ground) is pull
    assert ground.repo.branches[made.branch] == theirs
    assert pull.state == "open"
    assert "It did not work out.**" in pull.body
    assert "in which nothing is verified" in desk.comments()[0]


@pytest.mark.parametrize("state", ["stopped", "error", "verification_failed", "limit_reached"])
async def test_a_draft_that_came_to_nothing_says_so_and_stays(desk: Desk, ground: Ground, state: str) -> None:
    made, pull = await opened(desk, ground)
    await stopped(desk, ground, made, state, "Because <b>so</b>.")
    assert (one(ground) is pull, pull.state) == (True, "open")
    assert "Not verified yet" not in pull.body
    assert "Nothing here was verified." in pull.body
    assert "Because" in pull.body
    assert "<b>" not in pull.body
    assert "/agent retry" in pull.body
    assert "in which nothing is verified" in desk.comments()[0]


async def test_where_nothing_was_changed_the_draft_goes_with_its_branch(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    await stopped(desk, ground, made, "no_change", "There is nothing to change.")
    assert pull.state == "closed"
    assert "There is nothing to change." in pull.body
    assert sorted(ground.repo.branches) == ["main"]


async def test_where_nothing_was_changed_but_by_a_person_it_stays(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    theirs = ground.world.push_as_human(ground.repo, made.branch, {"mine.txt": "mine\n"})
    await stopped(desk, ground, made, "no_change")
    assert (pull.state, ground.repo.branches[made.branch]) == ("open", theirs)


async def test_a_pause_is_told_and_its_end_too(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    desk.store.enter(made.id, "paused", "Its money is spent.")
    await see(desk, ground)
    assert "Paused" in pull.body
    assert "`/agent continue`" in pull.body
    desk.store.enter(made.id, "working")
    await see(desk, ground)
    assert "**Not verified yet.**" in pull.body
    assert "## Plan" in pull.body


async def test_the_next_attempt_uses_the_draft_of_the_one_before(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    before = ground.repo.branches[made.branch]
    await stopped(desk, ground, made, "error", "No luck.")
    ground.world.tick(60)
    again = await begin(desk)
    await see(desk, ground)
    assert one(ground) is pull
    assert ground.repo.branches[again.branch] != before
    assert "**Not verified yet.**" in pull.body
    await desk.work(again)
    await see(desk, ground)
    assert one(ground) is pull
    assert desk.ended(again.id)[0] == "pr_opened"


async def test_an_attempt_without_an_early_draft_takes_over_one_that_is_left(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    await stopped(desk, ground, made, "error")
    ground.world.tick(60)
    again = await desk.admit(config=RepoConfig())
    await desk.work(again)
    await see(desk, ground)
    assert one(ground) is pull
    assert "## Verification" in pull.body


async def test_a_name_that_is_taken_is_left_alone(desk: Desk, ground: Ground) -> None:
    made = await begin(desk)
    theirs = ground.world.push_as_human(ground.repo, made.branch, {"mine.txt": "mine\n"})
    await see(desk, ground)
    (pull,) = ground.repo.pulls
    assert pull.pull is not None
    assert pull.pull.head == f"{made.branch}-2"
    await desk.work(made)
    await see(desk, ground)
    assert desk.ended(made.id)[1].branch == f"{made.branch}-2"
    assert ground.repo.branches[made.branch] == theirs
    assert sorted(ground.repo.branches) == sorted(["main", made.branch, f"{made.branch}-2"])
    assert len(ground.repo.pulls) == 1


async def test_the_change_waits_until_the_draft_is_opened_or_not(desk: Desk, ground: Ground) -> None:
    """Whoever holds the one may be pushing at this moment; the other comes after it."""
    made = await begin(desk)
    await desk.herald.tell()
    while (claim := desk.intents.claim("another publisher")) and not isinstance(claim.intent, OpenEarlyDraft):
        pass
    assert claim is not None
    key = await desk.work(made)
    await desk.publish()
    assert desk.standing(key).state == "wanted"
    assert ground.repo.pushes == []
    ground.world.tick(301)
    await see(desk, ground)
    assert desk.standing(early_key(made.id)).state == "failed", "its change was on its way by then"
    assert desk.ended(made.id)[0] == "pr_opened"
    assert one(ground).pull is not None


async def test_a_draft_that_was_half_opened_is_the_one_that_the_change_gets(desk: Desk, ground: Ground) -> None:
    """The branch was made, then the publisher died; meanwhile the work was done."""
    made = await begin(desk)
    await desk.herald.tell()
    ground.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await desk.publish()
    assert made.branch in ground.repo.branches
    await desk.work(made)
    await see(desk, ground)
    assert desk.standing(early_key(made.id)).state == "failed"
    assert desk.ended(made.id)[0] == "pr_opened"
    assert len(ground.repo.pulls) == 1
    assert sorted(ground.repo.branches) == sorted(["main", made.branch])


async def test_a_draft_that_could_not_be_opened_leaves_no_branch(desk: Desk, ground: Ground) -> None:
    made = await begin(desk)
    ground.repo.drafts = False
    await see(desk, ground)
    assert desk.standing(early_key(made.id)).state == "failed"
    assert ground.repo.pulls == [], "nothing that is not verified is open for review"
    await stopped(desk, ground, made, "error")
    assert sorted(ground.repo.branches) == ["main"]


async def test_a_draft_that_people_closed_is_not_opened_again(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    pull.state = "closed"
    await desk.work(made)
    await see(desk, ground)
    state, result = desk.ended(made.id)
    assert state == "error"
    assert "was closed" in result.reason
    assert len(ground.repo.pulls) == 1


async def test_a_worker_cannot_say_which_commits_give_way(desk: Desk, ground: Ground) -> None:
    """What may be replaced is computed from the jobs, and never read from a wish."""
    theirs = ground.world.push_as_human(ground.repo, "agent-fix/mine", {"mine.txt": "mine\n"})
    made = await desk.admit(config=RepoConfig(), job_changes={"branch": "agent-fix/mine"})
    await desk.work(made, HALF, replaces=(theirs,), draft="agent-fix/mine")
    await see(desk, ground)
    assert ground.repo.branches["agent-fix/mine"] == theirs
    assert desk.ended(made.id)[1].branch == "agent-fix/mine-2"
    also = await desk.admit(config=RepoConfig(), job_changes={"branch": "agent-fix/mine"})
    where = desk.commissioned(also.id)
    desk.intents.want(
        also.id, 0, where.commission.place, TellDraft(section="x", close=True, branch="agent-fix/mine", commit=theirs)
    )
    await see(desk, ground)
    assert desk.standing(telling_key(also.id)).state == "failed"
    assert ground.repo.branches["agent-fix/mine"] == theirs


async def test_a_mirror_that_was_lost_is_no_end(desk: Desk, ground: Ground) -> None:
    made, pull = await opened(desk, ground)
    mirror = desk.mirror(ground.repo.id).path
    mirror.rename(mirror.with_suffix(".gone"))
    await stopped(desk, ground, made, "no_change")
    assert (pull.state, sorted(ground.repo.branches)) == ("closed", ["main"])


def test_the_state_stands_between_marks_and_nowhere_else() -> None:
    body = "a\n<!-- agent-fix:state -->\nold\n<!-- /agent-fix:state -->\nb"
    assert with_state(body, r"new \1") == body.replace("old", r"new \1")
    assert with_state("my own words", "new") == "my own words"


def test_what_is_wished_for_before_is_read_after_a_deploy() -> None:
    """A draft wished for by the version before has neither field."""
    names = OpenDraftPullRequest.model_fields
    assert (names["replaces"].default, names["draft"].default) == ((), "")


async def test_a_plan_of_any_length_can_be_shown(desk: Desk, ground: Ground) -> None:
    made = await desk.admit(config=EARLY)
    long = Plan(summary="x" * 4_000, steps=tuple("<" * 4_000 for _ in range(30)))
    desk.store.say(made.id, "plan", render_plan(long))
    desk.store.enter(made.id, "working")
    await see(desk, ground)
    assert len(one(ground).body) < 60_000


async def test_in_a_workflow_nobody_opens_one_early(desk: Desk, ground: Ground) -> None:
    await begin(desk)
    account = partial(SqlLedger, desk.engine, cap=0)
    herald = Herald(desk.store, desk.roster, desk.intents, account, desk.now, page="https://x", early=False)
    await herald.tell()
    await desk.publish()
    assert ground.repo.pulls == []
