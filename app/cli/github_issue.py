"""Reads a GitHub issue for the command line, with the environment's token, or without one if public."""

from app.config.settings import Settings
from app.config.workflow import github_token
from app.core.errors import ExitCode, IssueError
from app.core.issue_file import IssueAddress, issue_of
from app.core.task import Issue
from app.github.base import GIVEN
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.errors import ForgeError, NoAccess
from app.github.models import GitHubIssue
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi


async def fetch_issue(settings: Settings, address: IssueAddress) -> Issue:
    """Title, body and labels. Raises IssueError with the reason."""
    host = GitHubHost(settings.github_api_url, settings.github_url, settings.proxy)
    async with TokenConnection(host, github_token(settings.environment)) as bearer:
        return await read_issue_at(bearer, address)


async def read_issue_at(bearer: TokenConnection, address: IssueAddress) -> Issue:
    """The same over an open connection."""
    site = bearer.host.server_url
    if not address.is_on(site):
        raise _unreadable(
            f"{address} is on {address.server}, but agent-fix is configured for {site}",
            f"set AGENT_FIX_GITHUB_URL={address.server}, with a token of that server",
        )
    found = await _find(bearer, address)
    if found is None:
        raise _unreadable(f"{address.owner}/{address.name} has no issue {address.number}")
    if found.pull_request:
        raise _unreadable(f"{address} is a pull request", "use an issue, or comment `/agent …` on the pull request")
    issue = issue_of(found.title, found.body, number=found.number, labels=found.labels)
    page = f"{site}/{address.owner}/{address.name}/issues/{address.number}"
    return issue.model_copy(update={"url": page})


async def _find(bearer: TokenConnection, address: IssueAddress) -> GitHubIssue | None:
    listener = RepositoryApi(bearer, GIVEN, RepositoryId(0, address.owner, address.name))
    try:
        return await RepositoryReader(listener).issue(address.number)
    except NoAccess as error:
        held = bearer.token
        hint = (
            "check that the token in GITHUB_TOKEN may read it"
            if held
            else "a private repository needs a token: set GITHUB_TOKEN"
        )
        raise _unreadable(f"{address} cannot be read: {error.message}", hint) from error
    except ForgeError as error:
        raise _unreadable(f"{address} cannot be read: {error.message}", error.hint) from error


def _unreadable(message: str, hint: str = "") -> IssueError:
    return IssueError(message, code=ExitCode.ISSUE_UNREADABLE, hint=hint)
