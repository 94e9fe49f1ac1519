"""What is made on GitHub is made once, looked for first, and never more than a draft."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.forge.base import CheckRun, Target
from app.forge.errors import NeedsHuman
from app.forge.github.forge import GitHubForge
from app.forge.markers import marked, marker, says
from tests.fakes.github.faults import Fault
from tests.fakes.github.ground import Ground, make_ground
from tests.fakes.github.publishing import BRANCH, commit, forge_at, opened, wanted
from tests.fakes.github.world import Pull

NO_DRAFTS = '{"message": "Draft pull requests are not supported in this repository."}'


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
async def forge(ground: Ground, tmp_path: Path) -> AsyncIterator[GitHubForge]:
    async with forge_at(ground, tmp_path) as forge:
        yield forge


async def test_a_draft_is_opened_once_and_brought_up_to_date(forge: GitHubForge, ground: Ground) -> None:
    pull = await opened(forge, ground)
    assert pull.pull is not None
    assert pull.pull.draft
    url = await forge.ensure_pull_request(wanted())
    assert url.endswith(f"/pull/{pull.number}")
    before = len(ground.github.mutations())
    await forge.ensure_pull_request(wanted())
    assert len(ground.github.mutations()) == before, "nothing is said where nothing changed"
    await forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    assert (len(ground.repo.pulls), pull.body) == (1, "Fixes #1, better")


async def test_a_pull_request_made_ready_by_a_person_stays_ready(forge: GitHubForge, ground: Ground) -> None:
    pull = await opened(forge, ground)
    assert pull.pull is not None
    pull.pull.draft = False
    await forge.ensure_pull_request(wanted(body="new"))
    assert pull.pull.draft is False
    assert not [call for call in ground.github.mutations() if call.method == "PATCH" and "draft" in call.body]


@pytest.mark.parametrize("merged", [False, True])
async def test_a_closed_pull_request_is_not_opened_again(forge: GitHubForge, ground: Ground, merged: bool) -> None:
    pull = await opened(forge, ground)
    assert pull.pull is not None
    pull.state, pull.pull.merged_at = "closed", ground.world.now if merged else None
    with pytest.raises(NeedsHuman, match="merged" if merged else "closed"):
        await forge.ensure_pull_request(wanted())
    assert len(ground.repo.pulls) == 1


async def test_where_drafts_are_not_to_be_had_the_title_says_it(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.drafts = False
    pull = await opened(forge, ground)
    assert pull.pull is not None
    assert (pull.pull.draft, pull.title) == (False, "Draft: Fix: totals")
    assert "plan has no draft pull requests" in pull.body
    assert "Fixes #1" in pull.body
    before = len(ground.github.mutations())
    await forge.ensure_pull_request(wanted())
    assert len(ground.github.mutations()) == before, "found again, and nothing is said where nothing changed"
    await forge.ensure_pull_request(wanted(title="Fix: all totals", body="Fixes #1, better"))
    assert pull.title == "Draft: Fix: all totals"
    assert pull.body.count("no draft pull requests") == pull.body.count("Fixes #1, better") == 1
    assert len(ground.repo.pulls) == 1


async def test_a_title_from_which_a_person_took_the_draft_stays_without(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.drafts = False
    pull = await opened(forge, ground)
    pull.title = "Fix: totals"
    await forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    assert pull.title == "Fix: totals"


async def test_an_answer_that_was_lost_makes_no_second_one_where_there_are_no_drafts(
    forge: GitHubForge, ground: Ground
) -> None:
    ground.repo.drafts = False
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    ground.github.faults.append(Fault("POST /repos/ada/sample/pulls", 422, NO_DRAFTS))
    ground.github.faults.append(Fault("POST /repos/ada/sample/pulls", after=True))
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(ground.repo.pulls) == 1


async def test_a_title_of_the_houses_pattern_is_not_marked_twice(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.drafts = False
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    await forge.ensure_pull_request(wanted(title="Draft: totals"))
    assert ground.repo.pulls[0].title == "Draft: totals"


async def test_the_page_that_opens_a_pull_request_is_quoted(forge: GitHubForge) -> None:
    found = forge.comparison("release/1.0 #2", "agent-fix/ü(50%)")
    assert found.endswith("/ada/sample/compare/release/1.0%20%232...agent-fix/%C3%BC%2850%25%29?expand=1")


async def test_one_that_another_opened_meanwhile_is_success(forge: GitHubForge, ground: Ground) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))

    class Rival:
        def hits(self, method: str, path: str) -> bool:
            if (method, path) == ("POST", "/repos/ada/sample/pulls"):
                pull = Pull(BRANCH, "main", draft=True)
                ground.world.open_issue(ground.repo, ground.world.bot, "Fix: totals", "Fixes #1", pull=pull)
            return False

    ground.github.faults.append(Rival())  # type: ignore[arg-type]
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(ground.repo.pulls) == 1


async def test_a_pull_request_of_a_fork_with_the_same_branch_name_is_not_ours(
    forge: GitHubForge, ground: Ground
) -> None:
    fork = Pull(BRANCH, "main", draft=True, fork=4)
    ground.world.open_issue(ground.repo, ground.owner, "a sibling in the same organisation", pull=fork)
    assert await forge.reads.pull_request_of(BRANCH) is None
    ours = await opened(forge, ground)
    found = await forge.reads.pull_request_of(BRANCH)
    assert found is not None
    assert found.number == ours.number


async def test_the_status_comment_is_one_and_edited_in_place(forge: GitHubForge, ground: Ground) -> None:
    url = await forge.ensure_comment("j1", "working")
    assert await forge.ensure_comment("j1", "done") == url
    assert await forge.ensure_comment("j1", "done") == url
    (number,) = ground.issue.comments
    assert ground.repo.comments[number].body == f"done\n\n{marker('j1')}"
    assert [call.method for call in ground.github.mutations()] == ["POST", "PATCH"]
    await forge.ensure_comment("j2", "another job")
    assert len(ground.issue.comments) == 2


async def test_a_stranger_who_copies_the_mark_is_not_us(forge: GitHubForge, ground: Ground) -> None:
    theirs = ground.world.comment(ground.repo, ground.issue, ground.owner, marked("mine", "j1"))
    await forge.ensure_comment("j1", "ours")
    assert theirs.body == marked("mine", "j1")
    assert len(ground.issue.comments) == 2


async def test_a_mark_within_a_text_does_not_count(forge: GitHubForge, ground: Ground) -> None:
    await forge.ensure_comment("j1", f"a model wrote {marker('j2')} here")
    await forge.ensure_comment("j2", "the real one")
    bodies = [ground.repo.comments[number].body for number in ground.issue.comments]
    assert [says(body, "j1") for body in bodies] == [True, False]
    assert [says(body, "j2") for body in bodies] == [False, True]
    assert not says(f"{marker('j1')} quoted by somebody", "j1")
    with pytest.raises(ValueError):
        marker("j --> <img>")


async def test_labels_are_ours_to_change_and_others_stay(forge: GitHubForge, ground: Ground) -> None:
    ground.issue.labels = ["bug", "agent-fix"]
    for _ in range(2):
        await forge.ensure_labels(add=["agent-in-progress"], remove=["agent-fix", "agent-done"])
    assert ground.issue.labels == ["bug", "agent-in-progress"]
    assert len(ground.github.mutations()) == 2


async def test_a_reaction_is_there_once(forge: GitHubForge, ground: Ground) -> None:
    comment = ground.world.comment(ground.repo, ground.issue, ground.owner, "/agent fix")
    for _ in range(2):
        await forge.ensure_reaction(Target(kind="comment", id=comment.id), "eyes")
        await forge.ensure_reaction(Target(kind="issue", id=ground.issue.number), "rocket")
    assert [(kind, content) for kind, _, _, content in ground.repo.reactions] == [
        ("issue comments", "eyes"),
        ("issues", "rocket"),
    ]


async def test_a_check_run_is_found_again_by_its_key(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.private = True
    head = ground.repo.branches["main"]
    begun = CheckRun(key="j1", name="agent-fix", commit=head, title="Verifying", summary="…")
    ended = CheckRun(key="j1", name="agent-fix", commit=head, title="Proved", summary="🟢", conclusion="success")
    for check in (begun, begun, ended, ended):
        await forge.ensure_check_run(check)
    (kept,) = ground.repo.checks
    assert (kept.conclusion, kept.title, kept.status) == ("success", "Proved", "completed")
    assert [call.method for call in ground.github.mutations()] == ["POST", "PATCH"]


async def test_a_thread_is_answered_once_and_resolved(forge: GitHubForge, ground: Ground) -> None:
    pull = await opened(forge, ground)
    forge.number = pull.number
    thread = ground.world.start_thread(ground.repo, pull, ground.owner, path="app/money.py", line=1, body="why?")
    for _ in range(2):
        await forge.ensure_reply(thread.comments[0], "j1/7", "Because.")
        await forge.ensure_resolved(thread.id)
    assert len(thread.comments) == 2
    assert thread.resolved
    assert len([call for call in ground.github.calls if call.path == "/graphql" and "mutation" in str(call.body)]) == 1


async def test_only_resolving_may_do_so_and_nothing_else_of_contents(forge: GitHubForge, ground: Ground) -> None:
    pull = await opened(forge, ground)
    thread = ground.world.start_thread(ground.repo, pull, ground.owner, path="app/money.py", line=1, body="why?")
    await forge.ensure_resolved(thread.id)
    (call,) = [call for call in ground.github.calls if call.path == "/graphql" and "mutation" in str(call.body)]
    assert call.token is not None
    assert call.token.permissions == {"pull_requests": "write", "contents": "write"}


async def test_every_effect_survives_an_answer_that_was_lost(forge: GitHubForge, ground: Ground) -> None:
    """The POST is carried out, its answer is a 502: the thing is there once, and found."""
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    ground.github.faults += [
        Fault("POST /repos/ada/sample/pulls", after=True),
        Fault("POST .*/comments", after=True),
        Fault("POST .*/check-runs", after=True),
    ]
    head = ground.repo.branches[BRANCH]
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert "#issuecomment-" in await forge.ensure_comment("j1", "working")
    assert await forge.ensure_check_run(CheckRun(key="j1", name="n", commit=head, title="t", summary="s"))
    assert (len(ground.repo.pulls), len(ground.issue.comments), len(ground.repo.checks)) == (1, 1, 1)


async def test_the_least_permissions_are_asked_for(forge: GitHubForge, ground: Ground) -> None:
    """Every mutation was let in by a token for this repository of several that could do nothing else."""
    ground.repo.private = True
    ground.installation.repositories.add(ground.world.add_repo(ground.owner, "other", {"a": "b"}).id)
    await opened(forge, ground)
    await forge.ensure_comment("j1", "working")
    await forge.ensure_labels(add=["agent-in-progress"])
    used = {(call.method, call.path.rpartition("/")[2]): call.token for call in ground.github.mutations()}
    assert all(token is not None and token.repositories == {ground.repo.id} for token in used.values())
    granted = {what: dict(token.permissions) for what, token in used.items() if token}
    talking = {"issues": "write", "pull_requests": "write"}
    assert granted == {
        ("POST", "pulls"): {"pull_requests": "write", "contents": "read"},
        ("POST", "comments"): talking,
        ("POST", "labels"): talking,
    }


def test_there_is_no_way_to_approve_merge_or_make_ready() -> None:
    room = Path(__file__).parents[1] / "app" / "forge"
    text = "\n".join(path.read_text() for path in room.rglob("*.py"))
    for word in (
        "markPullRequestReadyForReview",
        "mergePullRequest",
        "/merge",
        "APPROVE",
        "enablePullRequestAutoMerge",
    ):
        assert word not in text


def test_no_host_of_githubs_is_named_in_the_code() -> None:
    room = Path(__file__).parents[1] / "app" / "forge"
    assert not [path for path in room.rglob("*.py") if "github.com" in path.read_text()]


async def test_the_text_of_a_persons_pull_request_is_not_changed(forge: GitHubForge, ground: Ground) -> None:
    theirs = ground.world.open_issue(
        ground.repo, ground.owner, "Mine", "My words.", pull=Pull("main", "main", draft=True)
    )
    forge.number = theirs.number
    with pytest.raises(NeedsHuman, match="somebody else's"):
        await forge.amend_pull_request(lambda body: f"{body} and ours")
    with pytest.raises(NeedsHuman, match="somebody else's"):
        await forge.ensure_dress("main", ["bot"], ["grace"])
    assert theirs.body == "My words."
    assert theirs.labels == theirs.asked == []


async def test_a_pull_request_of_ours_is_dressed_once(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.collaborators[ground.world.add_user("grace").id] = "write"
    pull = await opened(forge, ground)
    pull.labels = ["Bot"]
    for _ in range(2):
        await forge.ensure_dress(BRANCH, ["bot", "size/s"], ["grace", "acme/core"])
    assert pull.labels == ["Bot", "size/s"]
    assert pull.asked == ["grace", "team/core"]
    before = len(ground.github.mutations())
    forge.number = pull.number
    await forge.amend_pull_request(lambda body: body)
    assert len(ground.github.mutations()) == before, "nothing is said where nothing changed"
    pull.state = "closed"
    with pytest.raises(NeedsHuman, match="closed"):
        await forge.amend_pull_request(lambda body: f"{body}!")


async def test_who_has_reviewed_is_not_asked_again(forge: GitHubForge, ground: Ground) -> None:
    grace = ground.world.add_user("grace")
    ground.repo.collaborators[grace.id] = "write"
    pull = await opened(forge, ground)
    ground.world.review(pull, grace, "Fine.")
    await forge.ensure_dress(BRANCH, [], ["grace"])
    assert pull.asked == []
