"""Faults of GitHub and of networks: reads are retried, writes are not repeated blindly, tokens are never shown."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from app.core.redaction import mask_secrets
from app.github.base import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure
from app.github.connection import AppConnection, AppCredentials, GitHubHost
from app.github.effects import GitHubForge
from app.github.reader import RepositoryReader
from app.github.refusals import NotSeenYet, git_failure, graphql_failure, refusal_of
from app.github.repository_api import RepositoryApi
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import API, SITE, FakeGitHubSetup
from tests.support.github.faults import TEAM_UNSEEN, Fault

ISSUE = "GET /repos/ada/sample/issues/1"
COMMENT = "POST /repos/ada/sample/issues/1/comments"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(ISSUE, 502, times=3),
        Fault(ISSUE, 500, body='{"message": "Server Error"}', times=3),
        Fault(ISSUE, cut=True, times=3),
        Fault(ISSUE, drop=True, times=3),
        Fault(ISSUE, 200, body="<html>a proxy's page</html>", times=3),
        Fault("POST /app/installations/.*", 503, times=3),
    ],
    ids=["html", "json", "cut", "dropped", "proxy", "token"],
)
async def test_a_read_survives_three_failures(fake_github: FakeGitHubSetup, fault: Fault) -> None:
    fake_github.github.faults.append(fault)
    began = fake_github.world.now
    found = await RepositoryReader(fake_github.api(fake_github.app())).issue(1)
    assert found is not None
    assert fake_github.world.now - began == timedelta(seconds=3.5), "it waited between the tries"


async def test_a_read_that_never_succeeds_says_so(fake_github: FakeGitHubSetup) -> None:
    fake_github.github.faults.append(Fault(ISSUE, times=99))
    with pytest.raises(TemporaryFailure):
        await RepositoryReader(fake_github.api(fake_github.app())).issue(1)
    assert len([call for call in fake_github.github.calls if call.path.endswith("/issues/1")]) == 4


@pytest.mark.parametrize("fault", [Fault(COMMENT), Fault(COMMENT, drop=True)], ids=["502", "dropped"])
async def test_a_write_is_sent_once_and_its_failure_reported(
    forge: GitHubForge, fake_github: FakeGitHubSetup, fault: Fault
) -> None:
    fake_github.github.faults.append(fault)
    with pytest.raises(TemporaryFailure):
        await forge.ensure_comment("j1", "hello")
    assert len(fake_github.github.mutations()) == 1
    await forge.ensure_comment("j1", "hello")
    assert len(fake_github.issue.comments) == 1


@pytest.mark.parametrize("seed", range(8))
async def test_with_every_fifth_answer_lost_each_thing_is_made_once(
    forge: GitHubForge, fake_github: FakeGitHubSetup, seed: int
) -> None:
    """Said again after TryAgain, as the publisher does it."""
    count = seed

    class Bad:
        after = False
        status, body, headers, cut, drop = 502, "<html>", {}, False, False  # type: ignore[var-annotated]

        def hits(self, _method: str, _path: str) -> bool:
            nonlocal count
            count += 1
            self.after = count % 2 == 0
            return count % 5 == 0

    fake_github.github.faults.append(Bad())  # type: ignore[arg-type]

    async def insist(say: Callable[[], Awaitable[object]]) -> None:
        for _ in range(20):
            try:
                await say()
            except TemporaryFailure:
                continue
            return
        raise AssertionError("never succeeded")

    await insist(lambda: forge.ensure_comment("j1", "working"))
    await insist(lambda: forge.ensure_labels(add=["agent-in-progress"]))
    await insist(lambda: forge.ensure_comment("j1", "done"))
    (number,) = fake_github.issue.comments
    assert fake_github.repo.comments[number].body.startswith("done")
    assert fake_github.issue.labels == ["agent-in-progress"]


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "Problems parsing JSON", NeedsHumanAction),
        (401, "Bad credentials", NoAccess),
        (403, "Resource not accessible by integration", NoAccess),
        (403, "Repository was archived so is read-only.", NoAccess),
        (403, "This installation has been suspended", NoAccess),
        (403, "Unable to create comment because issue is locked.", NeedsHumanAction),
        (404, "Not Found", NoAccess),
        (408, "", TemporaryFailure),
        (409, "Git Repository is empty.", NeedsHumanAction),
        (409, "Conflict", TemporaryFailure),
        (410, "Issues are disabled for this repo", NoAccess),
        (401, "Please try again", NoAccess),
        (403, "was submitted too quickly", TemporaryFailure),
        (403, "You have been temporarily blocked from content creation.", TemporaryFailure),
        (403, "Resource protected by organization SAML enforcement.", NoAccess),
        (403, "`acme` forbids access via a personal access token (classic).", NoAccess),
        (405, "Merge already in progress", TemporaryFailure),
        (409, "Base branch was modified. Review and try the merge again.", TemporaryFailure),
        (422, "Validation Failed", NeedsHumanAction),
        (422, "was submitted too quickly", TemporaryFailure),
        (422, "Server Error: Sorry, this diff is temporarily unavailable due to heavy server load.", TemporaryFailure),
        (422, "Validation failed: must be a collaborator", NeedsHumanAction),
        (422, "No commit found for SHA: 1234", NotSeenYet),
        (422, "User is blocked", NoAccess),
        (422, "The permissions requested are not granted to this installation.", NoAccess),
        (423, "Repository is locked", NoAccess),
        (451, "Repository access blocked", NoAccess),
        (500, "", TemporaryFailure),
        (502, "", TemporaryFailure),
        (504, "", TemporaryFailure),
        (301, "Moved Permanently", NoAccess),
        (307, "", NoAccess),
    ],
)
def test_each_refusal_has_one_kind(status: int, message: str, kind: type[ForgeError]) -> None:
    failure = refusal_of(httpx.Response(status, json={"message": message}), NOW)
    assert type(failure) is kind
    assert failure.final == (kind is not TemporaryFailure)
    assert message in failure.message or status in {301, 307}


@pytest.mark.parametrize(
    ("errors", "kind", "words"),
    [
        ([{"message": "was submitted too quickly"}], TemporaryFailure, "Validation Failed: was submitted too quickly"),
        (["was submitted too quickly"], TemporaryFailure, "Validation Failed: was submitted too quickly"),
        ("was submitted too quickly", TemporaryFailure, "Validation Failed: was submitted too quickly"),
        ([{"resource": "Issue", "field": "issue", "code": "missing"}], NotSeenYet, "issue missing"),
        ([{"resource": "Issue", "field": "title", "code": "missing_field"}], NeedsHumanAction, "title missing_field"),
        (["Could not resolve to a node with the global id of 'PR_kwDOA1'."], NotSeenYet, "'PR_kwDOA1'"),
        (TEAM_UNSEEN, NoAccess, "'T_kwDOA1'"),
        (["Could not resolve to a node with the global id of 'MDQ6VGVhbTE='."], NoAccess, "'MDQ6VGVhbTE='"),
        ([{"resource": "PullRequest", "field": "base", "code": "invalid"}], NeedsHumanAction, "base invalid"),
        ([None, 7], NeedsHumanAction, "Validation Failed"),
    ],
    ids=repr,
)
def test_details_of_a_refusal_count_in_every_shape(errors: object, kind: type[ForgeError], words: str) -> None:
    failure = refusal_of(httpx.Response(422, json={"message": "Validation Failed", "errors": errors}), NOW)
    assert type(failure) is kind
    assert failure.message.startswith("GitHub answered 422: Validation Failed")
    assert words in failure.message


@pytest.mark.parametrize(
    ("kind", "message", "becomes"),
    [
        ("UNPROCESSABLE", "was submitted too quickly", TemporaryFailure),
        ("", "Something went wrong while executing your query. This may be the result of a timeout.", TemporaryFailure),
        (
            "FORBIDDEN",
            "The `acme` organization has an IP allow list enabled, and 192.0.2.1 is not permitted.",
            NoAccess,
        ),
        ("STALE_DATA", "The data is out of date", TemporaryFailure),
        ("UNPROCESSABLE", "Title can't be blank", NeedsHumanAction),
    ],
)
def test_a_graphql_error_is_judged_by_its_words_first(kind: str, message: str, becomes: type[ForgeError]) -> None:
    failure = graphql_failure(kind, message, NOW)
    assert type(failure) is becomes
    assert message in failure.message
    assert "installation" not in failure.hint


RULE = (
    "push declined due to repository rule violations error: GH013: Repository rule violations found for refs/heads/x."
)


@pytest.mark.parametrize(
    ("said", "kind", "hint"),
    [
        (f"{RULE} - GITHUB PUSH PROTECTION ————— Push cannot contain secrets", NeedsHumanAction, "secret"),
        (f"{RULE} - Commits must have verified signatures.", NeedsHumanAction, "sign: true"),
        (f"{RULE} - Changes must be made through the merge queue", NeedsHumanAction, "that rule"),
        ("pre-receive hook declined error: GH001: Large files detected.", NeedsHumanAction, "too large"),
        ("pre-receive hook declined error: GH007: Your push would publish a private email", NeedsHumanAction, "email"),
        ("pre-receive hook declined the house's hook", NeedsHumanAction, "hook"),
        ("fatal error in commit_refs", TemporaryFailure, ""),
        ("This repository was archived so it is read-only.", NoAccess, "archived"),
        ("The 'acme' organization has enabled or enforced SAML SSO.", NoAccess, "single sign-on"),
    ],
)
def test_a_refused_push_is_told_in_githubs_words_first(said: str, kind: type[ForgeError], hint: str) -> None:
    failure = git_failure("push", "GitHub refused the branch x", said, NOW)
    assert type(failure) is kind
    assert failure.message == "GitHub refused the branch x: " + " ".join(said.replace("—", "").split()).replace(
        " - ", " "
    )
    assert hint in failure.hint


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
async def test_an_ended_token_is_replaced_once(forge: GitHubForge, fake_github: FakeGitHubSetup, long: bool) -> None:
    fake_github.world.long_tokens = long
    await forge.ensure_comment("j1", "hello")
    for token in fake_github.world.tokens.values():
        token.expires_at = fake_github.world.now
    await forge.ensure_comment("j2", "hello")
    assert len(fake_github.issue.comments) == 2


async def test_a_wrong_app_key_fails_at_once(fake_github: FakeGitHubSetup) -> None:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import rsa

    other = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = other.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()
    for key in (pem, "not a key"):
        app = AppConnection(
            GitHubHost(API, SITE),
            AppCredentials(APP_ID, key),
            transport=httpx.ASGITransport(fake_github.github),
            now=lambda: fake_github.world.now,
            sleep=fake_github.sleep,
        )
        with pytest.raises(NoAccess) as caught:
            await RepositoryReader(fake_github.api(app)).issue(1)
        assert caught.value.hint
        assert key not in caught.value.message
    assert len(fake_github.github.calls) == 2, "one refusal, one more try with a new signature, no storm"


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_wrong_clock_is_corrected_by_the_server(fake_github: FakeGitHubSetup, minutes: int) -> None:
    real = fake_github.world.now
    fake_github.world.tick(minutes * 60)
    app = AppConnection(
        GitHubHost(API, SITE),
        AppCredentials(APP_ID, app_key()[0]),
        transport=httpx.ASGITransport(fake_github.github),
        now=lambda: real,
        sleep=fake_github.sleep,
    )
    found = await RepositoryReader(fake_github.api(app)).issue(1)
    assert found is not None


@pytest.mark.parametrize("trouble", ["suspended", "removed", "deleted", "archived", "forbidden"])
async def test_lost_access_is_reported_without_retries(
    forge: GitHubForge, fake_github: FakeGitHubSetup, trouble: str
) -> None:
    await forge.ensure_comment("j1", "hello")
    if trouble == "suspended":
        fake_github.installation.suspended = True
    elif trouble == "removed":
        fake_github.installation.repositories.clear()
    elif trouble == "deleted":
        fake_github.world.installations.clear()
    elif trouble == "archived":
        fake_github.repo.archived = True
    else:
        fake_github.installation.permissions["issues"] = "read"
        for token in fake_github.world.tokens.values():
            token.revoked = True
    before = len(fake_github.github.calls)
    with pytest.raises(NoAccess) as caught:
        await forge.ensure_comment("j1", "bye")
    assert caught.value.hint
    assert len(fake_github.github.calls) - before <= 4


SHORT = "ghs_" + "Ab1" * 12
LONG = "ghs_4711_eyJ" + "a1" * 30 + ".eyJ" + "b2" * 150 + "." + "c3" * 60


@pytest.mark.parametrize("token", [SHORT, LONG, "github_pat_" + "1B3d5F7h9J2" * 2 + "_" + ("a9Zq4Lw7" * 8)[:59]])
def test_no_error_tells_a_token(token: str) -> None:
    response = httpx.Response(422, json={"message": f"bad {token} here", "errors": [{"message": f"x {token}"}]})
    failure = refusal_of(response, NOW)
    assert token[8:40] not in str(failure) + repr(failure.to_json())
    assert "bad [redacted] here" in failure.message
    assert token not in mask_secrets(f"https://x-access-token:{token}@host/ Authorization: bearer {token}")


async def test_a_graphql_refusal_has_a_kind(fake_github: FakeGitHubSetup) -> None:
    threads = RepositoryReader(fake_github.api(fake_github.app()))
    moment = fake_github.world.now
    limit = '{"errors": [{"type": "RATE_LIMITED", "message": "API rate limit exceeded"}]}'
    fake_github.github.faults.append(Fault("POST /graphql", 200, body=limit))
    with pytest.raises(RateLimited):
        await threads.review_threads(1, moment)
    fake_github.world.tick(61)
    fake_github.github.faults.append(Fault("POST /graphql", 200, body='{"data": null}'))
    assert await threads.review_threads(1, moment) == (), "one broken answer is asked for again"
    fake_github.installation.repositories.clear()
    with pytest.raises(NoAccess):
        await threads.review_threads(1, moment)


def test_an_enterprise_server_is_spoken_to_at_its_own_addresses() -> None:
    host = GitHubHost("https://ghe.example.com/api/v3", "https://ghe.example.com")
    assert host.rest_version == "2022-11-28"
    assert host.graphql_url == "https://ghe.example.com/api/graphql"
    assert host.git_url("o", "r") == "https://ghe.example.com/o/r.git"
    assert host.noreply == "users.noreply.ghe.example.com"
    public = GitHubHost("https://api.example.com/", "https://example.com/")
    assert (public.rest_version, public.graphql_url) == ("2026-03-10", "https://api.example.com/graphql")


async def test_requests_of_an_enterprise_server_carry_its_version(fake_github: FakeGitHubSetup) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.url.path.endswith("/access_tokens"):
            return httpx.Response(201, json={"token": "ghs_x", "expires_at": "2099-01-01T00:00:00Z"})
        return httpx.Response(200, json={"data": {"repository": {"pullRequest": None}}})

    host = GitHubHost("https://ghe.example.com/api/v3", "https://ghe.example.com")
    app = AppConnection(host, AppCredentials(APP_ID, app_key()[0]), transport=httpx.MockTransport(answer))
    await RepositoryReader(RepositoryApi(app, 1, fake_github.repository)).review_threads(1, NOW)
    assert [str(request.url) for request in seen] == [
        "https://ghe.example.com/api/v3/app/installations/1/access_tokens",
        "https://ghe.example.com/api/graphql",
    ]
    assert seen[1].headers["x-github-api-version"] == "2022-11-28"


def test_nothing_shows_the_private_key() -> None:
    assert "secret" not in repr(AppCredentials(1, "secret"))
