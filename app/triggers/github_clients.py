"""The GitHub clients and readers of repositories for one kind of access, and the bot's own identity."""

from dataclasses import dataclass

from app.core.task import Person
from app.github.checks import ChecksApi
from app.github.comments import CommentsApi, ReviewThreadsApi
from app.github.connection import Connection, RepositoryId
from app.github.identity import find_bot_user
from app.github.reader import PullRequestsApi, RepositoryReader
from app.github.repository_api import RepositoryApi
from app.triggers.decisions import BotAccount


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The bot's account: id for rules, login for people, author for commits."""

    bot: BotAccount
    login: str
    person: Person


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
        self._identity: BotIdentity | None = None

    def for_repository(self, installation: int, repository: RepositoryId) -> RepositoryClients:
        return RepositoryClients(RepositoryApi(self.app, installation, repository))

    @property
    def known(self) -> BotIdentity | None:
        """The bot's identity, if it was already loaded."""
        return self._identity

    async def ourselves(self, readers: RepositoryClients) -> BotIdentity:
        """Load the bot's identity with any repository's access: GitHub does not tell an App without one."""
        if self._identity is None:
            found = await find_bot_user(readers.api)
            bot = BotAccount(app=self.app.app_id, user=found.user, allowed_apps=self._allowed_apps)
            self._identity = BotIdentity(bot, found.login, found.person)
        return self._identity
