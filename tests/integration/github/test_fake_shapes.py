"""The fake's answers on every route are valid for githubkit's own models of GitHub's answers."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from githubkit import AppAuthStrategy, GitHub
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RequestFailed

from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import API, FakeGitHubSetup, make_fake_github
from tests.support.github.server import ROUTES
from tests.support.github.webhooks import Hooks, signature
from tests.support.github.world import Delivery, Issue, Pull, Review

OWN = ("ada", "sample")


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    made = make_fake_github(tmp_path)
    made.world.push_as_human(made.repo, "topic", {"app/money.py": "half = 0.6\n"})
    made.world.comment(made.repo, made.issue, made.owner, "hello")
    made.world.deliveries.append(Delivery(9, "guid", "issues", "labeled", {}, made.world.now, 502))
    return made


def client(fake_github: FakeGitHubSetup, *, as_app: bool = False) -> GitHub[Any]:
    auth: Any = AppAuthStrategy(APP_ID, app_key()[0])
    if not as_app:
        auth = auth.as_installation(fake_github.installation.id)
    transport = httpx.ASGITransport(fake_github.github)
    return GitHub(
        auth, base_url=API, async_transport=transport, cache_strategy=MemCacheStrategy(), http_cache=False, timeout=30
    )


@pytest.fixture
def pull(fake_github: FakeGitHubSetup) -> Issue:
    pull = fake_github.world.open_issue(
        fake_github.repo, fake_github.owner, "Fix", pull=Pull("topic", "main", draft=True)
    )
    pull.reviews.append(Review(1, fake_github.owner, "please", "COMMENTED", fake_github.world.now))
    fake_github.world.start_thread(fake_github.repo, pull, fake_github.owner, path="app/money.py", line=1, body="why?")
    return pull


async def answers(fake_github: FakeGitHubSetup, pull: Issue) -> AsyncIterator[Any]:
    """Every REST route that the fake has, asked through githubkit's typed methods."""
    fake_github.installation.permissions["members"] = "read"
    github, app = client(fake_github), client(fake_github, as_app=True)
    api, n, head = github.rest, fake_github.issue.number, fake_github.repo.branches["topic"]
    comment, inline = fake_github.issue.comments[0], fake_github.repo.threads[0].comments[0]
    yield await app.rest.apps.async_get_authenticated()
    yield await app.rest.apps.async_get_repo_installation(*OWN)
    yield await app.rest.apps.async_create_installation_access_token(fake_github.installation.id)
    yield await app.rest.apps.async_list_installations()
    fake_github.world.apps["other"] = 77
    yield await api.apps.async_get_by_slug("other")
    yield await app.rest.apps.async_list_webhook_deliveries()
    yield await app.rest.apps.async_get_webhook_config_for_app()
    yield await app.rest.apps.async_redeliver_webhook_delivery(9)
    yield await api.users.async_get_by_username("ada")
    yield await api.users.async_get_by_id(fake_github.owner.id)
    yield await api.repos.async_get(*OWN)
    yield await api.repos.async_get_collaborator_permission_level(*OWN, "ada")
    yield await api.repos.async_get_content(*OWN, "README.md")
    yield await api.repos.async_get_commit(*OWN, head)
    yield await api.repos.async_get_branch(*OWN, "topic")
    fake_github.repo.rules.append({"type": "creation", "ruleset_id": 3, "branches": "x"})
    yield await api.repos.async_get_branch_rules(*OWN, "x")
    yield await api.repos.async_get_repo_ruleset(*OWN, 3)
    fake_github.repo.labels.add("bug")
    yield await api.issues.async_get_label(*OWN, "bug")
    yield await api.actions.async_list_workflow_runs_for_repo(*OWN)
    fake_github.installation.permissions |= {"administration": "read"}
    admin = client(fake_github)
    yield await admin.rest.actions.async_get_github_actions_default_workflow_permissions_repository(*OWN)
    yield await api.repos.async_get_combined_status_for_ref(*OWN, head)
    yield await api.git.async_get_ref(*OWN, "heads/topic")
    blob = await api.git.async_create_blob(*OWN, content="eA==", encoding="base64")
    yield blob
    entry: Any = {"path": "x", "mode": "100755", "type": "blob", "sha": blob.parsed_data.sha}
    made = await api.git.async_create_tree(*OWN, base_tree=f"{head}^{{tree}}", tree=[entry])
    yield made
    yield await api.git.async_create_commit(*OWN, message="x", tree=made.parsed_data.sha, parents=[head])
    yield await api.git.async_list_matching_refs(*OWN, "heads/top")
    yield await api.search.async_issues_and_pull_requests(q="repo:ada/sample is:issue is:open")
    yield await api.issues.async_list_for_repo(*OWN)
    yield await api.issues.async_get(*OWN, n)
    yield await api.issues.async_list_comments(*OWN, n)
    yield await api.issues.async_create_comment(*OWN, n, body="hello")
    yield await api.issues.async_update_comment(*OWN, comment, body="hello again")
    yield await api.issues.async_add_labels(*OWN, n, labels=["bug"])
    yield await api.issues.async_list_labels_on_issue(*OWN, n)
    yield await api.issues.async_remove_label(*OWN, n, "bug")
    yield await api.reactions.async_create_for_issue(*OWN, n, content="eyes")
    yield await api.reactions.async_create_for_issue_comment(*OWN, comment, content="rocket")
    yield await api.reactions.async_create_for_pull_request_review_comment(*OWN, inline, content="confused")
    yield await api.pulls.async_list(*OWN)
    yield await api.pulls.async_get(*OWN, pull.number)
    yield await api.pulls.async_update(*OWN, pull.number, title="Fix it")
    yield await api.pulls.async_list_files(*OWN, pull.number)
    yield await api.pulls.async_list_reviews(*OWN, pull.number)
    yield await api.pulls.async_list_review_comments(*OWN, pull.number)
    yield await api.pulls.async_create_reply_for_review_comment(*OWN, pull.number, inline, body="because")
    fake_github.repo.collaborators[fake_github.world.add_user("grace").id] = "write"
    people: Any = {"reviewers": ["grace"], "team_reviewers": ["core"]}
    yield await api.pulls.async_request_reviewers(*OWN, pull.number, data=people)
    yield await api.pulls.async_list_requested_reviewers(*OWN, pull.number)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    review = fake_github.world.review(pull, fake_github.owner, "please").id
    yield await api.issues.async_list_comments_for_repo(*OWN, since=since)
    yield await api.issues.async_get_comment(*OWN, comment)
    yield await api.issues.async_list_events(*OWN, n)
    yield await api.issues.async_list_events_for_timeline(*OWN, n)
    yield await api.pulls.async_list_review_comments_for_repo(*OWN, since=since)
    yield await api.pulls.async_get_review_comment(*OWN, inline)
    yield await api.pulls.async_get_review(*OWN, pull.number, review)
    yield await api.pulls.async_list_commits(*OWN, pull.number)
    yield await api.repos.async_compare_commits(*OWN, "main...topic")
    yield await api.apps.async_list_repos_accessible_to_installation(per_page=100, page=1)
    pull.state = "closed"
    yield await api.pulls.async_create(*OWN, title="Again", head="topic", base="main", draft=True)
    check = await api.checks.async_create(*OWN, data={"name": "agent-fix", "head_sha": head, "status": "in_progress"})
    yield check
    ended: Any = {"status": "completed", "conclusion": "success"}
    yield await api.checks.async_update(*OWN, check.parsed_data.id, data=ended)
    yield await api.checks.async_list_for_ref(*OWN, head)
    yield await api.checks.async_list_annotations(*OWN, check.parsed_data.id)
    yield await api.apps.async_revoke_installation_access_token()


