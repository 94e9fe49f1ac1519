"""What is made on GitHub is made once, looked for first, and never more than a draft."""

import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.forge.base import CheckRun, PullRequest, Target
from app.forge.errors import NeedsHuman, NoAccess
from app.forge.github.connection import App
from app.forge.github.forge import GitHubForge, open_forge
from app.forge.markers import marked, marker, says
from app.gitstore import GitStore
from app.patch import FileChange, Patch
from tests.fakes.github.faults import Fault
from tests.fakes.github.ground import Ground, make_ground, served
from tests.fakes.github.world import Issue, Pull
from tests.repositories import git

BRANCH = "agent-fix/issue-1-totals"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return make_ground(tmp_path)


@pytest.fixture
def site(ground: Ground) -> Iterator[str]:
    with served(ground.github) as address:
        yield address


@pytest.fixture
async def app(ground: Ground, site: str) -> AsyncIterator[App]:
    async with ground.app(site=site) as app:
        yield app


@pytest.fixture
async def forge(ground: Ground, app: App, tmp_path: Path) -> GitHubForge:
    store = GitStore(tmp_path / "store.git")
    return await open_forge(app, ground.installation.id, ground.repository, store, ground.issue.number)


async def commit(forge: GitHubForge, ground: Ground, text: str, base: str = "") -> str:
    """A commit of ours on the default branch's head, or on another one."""
    base = base or ground.repo.branches["main"]
    await forge.branches.bring(base)
    patch = Patch(base=base, changes=(FileChange(path="app/money.py", mode="100644", content=text.encode()),))
    date = datetime(2026, 11, 21, tzinfo=UTC)
    return forge.branches.store.commit(patch, message="Fix: totals\n", author=forge.bot.person, date=date)


def wanted(branch: str = BRANCH, **changes: str) -> PullRequest:
    values = {"branch": branch, "base": "main", "title": "Fix: totals", "body": "Fixes #1"} | changes
    return PullRequest(**values)


async def test_a_branch_is_pushed_and_said_twice_is_there_once(forge: GitHubForge, ground: Ground) -> None:
    ours = await commit(forge, ground, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert await forge.ensure_branch(BRANCH, ours) == BRANCH
    assert ground.repo.branches[BRANCH] == ours
    assert len(ground.repo.pushes) == 1
    assert git(ground.repo.path, "show", f"{ours}:app/money.py") == "half = 0.25"
    author = git(ground.repo.path, "show", "-s", "--format=%ae", ours)
    assert author == f"{ground.world.bot.id}+agent-fix-test[bot]@users.noreply.127.0.0.1"


async def test_the_name_of_somebody_elses_branch_is_not_taken(forge: GitHubForge, ground: Ground) -> None:
    theirs = ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"})
    ours = await commit(forge, ground, "half = 0.25\n")
    assert await forge.ensure_branch(BRANCH, ours) == f"{BRANCH}-2"
    assert ground.repo.branches[BRANCH] == theirs


async def test_our_branch_moves_on(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, ground, "half = 0.125\n", base=first)
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH
    assert await forge.advance_branch(BRANCH, second, first) == BRANCH, "said twice"
    assert ground.repo.branches[BRANCH] == second
    assert len(ground.repo.pushes) == 2


async def test_a_humans_commit_is_never_overwritten(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    theirs = ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"})
    second = await commit(forge, ground, "half = 0.125\n")
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, first)
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, theirs)
    assert ground.repo.branches[BRANCH] == theirs
    assert len(ground.repo.pushes) == 1, "not even tried"


