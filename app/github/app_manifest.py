"""Builds the manifest of a GitHub App, and exchanges the code that GitHub returns for the App's credentials."""

import re
from typing import Any, Final

import httpx
from githubkit import GitHub, UnauthAuthStrategy
from githubkit.config import get_config
from githubkit.exception import GitHubException
from pydantic import Field

from app.core.clock import utc_now
from app.core.errors import AgentFixError
from app.github.calls import BY_APP, CONVERT_MANIFEST, grant
from app.github.connection import TIMEOUT, GitHubHost
from app.github.http_client import failure_of, parsed
from app.github.models import GitHubModel

PERMISSIONS: Final = grant(BY_APP)
"""The minimum. Without `workflows`, GitHub refuses a commit that touches a workflow."""
EVENTS: Final = (
    "issues",
    "issue_comment",
    "pull_request",
    "pull_request_review",
    "pull_request_review_comment",
    "check_suite",
    "check_run",
    "workflow_run",
    "push",
    "repository",
)
"""GitHub sends installation events anyway, and refuses a manifest that names them."""
MAX_NAME: Final = 34
_CODE = re.compile(r"[A-Za-z0-9_-]{8,200}")


class NewAppResponse(GitHubModel):
    """The credentials that GitHub shows once, when the App is created."""

    id: int
    slug: str
    html_url: str
    client_id: str = ""
    client_secret: str = Field(default="", repr=False)
    webhook_secret: str | None = Field(default=None, repr=False)
    pem: str = Field(repr=False)


def manifest(*, name: str, home: str, hook: str, redirect: str, callback: str) -> dict[str, Any]:
    """The manifest that the person's browser sends to GitHub. `hook` is empty for an App without webhooks.

    `callback` is where GitHub sends people back to who sign in to the dashboard.
    """
    # GitHub requires the webhook's URL if `hook_attributes` or events are present, even with `active: false`.
    webhooks = {"hook_attributes": {"url": hook, "active": True}, "default_events": list(EVENTS)}
    return {
        "name": name,
        "url": home,
        "description": "Label an issue, get a draft pull request with proof.",
        "public": False,
        "redirect_url": redirect,
        "callback_urls": [callback],
        "default_permissions": dict(PERMISSIONS),
        **(webhooks if hook else {}),
    }


def page_to_make_it(server_url: str, organisation: str, state: str) -> str:
    """The address that receives the manifest: the settings of an organisation, or of the signed-in user."""
    owner = f"/organizations/{organisation}" if organisation else ""
    return f"{server_url.rstrip('/')}{owner}/settings/apps/new?state={state}"


async def exchange(host: GitHubHost, code: str, *, transport: httpx.AsyncBaseTransport | None = None) -> NewAppResponse:
    """The App's credentials for a code that is valid once, for one hour. Raises AgentFixError or ForgeError."""
    if not _CODE.fullmatch(code):
        raise AgentFixError("This is not a code from GitHub.", hint="Start again with the button.")
    config = get_config(
        base_url=host.api_url,
        user_agent="agent-fix",
        follow_redirects=False,
        timeout=TIMEOUT,
        async_transport=transport or httpx.AsyncHTTPTransport(proxy=host.proxy),
        http_cache=False,
        auto_retry=False,
    )
    headers = {"X-GitHub-Api-Version": host.rest_version}
    try:
        async with GitHub(UnauthAuthStrategy(), config=config) as client:
            answer = await client.arequest(CONVERT_MANIFEST.method, CONVERT_MANIFEST.at(code), headers=headers)
    except GitHubException as error:
        raise failure_of(error, utc_now()) from None
    return parsed(NewAppResponse, answer.raw_response)