async def test_every_answer_passes_githubkits_models(fake_github: FakeGitHubSetup, pull: Issue) -> None:
    asked = 0
    async for answer in answers(fake_github, pull):
        if answer.content:
            assert answer.parsed_data is not None
        asked += 1
    routes = {(method, path) for method, path, *_ in ROUTES} - {("GET", "/actions/jobs/{id:int}/logs")}
    assert asked >= len(routes) + 12, "a route is not asked here"


@pytest.mark.parametrize(
    ("permissions", "refused"),
    [({"contents": "read"}, 403), ({"issues": "read"}, 403), ({"issues": "write"}, 0)],
)
async def test_a_token_does_only_what_it_was_made_for(
    fake_github: FakeGitHubSetup, permissions: dict[str, str], refused: int
) -> None:
    auth: Any = AppAuthStrategy(APP_ID, app_key()[0]).as_installation(
        fake_github.installation.id,
        permissions=permissions,  # type: ignore[arg-type]
    )
    github = GitHub(
        auth, base_url=API, async_transport=httpx.ASGITransport(fake_github.github), cache_strategy=MemCacheStrategy(),
        auto_retry=False, http_cache=False,
    )  # fmt: skip
    status = 0
    try:
        await github.rest.issues.async_create_comment(*OWN, fake_github.issue.number, body="hello")
    except RequestFailed as error:
        status = error.response.status_code
    assert status == refused


async def test_webhooks_are_signed_recorded_and_sent_again_under_the_same_id(fake_github: FakeGitHubSetup) -> None:
    received: list[httpx.Request] = []

    def receiver(request: httpx.Request) -> httpx.Response:
        received.append(request)
        return httpx.Response(202)

    async with httpx.AsyncClient(transport=httpx.MockTransport(receiver), base_url="http://bot.example") as http:
        hooks = Hooks(fake_github.world, http, "s3cret")
        with hooks.down():
            lost = await hooks.labeled(
                fake_github.repo, fake_github.installation, fake_github.owner, fake_github.issue, "agent-fix"
            )
        assert (lost.status, received) == (502, [])
        app = client(fake_github, as_app=True)
        await app.rest.apps.async_redeliver_webhook_delivery(lost.id)
        assert await hooks.attempt_asked() == 1
        comment = fake_github.repo.comments[fake_github.issue.comments[0]]
        await hooks.commented(fake_github.repo, fake_github.installation, fake_github.owner, fake_github.issue, comment)
    first, second = received
    assert first.headers["x-github-delivery"] == lost.guid != second.headers["x-github-delivery"]
    assert first.headers["x-hub-signature-256"] == signature("s3cret", first.content)
    assert [request.headers["x-github-event"] for request in received] == ["issues", "issue_comment"]