async def test_a_race_is_lost_to_the_human_by_the_lease(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    await forge.ensure_branch(BRANCH, first)
    second = await commit(forge, ground, "half = 0.125\n")
    theirs: list[str] = []

    class Racer:
        """Pushes between our look and our leap."""

        def hits(self, method: str, path: str) -> bool:
            if f"{method} {path}" == f"GET /repos/ada/sample/commits/{first}" and not theirs:
                theirs.append(ground.world.push_as_human(ground.repo, BRANCH, {"mine.txt": "mine\n"}))
            return False

    ground.github.faults.append(Racer())  # type: ignore[arg-type]
    with pytest.raises(NeedsHuman, match="Somebody else"):
        await forge.advance_branch(BRANCH, second, first)
    assert [ground.repo.branches[BRANCH]] == theirs


async def test_a_deleted_branch_is_not_made_again(forge: GitHubForge, ground: Ground) -> None:
    first = await commit(forge, ground, "half = 0.25\n")
    with pytest.raises(NeedsHuman, match="deleted"):
        await forge.advance_branch(BRANCH, first, "0" * 39 + "1")


async def test_a_protected_branch_is_a_matter_for_people(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.protect(BRANCH)
    with pytest.raises(NeedsHuman, match="GH006") as caught:
        await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    assert "rule of the repository" in caught.value.hint


async def test_a_push_needs_only_contents_and_its_token_ends_with_it(forge: GitHubForge, ground: Ground) -> None:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    pushing = [token for token in ground.world.tokens.values() if token.permissions == {"contents": "write"}]
    assert pushing
    assert all(token.revoked for token in pushing)
    assert all(token.repositories == {ground.repo.id} for token in ground.world.tokens.values())


@pytest.mark.parametrize("long", [False, True])
async def test_no_process_list_and_no_configuration_shows_the_token(
    forge: GitHubForge, ground: Ground, tmp_path: Path, long: bool
) -> None:
    ground.world.long_tokens = long
    hook = ground.repo.path / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ncat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {tmp_path}/seen\nexit 0\n")
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    seen = (tmp_path / "seen").read_text(errors="replace")
    assert "push --porcelain" in seen, "the look was taken while the push was under way"
    config = (tmp_path / "store.git" / "config").read_text()
    for token in ground.world.tokens:
        header = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        assert token not in seen + config
        assert header not in seen + config


async def test_a_moved_repository_gets_no_push_and_no_token(forge: GitHubForge, ground: Ground) -> None:
    ours = await commit(forge, ground, "half = 0.25\n")
    ground.repo.moved = True
    with pytest.raises(NoAccess) as caught:
        await forge.ensure_branch(BRANCH, ours)
    assert "moved" in caught.value.hint
    with pytest.raises(NoAccess, match="moved"):
        await forge.ensure_comment("j1", "hello")
    assert not [call for call in ground.github.calls if call.path.startswith("/moved")]
    assert not ground.issue.comments


async def opened(forge: GitHubForge, ground: Ground) -> Issue:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    await forge.ensure_pull_request(wanted())
    return ground.repo.pulls[-1]


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


async def test_where_drafts_are_not_to_be_had_nothing_is_opened(forge: GitHubForge, ground: Ground) -> None:
    ground.repo.drafts = False
    with pytest.raises(NeedsHuman, match="Draft pull requests are not supported"):
        await opened(forge, ground)
    assert ground.repo.pulls == []


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
    """Every mutation was let in by a token for this repository that could do nothing else."""
    await opened(forge, ground)
    await forge.ensure_comment("j1", "working")
    await forge.ensure_labels(add=["agent-in-progress"])
    used = {(call.method, call.path.rpartition("/")[2]): call.token for call in ground.github.mutations()}
    assert all(token is not None and token.repositories == {ground.repo.id} for token in used.values())
    granted = {what: dict(token.permissions) for what, token in used.items() if token}
    talking = {"issues": "write", "pull_requests": "write"}
    assert granted == {
        ("POST", "pulls"): {"pull_requests": "write"},
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


def test_the_secret_launcher_gives_variables_and_nothing_on_standard_input() -> None:
    from app.gitclean import secret_variables

    words, stdin = secret_variables({"A": "ü=1"})
    show = [sys.executable, "-c", "import json, os, sys; print(json.dumps([os.environ['A'], sys.stdin.read()]))"]
    done = subprocess.run([*words, *show], input=stdin, capture_output=True, check=True)
    assert json.loads(done.stdout) == ["ü=1", ""]
