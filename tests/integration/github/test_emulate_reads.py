"""Our account, our reads, and what our tokens may do, on a GitHub emulator by a third party."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import settings_from
from app.github.auth import AppRegistration, missed
from app.github.base import NewCheckRun, NoAccess, ReactionTarget
from app.github.calls import GIT_FETCH
from app.github.connection import AppConnection, AppCredentials, GitHubHost, RepositoryId
from app.github.effects import GitHubForge
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi
from app.repo.git_store import GitStore
from tests.support.emulate.github import OWNER, EmulatedGitHub
from tests.support.emulate.person import InlineComment
from tests.support.emulate.repository import (
    BRANCH,
    FILES,
    EmulatedRepository,
    app_at,
    later,
    repository_id,
    wanted,
)

pytestmark = pytest.mark.xdist_group("emulate")


async def test_we_know_who_we_are_and_where_we_are_installed(place: EmulatedRepository, github: EmulatedGitHub) -> None:
    registration = AppRegistration(place.app)
    assert (await registration.identity()).slug == github.app_slug
    found = await registration.installation_of(OWNER, place.repository.name)
    assert found is not None
    assert found.id == github.installation_id
    assert await registration.installation_of(OWNER, "no-such") is None
    assert place.forge.bot.login == github.bot
    assert place.forge.bot.person.email.endswith(f"+{github.bot}@users.noreply.127.0.0.1")


async def test_a_wrong_key_opens_nothing(place: EmulatedRepository, github: EmulatedGitHub) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    async with app_at(github, other.decode()) as app:
        with pytest.raises(NoAccess):
            await AppRegistration(app).identity()
        with pytest.raises(NoAccess):
            await RepositoryApi(app, github.installation_id, repository_id(place.repository)).token(GIT_FETCH)


@pytest.mark.parametrize(
    ("login", "permission"), [("ada", "admin"), ("grace", "write"), ("rob", "read"), ("mallory", "none")]
)
async def test_permissions_are_checked_by_user_id(place: EmulatedRepository, login: str, permission: str) -> None:
    number = place.repository.as_user(login).number
    actor = await place.forge.reads.actor(number)
    assert (actor.login, actor.permission, actor.kind) == (login, permission, "User")
    assert actor.person is not None
    assert actor.person.email == f"{number}+{login}@users.noreply.127.0.0.1"


async def test_the_apps_own_account_is_a_bot_without_rights(place: EmulatedRepository) -> None:
    number = int(place.forge.bot.person.email.partition("+")[0])
    actor = await place.forge.reads.actor(number)
    assert (actor.login, actor.permission, actor.kind) == (place.github.bot, "none", "Bot")


async def test_an_account_that_is_gone_is_an_error_and_no_permission(place: EmulatedRepository) -> None:
    with pytest.raises(NoAccess):
        await place.forge.reads.actor(999_999)


async def test_repository_heads_and_files(place: EmulatedRepository) -> None:
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
    assert await reads.author_address(theirs) == "ada@users.noreply.example"


async def test_an_issue_and_a_pull_request_as_an_issue(place: EmulatedRepository) -> None:
    found = await place.forge.reads.issue(place.issue)
    assert found is not None
    assert (found.title, found.open, found.pull_request) == ("Totals are a cent too low", True, False)
    assert found.author == place.repository.as_user("rob").number
    number = await place.opened()
    found = await place.forge.reads.issue(number)
    assert found is not None
    assert (found.title, found.open, found.pull_request) == ("Fix totals", True, True)
    assert await place.forge.reads.issue(99) is None


async def test_labelled_are_open_issues_and_pull_requests(place: EmulatedRepository) -> None:
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


async def test_comments_that_stood_so_before_a_moment(place: EmulatedRepository) -> None:
    ada = place.repository.as_user("ada")
    first = ada.comment(place.issue, "before")
    (found,) = await place.forge.reads.comments(place.issue, later())
    assert (found.id, found.author_name, found.body, found.kind) == (first, "ada", "before", "User")
    assert await place.forge.reads.comments(place.issue, found.created_at) == ()


async def test_a_pull_request_with_its_files_reviews_and_threads(place: EmulatedRepository) -> None:
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
    one, several = await place.forge.reads.review_threads(number, later())
    assert (one.path, one.line, one.start_line, one.resolved, one.outdated) == ("app/money.py", 1, None, False, False)
    assert one.diff.endswith("-half = 0.5\n+half = 0.25")
    assert (several.line, several.start_line) == (2, 1)
    assert [comment.body for comment in several.comments] == ["these"]


async def test_a_thread_is_outdated_where_its_line_was_changed_and_moves_where_it_was_not(
    place: EmulatedRepository,
) -> None:
    number = await place.opened()
    ada = place.repository.as_user("ada")
    for line in (1, 2):
        ada.comment_inline(number, InlineComment("app/money.py", line, f"line {line}"))
    ada.push(BRANCH, {"app/money.py": "# halves\nhalf = 0.2\nthird = 0.3\n"})
    first, second = await place.forge.reads.review_threads(number, later())
    assert (first.line, first.outdated) == (None, True)
    assert (second.line, second.outdated) == (3, False)


async def test_failed_checks_bring_the_end_of_their_log(place: EmulatedRepository) -> None:
    head, repository = place.repository.head, place.repository
    repository.add_check(head, "tests", "failure", log="x" * 50_000 + "\nE   assert 1 == 2\n")
    repository.add_check(head, "style", "success", log="never asked for")
    repository.add_status(head, "coverage", "failure")
    await place.forge.ensure_check_run(
        NewCheckRun(key="j1", name="agent-fix", commit=head, title="t", summary="s", conclusion="failure")
    )
    facts = {check.name: check for check in await place.forge.reads.checks(head, logs=5)}
    assert (facts["tests"].conclusion, facts["tests"].source) == ("failure", "github-actions")
    assert facts["tests"].log.endswith("E   assert 1 == 2\n")
    assert len(facts["tests"].log) == 20_000
    assert facts["style"].log == ""
    assert (facts["coverage"].conclusion, facts["coverage"].source) == ("failure", "status")
    assert "agent-fix" not in facts, "our own is none of them"


async def test_missed_deliveries_are_found_and_redelivered(place: EmulatedRepository) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    seen = len(place.github.deliveries)
    place.repository.as_user("ada").label(place.issue, "agent-fix")
    lost = place.github.delivered("issues", "labeled", since=seen)
    registration = AppRegistration(place.app)
    open_ones = missed(await registration.deliveries(begun))
    (mine,) = [item for item in open_ones if item.guid == lost.guid]
    assert (mine.event, mine.action, mine.repository_id) == ("issues", "labeled", place.repository.id)
    await registration.redeliver(mine.id)
    again = place.github.wait(
        lambda: next((item for item in place.github.deliveries if item.guid == lost.guid and item.redelivery), None),
        "the second attempt",
    )
    assert again.payload == lost.payload
    assert await registration.deliveries(later()) == ()


async def test_every_change_was_made_with_a_token_that_could_do_nothing_else(place: EmulatedRepository) -> None:
    seen = len(place.github.calls)
    await place.opened()
    await place.forge.ensure_comment("j1", "working")
    await place.forge.ensure_labels(add=["agent-in-progress"])
    await place.forge.ensure_check_run(
        NewCheckRun(key="j1", name="n", commit=place.repository.head, title="t", summary="s")
    )
    made = [call for call in place.github.calls[seen:] if call.method != "GET" and call.path.startswith("/repos/")]
    granted = {call.path.rpartition("/")[2]: dict(call.token.permissions or {}) for call in made if call.token}
    talking = {"issues": "write", "pull_requests": "write"}
    assert granted == {
        "pulls": {"pull_requests": "write", "contents": "read"},
        "comments": talking,
        "labels": talking,
        "check-runs": {"checks": "write", "contents": "read"},
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
    "threads": lambda forge, _: forge.reads.review_threads(1, later()),
    "checks": lambda forge, head: forge.reads.checks(head, logs=5),
    "commit": lambda forge, head: forge.branches.fetch(head),
    "comment": lambda forge, _: forge.ensure_comment("j1", "hello"),
    "label": lambda forge, _: forge.ensure_labels(add=["agent-in-progress"]),
    "reaction": lambda forge, _: forge.ensure_reaction(ReactionTarget(kind="issue", id=1), "eyes"),
    "draft": lambda forge, _: forge.ensure_pull_request(wanted()),
}


async def test_another_repositorys_token_opens_nothing_here(place: EmulatedRepository, tmp_path: Path) -> None:
    """A payload that names a repository with the number of another gets a token for that other one only."""
    other = place.github.add_repository(files=FILES)
    mixed = RepositoryId(other.id, place.repository.owner, place.repository.name)
    mixed_api = RepositoryApi(place.app, place.github.installation_id, mixed)
    forge = GitHubForge(RepositoryReader(mixed_api), GitStore(tmp_path / "other.git"), place.forge.bot, place.issue)
    for what, ask in ATTEMPTS.items():
        with pytest.raises(NoAccess):
            assert await ask(forge, place.repository.head), what


async def test_settings_choose_the_server(place: EmulatedRepository) -> None:
    settings = settings_from({**place.github.environment, "AGENT_FIX_MODEL": "openai/m", "HOME": "/nowhere"})
    settings.check("receiver", "publisher")
    app = AppConnection(
        GitHubHost(settings.github_api_url, settings.github_url), AppCredentials(settings.app_id, settings.private_key)
    )
    async with app:
        assert (await AppRegistration(app).identity()).slug == place.github.app_slug
