"""Our product at the emulated GitHub: one repository with an issue, and the forge for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.core.patch import FileChange, Patch
from app.github.base import NewPullRequest
from app.github.connection import AppConnection, AppCredentials, GitHubHost, RepositoryId
from app.github.effects import GitHubForge, open_forge
from app.github.repository_api import RepositoryApi
from app.repo.git_store import GitStore
from tests.support.emulate.github import EmulatedGitHub, Repository

BRANCH = "agent-fix/issue-1-totals"
FILES: dict[str, str | bytes] = {
    "README.md": "# Sample\n",
    "app/money.py": "half = 0.5\nthird = 0.3\n",
    "logo.bin": b"\x00\x01\xff",
}


@dataclass
class Clock:
    """The real time, and what was slept is over at once."""

    ahead: timedelta = field(default_factory=timedelta)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


@dataclass
class EmulatedRepository:
    """A repository on emulate with one issue, and our forge for it."""

    github: EmulatedGitHub
    repository: Repository
    issue: int
    app: AppConnection
    forge: GitHubForge

    @property
    def repository_api(self) -> RepositoryApi:
        return RepositoryApi(self.app, self.github.installation_id, repository_id(self.repository))

    def commit(self, text: str, base: str = "") -> str:
        change = FileChange(path="app/money.py", mode="100644", content=text.encode())
        patch = Patch(base=base or self.repository.head, changes=(change,))
        date = datetime(2026, 11, 21, tzinfo=UTC)
        return self.forge.branches.store.commit(patch, message="Fix totals\n", author=self.forge.bot.person, date=date)

    async def opened(self) -> int:
        """A draft of ours; its number. The forge is about it from then on."""
        await self.forge.branches.fetch(self.repository.head)
        await self.forge.ensure_branch(BRANCH, self.commit("half = 0.25\nthird = 0.3\n"))
        await self.forge.ensure_pull_request(wanted())
        self.forge.number = self.repository.site.pulls()[-1].number
        return self.forge.number


def wanted(**changes: Any) -> NewPullRequest:
    return replace(NewPullRequest(branch=BRANCH, base="main", title="Fix totals", body="Fixes #1"), **changes)


def app_at(github: EmulatedGitHub, key: str = "") -> AppConnection:
    clock = Clock()
    host = GitHubHost(github.api_url, github.server_url)
    return AppConnection(
        host, AppCredentials(github.app_id, key or github.private_key), now=clock.now, sleep=clock.sleep
    )


def repository_id(repository: Repository) -> RepositoryId:
    return RepositoryId(repository.id, repository.owner, repository.name)


@asynccontextmanager
async def emulated_repository(github: EmulatedGitHub, directory: Path) -> AsyncIterator[EmulatedRepository]:
    repository = github.add_repository(files=FILES)
    issue = repository.as_user("rob").open_issue("Totals are a cent too low", "Totals like 0.125 …")
    async with app_at(github) as app:
        store = GitStore(directory / "store.git")
        forge = await open_forge(app, github.installation_id, repository_id(repository), store, issue)
        yield EmulatedRepository(github, repository, issue, app, forge)


def later() -> datetime:
    """After everything that is there; times have no fractions of a second."""
    return datetime.now(UTC) + timedelta(seconds=2)
