"""An issue of a GitHub repository for the command line, read with the environment's token, or without one if public."""

from urllib.parse import urlsplit

from app.errors import ExitCode, IssueError
from app.forge.base import GIVEN
from app.forge.errors import ForgeError, NoAccess
from app.forge.facts import IssueFacts
from app.forge.github.connection import Bearer, Host, RepositoryId
from app.forge.github.door import Door
from app.forge.github.reads import Reader
from app.issue import IssueAddress, issue_of
from app.settings import Settings
from app.settings.workflow import github_token
from app.task import Issue


async def fetch_issue(settings: Settings, address: IssueAddress) -> Issue:
    """Title, body and labels. Raises IssueError, with what is in the way."""
    host = Host(settings.github_api_url, settings.github_url, settings.proxy)
    async with Bearer(host, github_token(settings.environment)) as bearer:
        return await read_issue_at(bearer, address)


async def read_issue_at(bearer: Bearer, address: IssueAddress) -> Issue:
    """The same by a connection. No token goes to another server than the one it is for."""
    site = bearer.host.server_url
    if address.server and _host(address.server) != _host(site):
        raise _unreadable(
            f"{address} is on {address.server}, and agent-fix is set up for {site}",
            f"set AGENT_FIX_GITHUB_URL={address.server}, with a token of that server",
        )
    found = await _find(bearer, address)
    if found is None:
        raise _unreadable(f"{address.owner}/{address.name} has no issue {address.number}")
    if found.pull_request:
        raise _unreadable(f"{address} is a pull request", "name an issue, or comment `/agent …` on the pull request")
    return issue_of(found.title, found.body, number=found.number, labels=found.labels)


async def _find(bearer: Bearer, address: IssueAddress) -> IssueFacts | None:
    door = Door(bearer, GIVEN, RepositoryId(0, address.owner, address.name))
    try:
        return await Reader(door).issue(address.number)
    except NoAccess as error:
        held = bearer.token
        hint = "may the token in GITHUB_TOKEN read it?" if held else "a private one needs a token: set GITHUB_TOKEN"
        raise _unreadable(f"{address} cannot be read: {error.message}", hint) from error
    except ForgeError as error:
        raise _unreadable(f"{address} cannot be read: {error.message}", error.hint) from error


def _host(address: str) -> str:
    return urlsplit(address).netloc.casefold()


def _unreadable(message: str, hint: str = "") -> IssueError:
    return IssueError(message, code=ExitCode.ISSUE_UNREADABLE, hint=hint)
