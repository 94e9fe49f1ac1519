"""The GitHub clients and readers of repositories for one kind of access, and the bot's own identity."""

from collections.abc import Awaitable
from typing import TypeVar

from app.github.checks import ChecksApi
from app.github.comments import CommentsApi, ReviewThreadsApi
from app.github.connection import Connection, RepositoryId
from app.github.errors import NoAccess
from app.github.models import BotAccount
from app.github.reader import PullRequestsApi, RepositoryReader
from app.github.repository_api import RepositoryApi, find_bot_account

T = TypeVar("T")


class RepositoryClients:
    """The clients of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self.api = api
        self.facts = RepositoryReader(api)
        self.comments = CommentsApi(api)
        self.pulls = PullRequestsApi(api)
        self.checks = ChecksApi(api)
        self.threads = ReviewThreadsApi(api, "")


class GitHubClients:
    """One GitHub server, with one kind of access."""

    def __init__(self, app: Connection, allowed_apps: frozenset[int] = frozenset()) -> None:
        self.app = app
        self._allowed_apps = allowed_apps
        self.known: BotAccount | None = None
        """The bot's account, if it was already loaded."""

    def for_repository(self, installation: int, repository: RepositoryId) -> RepositoryClients:
        return RepositoryClients(RepositoryApi(self.app, installation, repository))

    async def ourselves(self, readers: RepositoryClients) -> BotAccount:
        """Load the bot's account with any repository's access: GitHub does not tell an App without one."""
        if self.known is None:
            found = await find_bot_account(readers.api)
            self.known = found.model_copy(update={"allowed_apps": self._allowed_apps})
        return self.known


async def if_accessible(request: Awaitable[T]) -> T | None:
    """None for what was deleted or transferred, or what the installation may not read in this repository."""
    try:
        return await request
    except NoAccess:
        return None
