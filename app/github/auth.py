"""How we get in to GitHub: as an App, from its manifest to its installations, or with a given token."""

import re
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

import httpx
from githubkit import GitHub, UnauthAuthStrategy
from githubkit.cache import MemCacheStrategy
from githubkit.exception import GitHubException
from pydantic import Field

from app.core.clock import utc_now
from app.core.errors import AgentFixError
from app.github import calls, models
from app.github.base import GIVEN, ForgeError, NeedsHumanAction, NoAccess
from app.github.calls import BY_APP, CONVERT_MANIFEST, Call, grant
from app.github.connection import AppConnection, Connection, GitHubHost, Grant, TokenConnection, configured
from app.github.http_client import HttpClient, parsed
from app.github.models import GitHubModel
from app.github.refusals import NotFoundOnGitHub, failure_of

T = TypeVar("T")
MAX_PAGES = 30
INSTALL_IT = "Install it there, by the App's settings on GitHub."


class AppRegistration:
    """Requests that are signed with the App's key instead of a token."""

    def __init__(self, app: AppConnection) -> None:
        self._app = app
        self._http = HttpClient(app, app.pace(0))

    async def identity(self) -> models.AppResponse:
        return await self._read(models.AppResponse, calls.GET_APP)

    async def hook(self) -> models.HookConfig | None:
        """The App's webhook settings; None if it has no webhook."""
        try:
            return await self._read(models.HookConfig, calls.GET_HOOK)
        except NotFoundOnGitHub:
            return None

    async def login(self) -> str:
        return f"{(await self.identity()).slug}[bot]"

    async def serves(self, owner: str, name: str) -> int | None:
        found = await self.installation_of(owner, name)
        return found.id if found is not None and found.suspended_at is None else None

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        """A new token for this repository only."""
        http = HttpClient(self._app, self._app.pace(installation))
        return await self._new_token(http, installation, {"repository_ids": [repository]}, permissions)

    async def workflow_token(self, owner: str, name: str) -> tuple[int, str]:
        """The installation that this repository is in, and a new token of it for one step of a workflow.

        The token may do what the Action's calls need, as far as the App was granted it.
        """
        found = await self.installation_of(owner, name)
        if found is None or found.suspended_at is not None:
            raise NoAccess(f"The App is not installed in {owner}/{name}, or suspended there.", hint=INSTALL_IT)
        wanted = {name: access for name, access in grant(calls.IN_WORKFLOWS).items() if found.grants(name, access)}
        return found.id, await self._new_token(self._http, found.id, {"repositories": [name]}, wanted)

    async def _new_token(
        self, http: HttpClient, installation: int, repositories: dict[str, Any], permissions: Grant
    ) -> str:
        body, client = {**repositories, "permissions": dict(permissions)}, self._app.as_app()
        answer = await http.with_retries(lambda: http.request(client, calls.CREATE_TOKEN, installation, body=body))
        return parsed(models.TokenResponse, answer).token

    async def revoke(self, installation: int, token: str) -> None:
        """Errors are ignored: the token expires within the hour anyway."""
        http = HttpClient(self._app, self._app.pace(installation))
        try:
            await http.request(self._app.with_token(token), calls.REVOKE_TOKEN)
        except ForgeError:
            return

    async def installation_of(self, owner: str, name: str) -> models.InstallationResponse | None:
        """The installation of this repository according to GitHub, never only according to a payload."""
        try:
            return await self._read(models.InstallationResponse, calls.GET_INSTALLATION, owner, name)
        except NotFoundOnGitHub:
            return None

    async def installations(self) -> tuple[models.InstallationResponse, ...]:
        """All installations, including suspended ones."""
        items = self._http.pages(models.InstallationResponse, self._app.as_app(), calls.LIST_INSTALLATIONS)
        return tuple([item async for item in items])

    async def repository(self, owner: str, name: str) -> tuple[int, models.Repository]:
        """The repository of this name, and the installation that it is in. Raises NoAccess if the App cannot use it."""
        installation = await self.serves(owner, name)
        if installation is None:
            raise NoAccess(f"The App is not installed in {owner}/{name}.", hint=INSTALL_IT)
        wanted = (owner.casefold(), name.casefold())
        for each in await self.repositories(installation):
            if (each.owner.casefold(), each.name.casefold()) == wanted:
                return installation, each
        raise NoAccess(f"The App's installation has no access to {owner}/{name}.", hint=INSTALL_IT)

    async def repositories(self, installation: int) -> tuple[models.Repository, ...]:
        """The repositories of an installation, read with a token that can only list them."""
        client = self._app.as_installation(installation, None, grant([calls.LIST_REPOSITORIES.purpose]))
        http = HttpClient(self._app, self._app.pace(installation))
        return tuple([item async for item in http.pages(models.Repository, client, calls.LIST_REPOSITORIES)])

    async def deliveries(self, since: datetime) -> tuple[models.DeliveryResponse, ...]:
        """The deliveries since a moment, newest first. GitHub keeps them for three days."""
        found: list[models.DeliveryResponse] = []
        address, params = "", dict[str, Any](per_page=100)
        for _ in range(MAX_PAGES):
            client = self._app.as_app()
            answer = await self._http.get(client, calls.LIST_DELIVERIES, params=params or None, address=address)
            page = parsed(list[models.DeliveryResponse], answer)
            found += [item for item in page if item.delivered_at >= since]
            address, params = answer.links.get("next", {}).get("url", ""), {}
            if not address or not page or page[-1].delivered_at < since:
                break
        return tuple(found)

    async def redeliver(self, delivery: int) -> None:
        """Ask GitHub to send a delivery again, with the same guid."""
        await self._http.request(self._app.as_app(), calls.REDELIVER, delivery, mutation=True)

    async def _read(self, kind: type[T], call: Call, *values: str) -> T:
        return parsed(kind, await self._http.get(self._app.as_app(), call, *values))


