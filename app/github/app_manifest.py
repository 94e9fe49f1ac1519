"""How a GitHub App is made from a manifest: what it asks for, and its key in exchange for the code of its making."""

import re
from typing import Any, Final

import httpx
from githubkit import GitHub, UnauthAuthStrategy
from githubkit.config import get_config
from githubkit.exception import GitHubException
from pydantic import Field

from app.core.errors import AgentFixError
from app.github.api_models import ApiModel
from app.github.calls import BY_APP, CONVERT_MANIFEST, grant
from app.github.connection import TIMEOUT, GitHubHost
from app.github.failures import failure_of
from app.github.http_client import parsed
from app.github.rate_limit import utc_now

PERMISSIONS: Final = grant(BY_APP)
"""The least. Without `workflows` GitHub itself refuses a commit that touches one."""
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
"""Installations are told of without being asked for; a manifest that names them is refused."""
MAX_NAME: Final = 34
_CODE = re.compile(r"[A-Za-z0-9_-]{8,200}")


class NewAppResponse(ApiModel):
    """What GitHub gives out once, when the App is made."""

    id: int
    slug: str
    html_url: str
    webhook_secret: str | None = Field(default=None, repr=False)
    pem: str = Field(repr=False)


def manifest(*, name: str, home: str, hook: str, redirect: str) -> dict[str, Any]:
    """The form that GitHub is sent with the person's browser. `hook` is empty for an App without webhooks."""
    # GitHub wants the webhook's address wherever `hook_attributes` or events are there, even with `active: false`.
    webhooks = {"hook_attributes": {"url": hook, "active": True}, "default_events": list(EVENTS)}
    return {
        "name": name,
        "url": home,
        "description": "Label an issue, get a draft pull request with proof.",
        "public": False,
        "redirect_url": redirect,
        "default_permissions": dict(PERMISSIONS),
        **(webhooks if hook else {}),
    }


def page_to_make_it(server_url: str, organisation: str, state: str) -> str:
    """Where the form goes: the settings of an organisation, or of whoever is logged in."""
    owner = f"/organizations/{organisation}" if organisation else ""
    return f"{server_url.rstrip('/')}{owner}/settings/apps/new?state={state}"


async def exchange(host: GitHubHost, code: str, *, transport: httpx.AsyncBaseTransport | None = None) -> NewAppResponse:
    """The App's number, key and secret. Good for one time and one hour, so that a failure means to begin again."""
    if not _CODE.fullmatch(code):
        raise AgentFixError("That is no code of GitHub's.", hint="Begin again with the button.")
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
