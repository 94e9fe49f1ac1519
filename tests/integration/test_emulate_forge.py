"""Each thing that we ask of GitHub or do there, against a GitHub that others wrote, with real git beside it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.forge.base import CheckRun, Target
from app.forge.errors import NeedsHuman, NoAccess
from app.forge.github.connection import App, Credentials, Host, RepositoryId
from app.forge.github.door import Door
from app.forge.github.forge import GitHubForge
from app.forge.github.registration import Registration, missed
from app.gitstore import GitStore
from app.settings import settings_from
from tests.emulate.github import OWNER, EmulatedGitHub, emulated_github
from tests.emulate.person import InlineComment
from tests.emulate.place import BRANCH, FILES, Place, app_at, later, place_at, repository_id, wanted
from tests.repositories import git

pytestmark = pytest.mark.xdist_group("emulate")


@pytest.fixture(scope="module")
def github() -> Iterator[EmulatedGitHub]:
    with emulated_github() as github:
        yield github


@pytest.fixture
async def place(github: EmulatedGitHub, tmp_path: Path) -> AsyncIterator[Place]:
    async with place_at(github, tmp_path) as place:
        yield place


async def test_we_know_who_we_are_and_where_we_are_installed(place: Place, github: EmulatedGitHub) -> None:
    registration = Registration(place.app)
    assert (await registration.identity()).slug == github.app_slug
    found = await registration.installation_of(OWNER, place.repository.name)
    assert found is not None
    assert found.id == github.installation_id
    assert await registration.installation_of(OWNER, "no-such") is None
    assert place.forge.bot.login == github.bot
    assert place.forge.bot.person.email.endswith(f"+{github.bot}@users.noreply.127.0.0.1")


async def test_a_wrong_key_opens_nothing(place: Place, github: EmulatedGitHub) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    async with app_at(github, other.decode()) as app:
        with pytest.raises(NoAccess):
            await Registration(app).identity()
        with pytest.raises(NoAccess):
            await Door(app, github.installation_id, repository_id(place.repository)).token({"contents": "read"})


@pytest.mark.parametrize(
    ("login", "permission"), [("ada", "admin"), ("grace", "write"), ("rob", "read"), ("mallory", "none")]
)
async def test_a_permission_is_asked_by_number(place: Place, login: str, permission: str) -> None:
    number = place.repository.as_user(login).number
    actor = await place.forge.reads.actor(number)
    assert (actor.login, actor.permission, actor.kind) == (login, permission, "User")
    assert actor.person.email == f"{number}+{login}@users.noreply.127.0.0.1"


async def test_the_apps_own_account_is_a_bot_without_rights(place: Place) -> None:
    number = int(place.forge.bot.person.email.partition("+")[0])
    actor = await place.forge.reads.actor(number)
    assert (actor.login, actor.permission, actor.kind) == (place.github.bot, "none", "Bot")


async def test_an_account_that_is_gone_is_an_error_and_no_permission(place: Place) -> None:
    with pytest.raises(NoAccess):
        await place.forge.reads.actor(999_999)


async def test_repository_heads_and_files(place: Place) -> None:
    reads, repository = place.forge.reads, place.repository
    facts = await reads.repository()
    assert (facts.id, facts.owner, facts.name) == (repository.id, OWNER, repository.name)
    assert (facts.default_branch, facts.private, facts.archived) == ("main", True, False)
    theirs = repository.as_user("grace").push("topic/näher#1", {".github/agent-fix.yml": "network: [x]\n"})
    assert await reads.head("main") == repository.head
    assert await reads.head("topic/näher#1") == theirs
    assert await reads.head("none") is None
    assert await reads.file("logo.bin") == FILES["logo.bin"]
    assert await reads.file(".github/agent-fix.yml") is None
    assert await reads.file(".github/agent-fix.yml", "topic/näher#1") == b"network: [x]\n"
    assert await reads.author_address(theirs) == "ada@users.noreply.example"


async def test_an_issue_and_a_pull_request_as_an_issue(place: Place) -> None:
    found = await place.forge.reads.issue(place.issue)
    assert found is not None
    assert (found.title, found.open, found.pull_request) == ("Totals are a cent too low", True, False)
    assert found.author == place.repository.as_user("rob").number
    number = await place.opened()
    found = await place.forge.reads.issue(number)
    assert found is not None
    assert (found.title, found.open, found.pull_request) == ("Fix totals", True, True)
    assert await place.forge.reads.issue(99) is None


async def test_labelled_are_open_issues_and_pull_requests(place: Place) -> None:
    repository = place.repository
    ada, grace = repository.as_user("ada"), repository.as_user("grace")
    pull = await place.opened()
    closed = ada.open_issue("closed", labels=["agent-fix"])
    ada.close(closed)
    ada.open_issue("unlabelled")
    grace.label(place.issue, "bug", "agent-fix")
    grace.label(pull, "agent-fix")
    found = await place.forge.reads.labelled("agent-fix")
    assert {(item.number, item.pull_request) for item in found} == {(place.issue, False), (pull, True)}


async def test_comments_that_stood_so_before_a_moment(place: Place) -> None:
    ada = place.repository.as_user("ada")
    first = ada.comment(place.issue, "before")
    (found,) = await place.forge.reads.comments(place.issue, later())
    assert (found.id, found.author_name, found.body, found.bot) == (first, "ada", "before", False)
    assert await place.forge.reads.comments(place.issue, found.created_at) == ()


async def test_an_edit_and_a_new_title_are_noticed(place: Place) -> None:
    ada, reads = place.repository.as_user("ada"), place.forge.reads
    trigger = datetime.now(UTC).replace(microsecond=0)
    assert not await reads.edited_since(place.issue, trigger)
    ada.label(place.issue, "bug")
    assert not await reads.edited_since(place.issue, trigger)
    ada.edit_issue(place.issue, body="something else")
    assert await reads.edited_since(place.issue, trigger)
    pull = await place.opened()
    assert not await reads.edited_since(pull, trigger)
    ada.edit_issue(pull, title="Another")
    assert await reads.edited_since(pull, trigger)
    assert await reads.edited_since(99, trigger), "what is gone is not what was signed"


async def test_a_pull_request_with_its_files_reviews_and_threads(place: Place) -> None:
    number, reads = await place.opened(), place.forge.reads
    ada = place.repository.as_user("ada")
    comments = [InlineComment("app/money.py", 1, "why?"), InlineComment("app/money.py", 2, "these", 1)]
    review = ada.review(number, "please", "REQUEST_CHANGES", comments)
    facts = await reads.pull_request(number)
    assert facts is not None
    assert facts == await reads.pull_request_of(BRANCH)
    assert (facts.head, facts.base, facts.draft, facts.open) == (
        place.repository.head_of(BRANCH),
        place.repository.head,
        True,
        True,
    )
    assert facts.head_repository == place.repository.id
    assert await reads.pull_request_of("none") is None
    (file,) = await reads.changed_files(number)
    assert (file.path, file.status, file.additions, file.deletions) == ("app/money.py", "modified", 1, 1)
    assert "-half = 0.5" in file.diff
    (found,) = await reads.reviews(number, later())
    assert (found.id, found.author_name, found.state, found.body) == (review, "ada", "changes_requested", "please")
    one, several = await place.forge.threads.of(number, later())
    assert (one.path, one.line, one.start_line, one.resolved, one.outdated) == ("app/money.py", 1, None, False, False)
    assert one.diff.endswith("-half = 0.5\n+half = 0.25")
    assert (several.line, several.start_line) == (2, 1)
    assert [comment.body for comment in several.comments] == ["these"]


async def test_a_thread_is_outdated_where_its_line_was_changed_and_moves_where_it_was_not(place: Place) -> None:
    number = await place.opened()
    ada = place.repository.as_user("ada")
    for line in (1, 2):
        ada.comment_inline(number, InlineComment("app/money.py", line, f"line {line}"))
    ada.push(BRANCH, {"app/money.py": "# halves\nhalf = 0.2\nthird = 0.3\n"})
    first, second = await place.forge.threads.of(number, later())
    assert (first.line, first.outdated) == (None, True)
    assert (second.line, second.outdated) == (3, False)


async def test_a_branch_is_pushed_once(place: Place) -> None:
    await place.forge.branches.bring(place.repository.head)
    ours = place.commit("half = 0.25\n")
    assert [await place.forge.ensure_branch(BRANCH, ours) for _ in range(2)] == [BRANCH, BRANCH]
    assert place.repository.site.branches()[BRANCH] == ours, "git and emulate know it by the same id"
    assert place.repository.site.file("app/money.py", BRANCH) == b"half = 0.25\n"
    assert git(place.repository.path, "show", "-s", "--format=%ae", ours) == place.forge.bot.person.email


async def test_a_name_that_is_taken_is_left_alone(place: Place) -> None:
    theirs = place.repository.as_user("grace").push(BRANCH, {"mine.txt": "mine\n"})
    await place.forge.branches.bring(place.repository.head)
    assert await place.forge.ensure_branch(BRANCH, place.commit("half = 0.25\n")) == f"{BRANCH}-2"
    assert place.repository.site.branches()[BRANCH] == theirs


async def test_our_branch_moves_on_and_the_pull_request_with_it(place: Place) -> None:
    number = await place.opened()
    first = place.repository.head_of(BRANCH)
    second = place.commit("half = 0.125\n", base=first)
    assert [await place.forge.advance_branch(BRANCH, second, first) for _ in range(2)] == [BRANCH, BRANCH]
    assert place.repository.site.pull(number).head == second
    assert git(place.repository.path, "rev-parse", f"refs/pull/{number}/head") == second


async def test_a_humans_commit_is_never_overwritten(place: Place) -> None:
    await place.opened()
    first = place.repository.head_of(BRANCH)
    theirs = place.repository.as_user("grace").push(BRANCH, {"mine.txt": "mine\n"})
    second = place.commit("half = 0.125\n", base=first)
    for expected in (first, theirs):
        with pytest.raises(NeedsHuman, match="Somebody else"):
            await place.forge.advance_branch(BRANCH, second, expected)
    assert place.repository.site.branches()[BRANCH] == theirs


async def test_a_draft_is_opened_once_and_brought_up_to_date(place: Place) -> None:
    number = await place.opened()
    url = await place.forge.ensure_pull_request(wanted())
    assert url == f"{place.github.server_url}/{place.repository.full_name}/pull/{number}"
    await place.forge.ensure_pull_request(wanted(body="Fixes #1, better"))
    (pull,) = place.repository.site.pulls()
    assert (pull.draft, pull.body, pull.author) == (True, "Fixes #1, better", place.github.bot)


@pytest.mark.parametrize("merged", [False, True])
async def test_a_pull_request_that_is_over_stays_over(place: Place, merged: bool) -> None:
    number = await place.opened()
    ada = place.repository.as_user("ada")
    if merged:
        ada.make_ready(number)
        ada.merge(number)
        assert place.repository.site.file("app/money.py") == b"half = 0.25\nthird = 0.3\n"
        assert not place.repository.site.issue(place.issue).open, "it said that it fixes it"
    else:
        ada.close(number)
    with pytest.raises(NeedsHuman, match="merged" if merged else "closed"):
        await place.forge.ensure_pull_request(wanted())
    assert len(place.repository.site.pulls()) == 1


async def test_the_status_comment_is_one_and_ours(place: Place) -> None:
    urls = [await place.forge.ensure_comment("j1", text) for text in ("working", "done", "done")]
    (comment,) = place.repository.site.comments(place.issue)
    assert urls == [urls[0]] * 3
    assert (comment.author, comment.body.partition("\n")[0]) == (place.github.bot, "done")
    place.repository.as_user("ada").comment(place.issue, comment.body.replace("j1", "j2"))
    await place.forge.ensure_comment("j2", "ours")
    assert len(place.repository.site.comments(place.issue)) == 3, "who copies the mark is not us"


async def test_a_comment_on_a_pull_request(place: Place) -> None:
    number = await place.opened()
    await place.forge.ensure_comment("j1", "working")
    assert [item.author for item in place.repository.site.comments(number)] == [place.github.bot]


async def test_reactions_are_there_once(place: Place) -> None:
    number = await place.opened()
    ada, site = place.repository.as_user("ada"), place.repository.site
    comment = ada.comment(place.issue, "/agent fix")
    inline = ada.comment_inline(number, InlineComment("app/money.py", 1, "/agent rename"))
    for _ in range(2):
        await place.forge.ensure_reaction(Target(kind="issue", id=place.issue), "rocket")
        await place.forge.ensure_reaction(Target(kind="comment", id=comment), "eyes")
        await place.forge.ensure_reaction(Target(kind="review comment", id=inline), "confused")
    assert site.reactions(f"issues/{place.issue}") == [(place.github.bot, "rocket")]
    assert site.reactions(f"issues/comments/{comment}") == [(place.github.bot, "eyes")]
    assert site.reactions(f"pulls/comments/{inline}") == [(place.github.bot, "confused")]
    with pytest.raises(NoAccess):
        await place.forge.ensure_reaction(Target(kind="comment", id=99_999), "eyes")


@pytest.mark.parametrize("on", ["issue", "pull request"])
async def test_labels_are_ours_to_change_and_others_stay(place: Place, on: str) -> None:
    if on == "pull request":
        await place.opened()
    place.repository.as_user("grace").label(place.forge.number, "bug", "Agent-Fix", "odd / name?")
    for _ in range(2):
        await place.forge.ensure_labels(add=["agent-in-progress"], remove=["agent-fix", "agent-done", "odd / name?"])
    assert place.repository.site.labels(place.forge.number) == {"bug", "agent-in-progress"}


async def test_a_check_run_is_found_again_by_its_key(place: Place) -> None:
    head = place.repository.head
    begun = CheckRun(key="j1", name="agent-fix", commit=head, title="Verifying", summary="…")
    ended = CheckRun(key="j1", name="agent-fix", commit=head, title="Proved", summary="🟢", conclusion="success")
    for check in (begun, begun, ended, ended):
        await place.forge.ensure_check_run(check)
    (kept,) = place.repository.site.check_runs(head)
    assert (kept.conclusion, kept.title, kept.status) == ("success", "Proved", "completed")
    assert kept.app == place.github.app_slug


async def test_an_older_jobs_check_run_is_found_below_a_newer_one(place: Place) -> None:
    head = place.repository.head
    first = CheckRun(key="j1", name="agent-fix", commit=head, title="First", summary="…")
    second = CheckRun(key="j2", name="agent-fix", commit=head, title="Second", summary="…")
    ended = CheckRun(key="j1", name="agent-fix", commit=head, title="Stopped", summary="…", conclusion="cancelled")
    for check in (first, second, ended):
        await place.forge.ensure_check_run(check)
    found = {run.title: run.conclusion for run in place.repository.site.check_runs(head)}
    assert found == {"Stopped": "cancelled", "Second": None}


async def test_failed_checks_bring_the_end_of_their_log(place: Place) -> None:
    head, repository = place.repository.head, place.repository
    repository.add_check(head, "tests", "failure", log="x" * 50_000 + "\nE   assert 1 == 2\n")
    repository.add_check(head, "style", "success", log="never asked for")
    repository.add_status(head, "coverage", "failure")
    await place.forge.ensure_check_run(
        CheckRun(key="j1", name="agent-fix", commit=head, title="t", summary="s", conclusion="failure")
    )
    facts = {check.name: check for check in await place.forge.checks.of(head)}
    assert (facts["tests"].conclusion, facts["tests"].source) == ("failure", "github-actions")
    assert facts["tests"].log.endswith("E   assert 1 == 2\n")
    assert len(facts["tests"].log) == 20_000
    assert facts["style"].log == ""
    assert (facts["coverage"].conclusion, facts["coverage"].source) == ("failure", "status")
    assert facts["agent-fix"].source == place.github.app_slug


async def test_a_thread_is_answered_once_and_resolved(place: Place) -> None:
    number = await place.opened()
    asked = place.repository.as_user("ada").comment_inline(number, InlineComment("app/money.py", 1, "why?"))
    (thread,) = await place.forge.threads.of(number, later())
    for _ in range(2):
        await place.forge.ensure_reply(asked, "j1/7", "Because.")
        await place.forge.ensure_resolved(thread.id)
    question, answer = place.repository.site.inline_comments(number)
    assert (answer.author, answer.reply_to, answer.path, answer.line) == (place.github.bot, asked, "app/money.py", 1)
    assert answer.body.startswith("Because.")
    assert question.id == asked
    (thread,) = await place.forge.threads.of(number, later())
    assert thread.resolved
    assert len(thread.comments) == 2


async def test_what_nobody_received_is_found_and_sent_again(place: Place) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    seen = len(place.github.deliveries)
    place.repository.as_user("ada").label(place.issue, "agent-fix")
    lost = place.github.delivered("issues", "labeled", since=seen)
    registration = Registration(place.app)
    open_ones = missed(await registration.deliveries(begun))
    (mine,) = [item for item in open_ones if item.guid == lost.guid]
    assert (mine.event, mine.action, mine.repository_id) == ("issues", "labeled", place.repository.id)
    assert mine.installation_id == place.github.installation_id
    await registration.redeliver(mine.id)
    again = place.github.wait(
        lambda: next((item for item in place.github.deliveries if item.guid == lost.guid and item.redelivery), None),
        "the second attempt",
    )
    assert again.payload == lost.payload
    assert await registration.deliveries(later()) == ()


async def test_every_change_was_made_with_a_token_that_could_do_nothing_else(place: Place) -> None:
    seen = len(place.github.calls)
    await place.opened()
    await place.forge.ensure_comment("j1", "working")
    await place.forge.ensure_labels(add=["agent-in-progress"])
    await place.forge.ensure_check_run(
        CheckRun(key="j1", name="n", commit=place.repository.head, title="t", summary="s")
    )
    made = [call for call in place.github.calls[seen:] if call.method != "GET" and call.path.startswith("/repos/")]
    granted = {call.path.rpartition("/")[2]: dict(call.token.permissions or {}) for call in made if call.token}
    talking = {"issues": "write", "pull_requests": "write"}
    assert granted == {
        "pulls": {"pull_requests": "write"},
        "comments": talking,
        "labels": talking,
        "check-runs": {"checks": "write"},
    }
    tokens = [call.token for call in made if call.token]
    assert all(token.repositories == frozenset({place.repository.id}) for token in tokens)
    pushed = [token for token in place.github.tokens if dict(token.permissions or {}) == {"contents": "write"}]
    assert pushed
    assert not [token for token in pushed if token.live], "a token that pushed ends with its push"


ATTEMPTS: dict[str, Callable[[GitHubForge, str], Awaitable[Any]]] = {
    "issue": lambda forge, _: forge.reads.issue(1),
    "labelled": lambda forge, _: forge.reads.labelled("agent-fix"),
    "comments": lambda forge, _: forge.reads.comments(1, later()),
    "pull requests": lambda forge, _: forge.reads.pull_request_of(BRANCH),
    "file": lambda forge, _: forge.reads.file("README.md"),
    "head": lambda forge, _: forge.reads.head("main"),
    "edits": lambda forge, _: forge.reads.edited_since(1, later()),
    "checks": lambda forge, head: forge.checks.of(head),
    "commit": lambda forge, head: forge.branches.bring(head),
    "comment": lambda forge, _: forge.ensure_comment("j1", "hello"),
    "label": lambda forge, _: forge.ensure_labels(add=["agent-in-progress"]),
    "reaction": lambda forge, _: forge.ensure_reaction(Target(kind="issue", id=1), "eyes"),
    "draft": lambda forge, _: forge.ensure_pull_request(wanted()),
}


async def test_another_repositorys_token_opens_nothing_here(place: Place, tmp_path: Path) -> None:
    """A payload that names a repository with the number of another gets a token for that other one only."""
    other = place.github.add_repository(files=FILES)
    mixed = RepositoryId(other.id, place.repository.owner, place.repository.name)
    door = Door(place.app, place.github.installation_id, mixed)
    forge = GitHubForge(door, GitStore(tmp_path / "other.git"), place.forge.bot, place.issue)
    for what, ask in ATTEMPTS.items():
        with pytest.raises(NoAccess):
            assert await ask(forge, place.repository.head), what


async def test_settings_take_us_there(place: Place) -> None:
    settings = settings_from({**place.github.environment, "AGENT_FIX_MODEL": "openai/m", "HOME": "/nowhere"})
    settings.check("receiver", "publisher")
    app = App(Host(settings.github_api_url, settings.github_url), Credentials(settings.app_id, settings.private_key))
    async with app:
        assert (await Registration(app).identity()).slug == place.github.app_slug
