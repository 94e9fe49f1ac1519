"""A draft that is opened before there is a change: one branch, one pull request, and nobody's commit is ever lost."""

from functools import partial

import pytest

from app.config.repository import RepoConfig
from app.core.job import Job
from app.core.plan import Plan, render_plan
from app.llm.sql_ledger import SqlLedger
from app.publish.body_edits import with_state
from app.publish.effects import OpenDraftPullRequest, OpenEarlyDraft, UpdateDraftStatus
from app.publish.status_text import early_key, status_key
from app.publish.status_updater import StatusUpdater
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault
from tests.support.github.world import Issue
from tests.support.publisher_harness import HALF, PublisherHarness
from tests.support.repositories import git

EARLY = RepoConfig(pull_request="early")
PLAN = Plan(summary="Half cents are rounded down. @everyone", steps=("Round half up.", "Add a test."))


async def begin(harness: PublisherHarness, config: RepoConfig = EARLY, **how: object) -> Job:
    """A job whose plan stands and whose work has begun."""
    made = await harness.admit(config=config, **how)  # type: ignore[arg-type]
    harness.store.add_progress(made.id, "plan", render_plan(PLAN))
    harness.store.enter(made.id, "working")
    return made


async def see(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    """Until everything was told, whatever has to wait for the next edit."""
    for _ in range(4):
        await harness.everything()
        fake_github.world.tick(12)
    await harness.everything()


async def opened(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> tuple[Job, Issue]:
    made = await begin(harness)
    await see(harness, fake_github)
    (pull,) = fake_github.repo.pulls
    return made, pull


async def stopped(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, made: Job, state: str, reason: str = ""
) -> None:
    harness.queue.end(made.id, state, reason)  # type: ignore[arg-type]
    await see(harness, fake_github)


def one(fake_github: FakeGitHubSetup) -> Issue:
    (pull,) = fake_github.repo.pulls
    assert pull.pull is not None
    assert sorted(fake_github.repo.branches) == sorted(["main", pull.pull.head])
    return pull


async def test_a_draft_is_opened_with_the_plan_and_nothing_else(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    assert pull.pull is not None
    assert (pull.pull.draft, pull.pull.head, pull.pull.base) == (True, made.branch, "main")
    assert pull.title == "Fix: Totals are a cent too low"
    assert pull.body.startswith("Fixes #1: ")
    assert "**Not verified yet.**" in pull.body
    assert "1. Round half up." in pull.body
    assert "`@everyone`" in pull.body, "what a model wrote pings nobody"
    head = fake_github.repo.branches[made.branch]
    assert git(fake_github.repo.path, "rev-parse", f"{head}^") == made.task.base
    assert git(fake_github.repo.path, "diff", "--name-only", made.task.base, head) == ""
    assert "[skip ci]" in git(fake_github.repo.path, "show", "-s", "--format=%B", head)
    status = harness.comments()[0]
    assert f"Draft pull request: https://github.example/ada/sample/pull/{pull.number} (not verified yet)" in status
    pushes = len(fake_github.repo.pushes)
    await see(harness, fake_github)
    assert (len(fake_github.repo.pushes), len(fake_github.repo.pulls)) == (pushes, 1) == (1, 1)


async def test_the_verified_change_replaces_the_empty_commit(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    first = fake_github.repo.branches[made.branch]
    await harness.work(made)
    await see(harness, fake_github)
    state, result = harness.ended(made.id)
    assert state == "pr_opened", result.reason
    assert (result.branch, result.url.endswith(f"/pull/{pull.number}")) == (made.branch, True)
    assert one(fake_github) is pull
    head = fake_github.repo.branches[made.branch]
    assert git(fake_github.repo.path, "rev-list", "--parents", "-1", head).split() == [result.commit, made.task.base]
    assert head != first
    assert "Not verified yet" not in pull.body
    assert "## Verification" in pull.body
    assert "### 🚀 A draft pull request is open" in harness.comments()[0]


@pytest.mark.parametrize("state", ["queued", "planning", "awaiting_approval"])
async def test_nothing_is_opened_before_the_plan_stands(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, state: str
) -> None:
    made = await harness.admit(config=EARLY)
    harness.store.enter(made.id, state)  # type: ignore[arg-type]
    await see(harness, fake_github)
    assert fake_github.repo.pulls == []
    where = harness.job_with_context(made.id)
    effect = OpenEarlyDraft(branch=made.branch, base="main", title="x", body="x")
    harness.outbox.add(made.id, where.row.epoch, where.job_context.issue_ref, effect)
    await see(harness, fake_github)
    assert (fake_github.repo.pulls, fake_github.repo.pushes) == ([], []), "whoever requests it"
    harness.store.enter(made.id, "working")
    fake_github.world.tick(60)
    await see(harness, fake_github)
    assert len(fake_github.repo.pulls) == 1


@pytest.mark.parametrize(
    ("config", "changes", "job"),
    [
        (RepoConfig(), {}, {}),
        (EARLY, {"aim": "plan", "publish_target": "nowhere"}, {"plan_mode": "only"}),
        (EARLY, {"aim": "ask", "publish_target": "nowhere"}, {"aim": "ask", "plan_mode": "none"}),
        (EARLY, {"aim": "follow_up", "publish_target": "sibling"}, {}),
    ],
)
async def test_only_the_work_on_an_issue_opens_one(
    harness: PublisherHarness,
    fake_github: FakeGitHubSetup,
    config: RepoConfig,
    changes: dict[str, str],
    job: dict[str, str],
) -> None:
    made = await begin(harness, config, job_changes=job, **changes)
    where = harness.job_with_context(made.id)
    await see(harness, fake_github)
    assert harness.outbox.status(early_key(made.id)) is None
    effect = OpenEarlyDraft(branch=made.branch, base="main", title="x", body="x")
    key = harness.outbox.add(made.id, where.row.epoch, where.job_context.issue_ref, effect)
    await see(harness, fake_github)
    assert harness.effect_status(key).state == "failed", "whatever its worker requests"
    assert fake_github.repo.pushes == []


@pytest.mark.parametrize("what", ["write access", "issue", "branch", "base", "handed over", "installation"])
async def test_permissions_are_checked_again_before_the_early_draft(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, what: str
) -> None:
    made = await begin(harness)
    where = harness.job_with_context(made.id)
    branch, base = made.branch, "main"
    match what:
        case "write access":
            fake_github.repo.collaborators[fake_github.owner.id] = "read"
        case "issue":
            fake_github.issue.state = "closed"
        case "branch":
            branch = "main"
        case "base":
            base = "release"
        case "handed over":
            await harness.work(made)
        case "installation":
            again = fake_github.world.install(fake_github.repo)
            fake_github.world.installations = {again.id: again, **fake_github.world.installations}
    effect = OpenEarlyDraft(branch=branch, base=base, title="x", body="x")
    row = harness.job_with_context(made.id).row
    key = harness.outbox.add(made.id, row.epoch, where.job_context.issue_ref, effect)
    await harness.publish()
    assert harness.effect_status(key).state == "failed"
    assert all(
        "Begin:" not in git(fake_github.repo.path, "show", "-s", "--format=%s", tip)
        for tip in fake_github.repo.branches
    )


async def test_a_persons_commit_on_the_draft_is_never_lost(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    theirs = fake_github.world.push_as_human(fake_github.repo, made.branch, {"mine.txt": "mine\n"})
    await harness.work(made)
    await see(harness, fake_github)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "Someone else has pushed" in result.reason
    assert one(fake_github) is pull
    assert fake_github.repo.branches[made.branch] == theirs
    assert pull.state == "open"
    assert "The job failed.**" in pull.body
    assert "not verified yet" in harness.comments()[0]


@pytest.mark.parametrize("state", ["stopped", "error", "verification_failed", "limit_reached"])
async def test_a_draft_without_a_result_says_so_and_stays(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, state: str
) -> None:
    made, pull = await opened(harness, fake_github)
    await stopped(harness, fake_github, made, state, "Because <b>so</b>.")
    assert (one(fake_github) is pull, pull.state) == (True, "open")
    assert "Not verified yet" not in pull.body
    assert "This branch holds no change of the agent's." in pull.body
    assert "Because" in pull.body
    assert "<b>" not in pull.body
    assert "/agent retry" in pull.body
    assert "not verified yet" in harness.comments()[0]


async def test_without_a_change_draft_and_branch_are_removed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    await stopped(harness, fake_github, made, "no_change", "There is nothing to change.")
    assert pull.state == "closed"
    assert "There is nothing to change." in pull.body
    assert sorted(fake_github.repo.branches) == ["main"]


async def test_a_draft_with_a_persons_commit_stays_open(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    theirs = fake_github.world.push_as_human(fake_github.repo, made.branch, {"mine.txt": "mine\n"})
    await stopped(harness, fake_github, made, "no_change")
    assert (pull.state, fake_github.repo.branches[made.branch]) == ("open", theirs)


async def test_pausing_and_resuming_are_announced(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made, pull = await opened(harness, fake_github)
    harness.store.enter(made.id, "paused", "Its money is spent.")
    await see(harness, fake_github)
    assert "Paused" in pull.body
    assert "`/agent continue`" in pull.body
    harness.store.enter(made.id, "working")
    await see(harness, fake_github)
    assert "**Not verified yet.**" in pull.body
    assert "## Plan" in pull.body


async def test_the_next_attempt_uses_the_draft_of_the_one_before(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    before = fake_github.repo.branches[made.branch]
    await stopped(harness, fake_github, made, "error", "No luck.")
    fake_github.world.tick(60)
    again = await begin(harness)
    await see(harness, fake_github)
    assert one(fake_github) is pull
    assert fake_github.repo.branches[again.branch] != before
    assert "**Not verified yet.**" in pull.body
    await harness.work(again)
    await see(harness, fake_github)
    assert one(fake_github) is pull
    assert harness.ended(again.id)[0] == "pr_opened"


async def test_an_attempt_without_an_early_draft_takes_over_one_that_is_left(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    await stopped(harness, fake_github, made, "error")
    fake_github.world.tick(60)
    again = await harness.admit(config=RepoConfig())
    await harness.work(again)
    await see(harness, fake_github)
    assert one(fake_github) is pull
    assert "## Verification" in pull.body


async def test_a_name_that_is_taken_is_left_alone(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await begin(harness)
    theirs = fake_github.world.push_as_human(fake_github.repo, made.branch, {"mine.txt": "mine\n"})
    await see(harness, fake_github)
    (pull,) = fake_github.repo.pulls
    assert pull.pull is not None
    assert pull.pull.head == f"{made.branch}-2"
    await harness.work(made)
    await see(harness, fake_github)
    assert harness.ended(made.id)[1].branch == f"{made.branch}-2"
    assert fake_github.repo.branches[made.branch] == theirs
    assert sorted(fake_github.repo.branches) == sorted(["main", made.branch, f"{made.branch}-2"])
    assert len(fake_github.repo.pulls) == 1


async def test_the_change_waits_until_the_draft_is_opened_or_not(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """Whoever holds the one may be pushing at this moment; the other comes after it."""
    made = await begin(harness)
    await harness.status_updater.post_due()
    while (claim := harness.outbox.claim("another publisher")) and not isinstance(claim.effect, OpenEarlyDraft):
        pass
    assert claim is not None
    key = await harness.work(made)
    await harness.publish()
    assert harness.effect_status(key).state == "wanted"
    assert fake_github.repo.pushes == []
    fake_github.world.tick(301)
    await see(harness, fake_github)
    assert harness.effect_status(early_key(made.id)).state == "failed", "its change was on its way by then"
    assert harness.ended(made.id)[0] == "pr_opened"
    assert one(fake_github).pull is not None


async def test_a_half_opened_draft_is_completed(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    """The branch was made, then the publisher died; meanwhile the work was done."""
    made = await begin(harness)
    await harness.status_updater.post_due()
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", times=1))
    await harness.publish()
    assert made.branch in fake_github.repo.branches
    await harness.work(made)
    await see(harness, fake_github)
    assert harness.effect_status(early_key(made.id)).state == "failed"
    assert harness.ended(made.id)[0] == "pr_opened"
    assert len(fake_github.repo.pulls) == 1
    assert sorted(fake_github.repo.branches) == sorted(["main", made.branch])


async def test_a_draft_that_could_not_be_opened_leaves_no_branch(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await begin(harness)
    fake_github.repo.drafts = False
    await see(harness, fake_github)
    assert harness.effect_status(early_key(made.id)).state == "failed"
    assert fake_github.repo.pulls == [], "nothing that is not verified is open for review"
    await stopped(harness, fake_github, made, "error")
    assert sorted(fake_github.repo.branches) == ["main"]


async def test_a_draft_that_people_closed_is_not_opened_again(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made, pull = await opened(harness, fake_github)
    pull.state = "closed"
    await harness.work(made)
    await see(harness, fake_github)
    state, result = harness.ended(made.id)
    assert state == "error"
    assert "was closed" in result.reason
    assert len(fake_github.repo.pulls) == 1


async def test_a_worker_cannot_say_which_commits_give_way(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """What may be replaced is computed from the jobs, and never read from an effect."""
    theirs = fake_github.world.push_as_human(fake_github.repo, "agent-fix/mine", {"mine.txt": "mine\n"})
    made = await harness.admit(config=RepoConfig(), job_changes={"branch": "agent-fix/mine"})
    await harness.work(made, HALF, replaces=(theirs,), draft="agent-fix/mine")
    await see(harness, fake_github)
    assert fake_github.repo.branches["agent-fix/mine"] == theirs
    assert harness.ended(made.id)[1].branch == "agent-fix/mine-2"
    also = await harness.admit(config=RepoConfig(), job_changes={"branch": "agent-fix/mine"})
    where = harness.job_with_context(also.id)
    harness.outbox.add(
        also.id,
        0,
        where.job_context.issue_ref,
        UpdateDraftStatus(section="x", close=True, branch="agent-fix/mine", commit=theirs),
    )
    await see(harness, fake_github)
    assert harness.effect_status(status_key(also.id)).state == "failed"
    assert fake_github.repo.branches["agent-fix/mine"] == theirs


async def test_a_lost_mirror_is_fetched_again(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made, pull = await opened(harness, fake_github)
    mirror = harness.mirror(fake_github.repo.id).path
    mirror.rename(mirror.with_suffix(".gone"))
    await stopped(harness, fake_github, made, "no_change")
    assert (pull.state, sorted(fake_github.repo.branches)) == ("closed", ["main"])


def test_the_state_stands_between_marks_and_nowhere_else() -> None:
    body = "a\n<!-- agent-fix:state -->\nold\n<!-- /agent-fix:state -->\nb"
    assert with_state(body, r"new \1") == body.replace("old", r"new \1")
    assert with_state("my own words", "new") == "my own words"
    title = "Crash `<!-- agent-fix:state -->`\n"
    assert with_state(title + body, "new") == title + body.replace("old", "new")


def test_effects_stored_by_an_earlier_version_can_be_read() -> None:
    """A draft that the version before requested has neither field."""
    names = OpenDraftPullRequest.model_fields
    assert (names["replaces"].default, names["draft"].default) == ((), "")


async def test_a_plan_of_any_length_can_be_shown(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await harness.admit(config=EARLY)
    long = Plan(summary="x" * 4_000, steps=tuple("<" * 4_000 for _ in range(30)))
    harness.store.add_progress(made.id, "plan", render_plan(long))
    harness.store.enter(made.id, "working")
    await see(harness, fake_github)
    assert len(one(fake_github).body) < 60_000


async def test_in_a_workflow_nobody_opens_one_early(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    await begin(harness)
    account = partial(SqlLedger, harness.engine, cap=0)
    status_updater = StatusUpdater(
        harness.store, harness.job_queries, harness.outbox, account, harness.now, page="https://x", early=False
    )
    await status_updater.post_due()
    await harness.publish()
    assert fake_github.repo.pulls == []