def missed(deliveries: tuple[models.DeliveryResponse, ...]) -> tuple[models.DeliveryResponse, ...]:
    """Deliveries without a successful attempt, one for each guid: a redelivery has the guid of the first attempt."""
    received = {item.guid for item in deliveries if 200 <= item.status_code < 300}
    open_ones = {item.guid: item for item in deliveries if item.guid not in received}
    return tuple(open_ones.values())


ACTIONS_BOT: Final = "github-actions[bot]"


class Auth(Protocol):
    """What an App and a token have in common. Installations and webhooks are in `AppRegistration` only."""

    async def login(self) -> str:
        """The login of our own account."""

    async def serves(self, owner: str, name: str) -> int | None:
        """The installation that gives access to this repository now; None without access."""

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        """A token for git; the caller revokes it."""

    async def revoke(self, installation: int, token: str) -> None: ...


class TokenAuth:
    """A given token: we never widen, narrow or revoke it."""

    def __init__(self, bearer: TokenConnection) -> None:
        self._connection = bearer
        self._http = HttpClient(bearer, bearer.pace(GIVEN))

    async def login(self) -> str:
        """Read by REST for a person's token, by GraphQL for an App's or a workflow's token."""
        client = self._connection.with_token(self._connection.token)
        try:
            return parsed(models.Account, await self._http.get(client, calls.GET_SELF)).login
        except NoAccess:
            pass
        try:
            answer = await self._http.request(client, calls.VIEWER, body={"query": calls.VIEWER.text})
        except (NoAccess, NeedsHumanAction):
            return ACTIONS_BOT
        return parsed(models.ViewerAnswer, answer).login or ACTIONS_BOT

    async def serves(self, owner: str, name: str) -> int | None:
        client = self._connection.with_token(self._connection.token)
        try:
            await self._http.with_retries(lambda: self._http.request(client, calls.GET_REPOSITORY, owner, name))
        except NotFoundOnGitHub:
            return None
        return GIVEN

    async def token_for(self, installation: int, repository: int, permissions: Grant) -> str:
        return self._connection.token

    async def revoke(self, installation: int, token: str) -> None:
        return


def auth_for(connection: Connection) -> Auth:
    match connection:
        case AppConnection():
            return AppRegistration(connection)
        case TokenConnection():
            return TokenAuth(connection)
    raise TypeError(f"unknown connection {type(connection).__name__}")


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
    config = configured(host, transport or host.transport(), MemCacheStrategy())
    headers = {"X-GitHub-Api-Version": host.rest_version}
    try:
        async with GitHub(UnauthAuthStrategy(), config=config) as client:
            answer = await client.arequest(CONVERT_MANIFEST.method, CONVERT_MANIFEST.at(code), headers=headers)
    except GitHubException as error:
        raise failure_of(error, utc_now()) from None
    return parsed(NewAppResponse, answer.raw_response)
