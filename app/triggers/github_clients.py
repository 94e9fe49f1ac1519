"""Opens repositories on one GitHub with one kind of access, and knows the bot's own account there."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from app.config.repository import SOURCE, OperatorDefaults, RepoConfig, parse_config
from app.core.errors import ConfigError
from app.core.task import IssueRef
from app.github.base import NoAccess, UnexpectedAnswer
from app.github.connection import Connection, RepositoryId
from app.github.models import BotAccount, Repository
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi, find_bot_account

if TYPE_CHECKING:
    from app.repo.git_store import GitStore

T = TypeVar("T")
logger = logging.getLogger(__name__)
Mirror = Callable[[int], "GitStore"]
"""The trusted repository for a forge's repository, by its number."""


@dataclass(frozen=True, slots=True)
class RepositoryContext:
    """A repository that we have access to. `repository` has its current name."""

    reader: RepositoryReader
    repository: Repository
    installation: int
    ours: BotAccount

    def issue_ref(self, number: int) -> IssueRef:
        repository = self.repository
        return IssueRef(
            installation=self.installation,
            repository=repository.id,
            owner=repository.owner,
            name=repository.name,
            number=number,
        )


class GitHubClients:
    """One GitHub server, with one kind of access."""

    def __init__(self, app: Connection, allowed_apps: frozenset[int] = frozenset()) -> None:
        self.app = app
        self._allowed_apps = allowed_apps

    def for_repository(self, installation: int, repository: Repository | RepositoryId) -> RepositoryReader:
        named = RepositoryId(repository.id, repository.owner, repository.name)
        return RepositoryReader(RepositoryApi(self.app, installation, named))

    async def for_issue(self, issue_ref: IssueRef) -> RepositoryReader:
        """A reader of the issue's repository, which may have been renamed since its job was created.

        Raises NoAccess.
        """
        named = RepositoryId(issue_ref.repository, issue_ref.owner, issue_ref.name)
        reader, _ = await self.for_repository(issue_ref.installation, named).by_current_name()
        return reader

    async def context_of(self, reader: RepositoryReader, repository: Repository) -> RepositoryContext:
        return RepositoryContext(reader, repository, reader.api.installation, await self.ourselves(reader))

    async def ourselves(self, reader: RepositoryReader) -> BotAccount:
        """Load the bot's account with any repository's access: GitHub does not tell an App without one."""
        return self._with_apps(await find_bot_account(reader.api))

    @property
    def known(self) -> BotAccount | None:
        """The bot's account, if it was already loaded."""
        return self._with_apps(self.app.account) if self.app.account else None

    def _with_apps(self, account: BotAccount) -> BotAccount:
        return account.model_copy(update={"allowed_apps": self._allowed_apps})


async def if_accessible(request: Awaitable[T]) -> T | None:
    """None for what was deleted or transferred, or what the installation may not read in this repository."""
    try:
        return await request
    except NoAccess:
        return None


async def optional(request: Awaitable[tuple[T, ...]], what: str, notes: list[str]) -> tuple[T, ...]:
    """Something that the work can do without: nothing, with a note for people, if it cannot be read or understood."""
    try:
        return await request
    except (NoAccess, UnexpectedAnswer) as error:
        logger.warning("%s: %s", what, error.message)
        notes.append(f"GitHub did not give {what}, so the agent did not see them.")
        return ()


async def read_config(reader: RepositoryReader, operator: OperatorDefaults) -> RepoConfig | ConfigError:
    """The default branch's configuration over the operator's defaults, whatever a pull request contains."""
    text = await reader.file(SOURCE)
    try:
        return operator.apply_to(parse_config(text) if text is not None else RepoConfig())
    except ConfigError as error:
        return error
