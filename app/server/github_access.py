"""How the steps of a workflow and `agent-fix doctor` get in to GitHub: with a token they were given, or as an App."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.config.settings import Settings
from app.config.signing import SigningKey
from app.config.workflow import TOKEN, github_token
from app.core.checks import Check
from app.core.errors import AgentFixError
from app.github.auth import AppRegistration
from app.github.connection import AppConnection, AppCredentials, GitHubHost, TokenConnection
from app.github.repository_doctor import examine_app, examine_token
from app.triggers.rules import LABEL


@asynccontextmanager
async def connect(settings: Settings, owner: str, name: str, token: str) -> AsyncIterator[TokenConnection]:
    """With the given token, or, if an App was given, with a new token of its own.

    An App's token ends after an hour, and a job may take longer: so each step makes one, and revokes it at its end.
    """
    host = GitHubHost.of(settings)
    if not settings.app_id:
        async with TokenConnection(host, token) as bearer:
            yield bearer
        return
    async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
        registration = AppRegistration(app)
        installation, made = await registration.workflow_token(owner, name)
        try:
            async with TokenConnection(host, made, app_id=settings.app_id) as bearer:
                yield bearer
        finally:
            await registration.revoke(installation, made)


async def examine(settings: Settings, owner: str, name: str) -> list[Check]:
    """A token that is meant for agent-fix comes first, then the App, then a token of the environment."""
    host = GitHubHost.of(settings)
    token, signs = github_token(settings.environment), SigningKey.of(settings.environment) is not None
    if settings.app_id and settings.app_key and not settings.environment.get(TOKEN, "").strip():
        async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
            return await examine_app(app, owner, name, LABEL, signs=signs)
    if not token:
        raise AgentFixError(
            "There are no credentials for GitHub.",
            hint="Set AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY, or a token as GITHUB_TOKEN.",
        )
    async with TokenConnection(host, token) as bearer:
        return await examine_token(bearer, owner, name, LABEL, signs=signs)
