"""Effects on GitHub: looked for first, made once, and never more than a draft."""

import re
from pathlib import Path

import pytest

from app.github.base import NeedsHumanAction, NewCheckRun, ReactionTarget, has_marker, marker, with_marker
from app.github.effects import GitHubForge
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault
from tests.support.github.publishing import BRANCH, commit, opened, wanted
from tests.support.github.world import Pull

NO_DRAFTS = '{"message": "Draft pull requests are not supported in this repository."}'


async def test_a_draft_is_opened_once_and_brought_up_to_date(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    pull = await opened(forge, fake_github)
    assert pull.pull is not None
    assert pull.pull.draft
    url = await forge.ensure_pull_request(wanted())
    assert url.endswith(f"/pull/{pull.number}")
    before = len(fake_github.github.mutations())
    await forge.ensure_pull_request(wanted())
    assert len(fake_github.github.mutations()) == before, "nothing is said where nothing changed"
    await forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    assert (len(fake_github.repo.pulls), pull.body) == (1, "Fixes #1, better")


async def test_a_pull_request_made_ready_by_a_person_stays_ready(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(forge, fake_github)
    assert pull.pull is not None
    pull.pull.draft = False
    await forge.ensure_pull_request(wanted(body="new"))
    assert pull.pull.draft is False
    assert not [call for call in fake_github.github.mutations() if call.method == "PATCH" and "draft" in call.body]


@pytest.mark.parametrize("merged", [False, True])
async def test_a_closed_pull_request_is_not_opened_again(
    forge: GitHubForge, fake_github: FakeGitHubSetup, merged: bool
) -> None:
    pull = await opened(forge, fake_github)
    assert pull.pull is not None
    pull.state, pull.pull.merged_at = "closed", fake_github.world.now if merged else None
    with pytest.raises(NeedsHumanAction, match="merged" if merged else "closed"):
        await forge.ensure_pull_request(wanted())
    assert len(fake_github.repo.pulls) == 1


async def test_without_draft_pull_requests_the_title_says_draft(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.drafts = False
    pull = await opened(forge, fake_github)
    assert pull.pull is not None
    assert (pull.pull.draft, pull.title) == (False, "Draft: Fix: totals")
    assert "plan has no draft pull requests" in pull.body
    assert "Fixes #1" in pull.body
    before = len(fake_github.github.mutations())
    await forge.ensure_pull_request(wanted())
    assert len(fake_github.github.mutations()) == before, "found again, and nothing is said where nothing changed"
    await forge.ensure_pull_request(wanted(title="Fix: all totals", body="Fixes #1, better"))
    assert pull.title == "Draft: Fix: all totals"
    assert pull.body.count("no draft pull requests") == pull.body.count("Fixes #1, better") == 1
    assert len(fake_github.repo.pulls) == 1


async def test_a_title_from_which_a_person_took_the_draft_stays_without(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.drafts = False
    pull = await opened(forge, fake_github)
    pull.title = "Fix: totals"
    await forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    assert pull.title == "Fix: totals"


async def test_an_answer_that_was_lost_makes_no_second_one_where_there_are_no_drafts(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.drafts = False
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", 422, NO_DRAFTS))
    fake_github.github.faults.append(Fault("POST /repos/ada/sample/pulls", after=True))
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(fake_github.repo.pulls) == 1


async def test_a_title_with_the_repositorys_draft_mark_is_not_marked_twice(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fake_github.repo.drafts = False
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    await forge.ensure_pull_request(wanted(title="Draft: totals"))
    assert fake_github.repo.pulls[0].title == "Draft: totals"


async def test_the_page_that_opens_a_pull_request_is_quoted(forge: GitHubForge) -> None:
    found = forge.comparison("release/1.0 #2", "agent-fix/ü(50%)")
    assert found.endswith("/ada/sample/compare/release/1.0%20%232...agent-fix/%C3%BC%2850%25%29?expand=1")


async def test_a_pull_request_opened_concurrently_is_success(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))

    class ConcurrentWriter:
        def hits(self, method: str, path: str) -> bool:
            if (method, path) == ("POST", "/repos/ada/sample/pulls"):
                pull = Pull(BRANCH, "main", draft=True)
                fake_github.world.open_issue(
                    fake_github.repo, fake_github.world.bot, "Fix: totals", "Fixes #1", pull=pull
                )
            return False

    fake_github.github.faults.append(ConcurrentWriter())  # type: ignore[arg-type]
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert len(fake_github.repo.pulls) == 1


async def test_a_pull_request_of_a_fork_with_the_same_branch_name_is_not_ours(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    fork = Pull(BRANCH, "main", draft=True, fork=4)
    fake_github.world.open_issue(fake_github.repo, fake_github.owner, "a sibling in the same organisation", pull=fork)
    assert await forge.reads.pull_request_of(BRANCH) is None
    ours = await opened(forge, fake_github)
    found = await forge.reads.pull_request_of(BRANCH)
    assert found is not None
    assert found.number == ours.number


async def test_the_status_comment_is_one_and_edited_in_place(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    url = await forge.ensure_comment("j1", "working")
    assert await forge.ensure_comment("j1", "done") == url
    assert await forge.ensure_comment("j1", "done") == url
    (number,) = fake_github.issue.comments
    assert fake_github.repo.comments[number].body == f"done\n\n{marker('j1')}"
    assert [call.method for call in fake_github.github.mutations()] == ["POST", "PATCH"]
    await forge.ensure_comment("j2", "another job")
    assert len(fake_github.issue.comments) == 2


async def test_a_stranger_who_copies_the_mark_is_not_us(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    theirs = fake_github.world.comment(
        fake_github.repo, fake_github.issue, fake_github.owner, with_marker("mine", "j1")
    )
    await forge.ensure_comment("j1", "ours")
    assert theirs.body == with_marker("mine", "j1")
    assert len(fake_github.issue.comments) == 2


async def test_a_mark_within_a_text_does_not_count(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    await forge.ensure_comment("j1", f"a model wrote {marker('j2')} here")
    await forge.ensure_comment("j2", "the real one")
    bodies = [fake_github.repo.comments[number].body for number in fake_github.issue.comments]
    assert [has_marker(body, "j1") for body in bodies] == [True, False]
    assert [has_marker(body, "j2") for body in bodies] == [False, True]
    assert not has_marker(f"{marker('j1')} quoted by somebody", "j1")
    with pytest.raises(ValueError):
        marker("j --> <img>")


async def test_labels_are_ours_to_change_and_others_stay(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    fake_github.issue.labels = ["bug", "agent-fix"]
    for _ in range(2):
        await forge.ensure_labels(add=["agent-in-progress"], remove=["agent-fix", "agent-done"])
    assert fake_github.issue.labels == ["bug", "agent-in-progress"]
    assert len(fake_github.github.mutations()) == 2


async def test_a_reaction_is_there_once(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    comment = fake_github.world.comment(fake_github.repo, fake_github.issue, fake_github.owner, "/agent fix")
    for _ in range(2):
        await forge.ensure_reaction(ReactionTarget(kind="comment", id=comment.id), "eyes")
        await forge.ensure_reaction(ReactionTarget(kind="issue", id=fake_github.issue.number), "rocket")
    assert [(kind, content) for kind, _, _, content in fake_github.repo.reactions] == [
        ("issue comments", "eyes"),
        ("issues", "rocket"),
    ]


async def test_a_check_run_is_found_again_by_its_key(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.private = True
    head = fake_github.repo.branches["main"]
    begun = NewCheckRun(key="j1", name="agent-fix", commit=head, title="Verifying", summary="…")
    ended = NewCheckRun(key="j1", name="agent-fix", commit=head, title="Proved", summary="🟢", conclusion="success")
    for check in (begun, begun, ended, ended):
        await forge.ensure_check_run(check)
    (kept,) = fake_github.repo.checks
    assert (kept.conclusion, kept.title, kept.status) == ("success", "Proved", "completed")
    assert [call.method for call in fake_github.github.mutations()] == ["POST", "PATCH"]


async def test_a_thread_is_answered_once_and_resolved(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    pull = await opened(forge, fake_github)
    forge.number = pull.number
    thread = fake_github.world.start_thread(
        fake_github.repo, pull, fake_github.owner, path="app/money.py", line=1, body="why?"
    )
    for _ in range(2):
        await forge.ensure_reply(thread.comments[0], "j1/7", "Because.")
        await forge.ensure_resolved(thread.id)
    assert len(thread.comments) == 2
    assert thread.resolved
    assert (
        len([call for call in fake_github.github.calls if call.path == "/graphql" and "mutation" in str(call.body)])
        == 1
    )


async def test_only_resolving_may_do_so_and_nothing_else_of_contents(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    pull = await opened(forge, fake_github)
    thread = fake_github.world.start_thread(
        fake_github.repo, pull, fake_github.owner, path="app/money.py", line=1, body="why?"
    )
    await forge.ensure_resolved(thread.id)
    (call,) = [call for call in fake_github.github.calls if call.path == "/graphql" and "mutation" in str(call.body)]
    assert call.token is not None
    assert call.token.permissions == {"pull_requests": "write", "contents": "write"}


async def test_every_effect_survives_an_answer_that_was_lost(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    """The POST is carried out, its answer is a 502: the thing is there once, and found."""
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    fake_github.github.faults += [
        Fault("POST /repos/ada/sample/pulls", after=True),
        Fault("POST .*/comments", after=True),
        Fault("POST .*/check-runs", after=True),
    ]
    head = fake_github.repo.branches[BRANCH]
    assert (await forge.ensure_pull_request(wanted())).endswith("/pull/2")
    assert "#issuecomment-" in await forge.ensure_comment("j1", "working")
    assert await forge.ensure_check_run(NewCheckRun(key="j1", name="n", commit=head, title="t", summary="s"))
    assert (len(fake_github.repo.pulls), len(fake_github.issue.comments), len(fake_github.repo.checks)) == (1, 1, 1)


async def test_the_least_permissions_are_asked_for(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    """Every mutation was let in by a token for this repository of several that could do nothing else."""
    fake_github.repo.private = True
    fake_github.installation.repositories.add(fake_github.world.add_repo(fake_github.owner, "other", {"a": "b"}).id)
    await opened(forge, fake_github)
    await forge.ensure_comment("j1", "working")
    await forge.ensure_labels(add=["agent-in-progress"])
    used = {(call.method, call.path.rpartition("/")[2]): call.token for call in fake_github.github.mutations()}
    assert all(token is not None and token.repositories == {fake_github.repo.id} for token in used.values())
    granted = {what: dict(token.permissions) for what, token in used.items() if token}
    talking = {"issues": "write", "pull_requests": "write"}
    assert granted == {
        ("POST", "pulls"): {"pull_requests": "write", "contents": "read"},
        ("POST", "comments"): talking,
        ("POST", "labels"): talking,
    }


def test_no_code_approves_merges_or_marks_as_ready() -> None:
    space = Path(__file__).parents[3] / "app" / "github"
    text = "\n".join(path.read_text() for path in space.rglob("*.py"))
    for word in (
        "markPullRequestReadyForReview",
        "mergePullRequest",
        "/merge",
        "APPROVE",
        "enablePullRequestAutoMerge",
    ):
        assert word not in text


def test_no_host_of_githubs_is_named_in_the_code() -> None:
    space = Path(__file__).parents[3] / "app" / "github"
    assert not [path for path in space.rglob("*.py") if re.search(r"github\.com\b", path.read_text())]


async def test_the_text_of_a_persons_pull_request_is_not_changed(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    theirs = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Mine", "My words.", pull=Pull("main", "main", draft=True)
    )
    forge.number = theirs.number
    with pytest.raises(NeedsHumanAction, match="not agent-fix's own"):
        await forge.amend_pull_request(lambda body: f"{body} and ours")
    with pytest.raises(NeedsHumanAction, match="not agent-fix's own"):
        await forge.ensure_labels_and_reviewers("main", ["bot"], ["grace"])
    assert theirs.body == "My words."
    assert theirs.labels == theirs.asked == []


async def test_labels_and_reviewers_are_added_once(forge: GitHubForge, fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.collaborators[fake_github.world.add_user("grace").id] = "write"
    pull = await opened(forge, fake_github)
    pull.labels = ["Bot"]
    fake_github.installation.permissions["members"] = "read"
    for _ in range(2):
        await forge.ensure_labels_and_reviewers(BRANCH, ["bot", "size/s"], ["grace", "acme/core"])
    assert pull.labels == ["Bot", "size/s"]
    assert pull.asked == ["grace", "team/core"]
    before = len(fake_github.github.mutations())
    forge.number = pull.number
    await forge.amend_pull_request(lambda body: body)
    assert len(fake_github.github.mutations()) == before, "nothing is said where nothing changed"
    pull.state = "closed"
    with pytest.raises(NeedsHumanAction, match="closed"):
        await forge.amend_pull_request(lambda body: f"{body}!")


async def test_a_reviewer_who_has_reviewed_is_not_requested_again(
    forge: GitHubForge, fake_github: FakeGitHubSetup
) -> None:
    grace = fake_github.world.add_user("grace")
    fake_github.repo.collaborators[grace.id] = "write"
    pull = await opened(forge, fake_github)
    fake_github.world.review(pull, grace, "Fine.")
    await forge.ensure_labels_and_reviewers(BRANCH, [], ["grace"])
    assert pull.asked == []
