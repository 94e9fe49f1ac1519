"""Signs people in with GitHub as users of the App, and reads which repositories they may open.

browser ─► GitHub's page (state, challenge) ─► code ─► the person's token (verifier) ─► who they are, what they may do
"""

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import httpx
from githubkit import GitHub
from pydantic import Field

from app.core.clock import utc_now
from app.core.errors import AgentFixError
from app.github.base import TemporaryFailure
from app.github.calls import DELETE_USER_TOKEN, GET_SELF, LIST_USER_INSTALLATIONS, LIST_USER_REPOSITORIES
from app.github.connection import TIMEOUT, GitHubHost, TokenConnection
from app.github.http_client import HttpClient, parsed
from app.github.models import Account, GitHubModel, InstallationResponse, Repository
from app.github.refusals import NotFoundOnGitHub


class SignInRefused(AgentFixError):  # noqa: N818  # an answer
    """GitHub gave no token for a code: it is wrong, used, too old, or was made for another browser."""


@dataclass(frozen=True, slots=True)
class SignedInPerson:
    """Who signed in. `rights` has their base permission in each repository where the App is installed, by its id."""

    user: int
    login: str
    rights: Mapping[int, str]


class TokenAnswer(GitHubModel):
    """The answer to a code; GitHub answers errors with status 200 too."""

    access_token: str = Field(default="", repr=False)
    error: str = ""
    error_description: str = ""


@dataclass(frozen=True)
class GitHubSignIn:
    """The App's client. All calls but `address` raise ForgeError if GitHub does not answer or refuses the token."""

    host: GitHubHost
    client_id: str
    client_secret: str = field(repr=False)
    transport: httpx.AsyncBaseTransport | None = None
    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def address(self, *, state: str, verifier: str, redirect: str) -> str:
        """GitHub's page that asks the person."""
        query = {
            "client_id": self.client_id,
            "redirect_uri": redirect,
            "state": state,
            "code_challenge": challenge(verifier),
            "code_challenge_method": "S256",
        }
        return f"{self.host.server_url.rstrip('/')}/login/oauth/authorize?{urlencode(query)}"

    async def token(self, code: str, *, verifier: str, redirect: str) -> str:
        """The person's token for a code. Raises SignInRefused, or TemporaryFailure if GitHub does not answer."""
        form = {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        address = f"{self.host.server_url.rstrip('/')}/login/oauth/access_token"
        try:
            async with self._client() as client:
                answer = await client.post(address, data=form, headers={"accept": "application/json"})
        except httpx.HTTPError as error:
            raise TemporaryFailure(f"GitHub did not answer ({type(error).__name__}).") from None
        if answer.status_code >= 500:
            raise TemporaryFailure(f"GitHub answered {answer.status_code}.")
        found = parsed(TokenAnswer, answer) if answer.status_code == 200 else TokenAnswer(error=str(answer.status_code))
        if not found.access_token:
            reason = found.error_description or "GitHub gave no token."
            raise SignInRefused(reason, hint="Sign in again.")
        return found.access_token

    async def person(self, token: str) -> SignedInPerson:
        async with self._connection(token) as connection:
            http, client = HttpClient(connection, connection.pace(0)), connection.with_token(token)
            found = parsed(Account, await http.get(client, GET_SELF))
            return SignedInPerson(found.id, found.login, await _rights(http, client))

    async def rights(self, token: str) -> dict[int, str]:
        """The person's base permission (admin, write or read) in each repository that they and the App may open."""
        async with self._connection(token) as connection:
            http, client = HttpClient(connection, connection.pace(0)), connection.with_token(token)
            return await _rights(http, client)

    async def revoke(self, token: str) -> None:
        """Errors are ignored: the token expires within hours anyway."""
        address = self.host.api_url.rstrip("/") + DELETE_USER_TOKEN.at(self.client_id)
        headers = {"accept": "application/vnd.github+json", "x-github-api-version": self.host.rest_version}
        credentials, body = (self.client_id, self.client_secret), {"access_token": token}
        try:
            async with self._client() as client:
                await client.request(DELETE_USER_TOKEN.method, address, json=body, auth=credentials, headers=headers)
        except httpx.HTTPError:
            return

    def _client(self) -> httpx.AsyncClient:
        transport = self.transport or self.host.transport()
        return httpx.AsyncClient(transport=transport, timeout=TIMEOUT, follow_redirects=False)

    def _connection(self, token: str) -> TokenConnection:
        return TokenConnection(self.host, token, transport=self.transport, now=self.now, sleep=self.sleep)


async def _rights(http: HttpClient, client: GitHub[Any]) -> dict[int, str]:
    rights: dict[int, str] = {}
    async for installation in http.pages(InstallationResponse, client, LIST_USER_INSTALLATIONS):
        if installation.suspended_at is not None:
            continue
        try:
            async for each in http.pages(Repository, client, LIST_USER_REPOSITORIES, installation.id):
                rights[each.id] = each.permissions.permission
        except NotFoundOnGitHub:  # the App was removed there meanwhile
            continue
    return {repository: right for repository, right in rights.items() if right != "none"}


def challenge(verifier: str) -> str:
    """The PKCE challenge (S256) of a verifier."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
