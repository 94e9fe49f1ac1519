"""Whether agent-fix can work in a repository of GitHub, asked as the server's App or with a token we were given."""

from app.config.settings import Settings
from app.config.workflow import TOKEN, github_token
from app.core.checks import Check
from app.core.errors import AgentFixError
from app.github.connection import AppConnection, AppCredentials, GitHubHost, TokenConnection
from app.github.repository_doctor import examine_app, examine_token
from app.triggers.rules import LABEL


async def examine(settings: Settings, owner: str, name: str) -> list[Check]:
    """A token that is meant for agent-fix comes first, then the App, then a token of the environment."""
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
    token = github_token(settings.environment)
    if settings.app_id and settings.app_key and not settings.environment.get(TOKEN, "").strip():
        async with AppConnection(host, AppCredentials(settings.app_id, settings.private_key)) as app:
            return await examine_app(app, owner, name, LABEL)
    if not token:
        raise AgentFixError(
            "There are no credentials for GitHub.",
            hint="Set AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY, or a token as GITHUB_TOKEN.",
        )
    async with TokenConnection(host, token) as bearer:
        return await examine_token(bearer, owner, name, LABEL)
