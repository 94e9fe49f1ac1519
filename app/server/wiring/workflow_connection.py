"""How the steps of a workflow get in to GitHub: with the token they were given, or as an App."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.config.settings import Settings
from app.github.auth import AppRegistration
from app.github.connection import AppConnection, AppCredentials, GitHubHost, TokenConnection


@asynccontextmanager
async def connect(settings: Settings, owner: str, name: str, token: str) -> AsyncIterator[TokenConnection]:
    """With the token that was given, or, where an App was, with a new one of its own.

    An App's token ends after an hour, and a job may take longer: so each step makes one, and revokes it at its end.
    """
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
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
