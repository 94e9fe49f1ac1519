"""Assembles the fake: in this process for what speaks HTTP by hand, on a loopback port for git."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from app.github.connection import AppConnection, AppCredentials, GitHubHost, RepositoryId
from app.github.repository_api import RepositoryApi
from tests.support.github import checks, comments, issues, pulls, repos, settings
from tests.support.github.apps import app_routes
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.git_http import git_route
from tests.support.github.graphql import graphql_route
from tests.support.github.people import people_routes
from tests.support.github.server import FakeGitHub
from tests.support.github.world import Installation, Issue, Repo, User, World
from tests.support.loopback import listening, serving

ROUTES = (checks, issues, pulls, repos, settings, comments)
"""Imported for the routes that they register."""
API, SITE = "http://api.github.example", "http://github.example"


def fake_github(world: World) -> FakeGitHub:
    made: list[FakeGitHub] = []
    extra = [*app_routes(lambda: made[0]), graphql_route(lambda: made[0]), git_route(lambda: made[0])]
    extra += [settings.organisation_route(lambda: made[0]), *people_routes(lambda: made[0])]
    made.append(FakeGitHub(world, extra))
    return made[0]


@dataclass
class FakeGitHubSetup:
    """A fake with one repository, its owner, one issue and the App installed."""

    github: FakeGitHub
    world: World
    repo: Repo
    owner: User
    issue: Issue
    installation: Installation

    @property
    def repository(self) -> RepositoryId:
        return RepositoryId(self.repo.id, self.repo.owner.login, self.repo.name)

    async def sleep(self, seconds: float) -> None:
        self.world.tick(seconds)

    def app(
        self, *, api: str = API, site: str = SITE, sleep: Callable[[float], Awaitable[None]] | None = None
    ) -> AppConnection:
        """An App that speaks to the fake without a network, by the fake's clock."""
        transport = httpx.ASGITransport(self.github) if api == API else None
        return AppConnection(
            GitHubHost(api, site),
            AppCredentials(APP_ID, app_key()[0]),
            transport=transport,
            now=lambda: self.world.now,
            sleep=sleep or self.sleep,
        )

    def api(self, app: AppConnection) -> RepositoryApi:
        return RepositoryApi(app, self.installation.id, self.repository)


def make_fake_github(directory: Path) -> FakeGitHubSetup:
    world = World(directory)
    owner = world.add_user("ada", name="Ada Lovelace")
    repo = world.add_repo(owner, "sample", {"README.md": "# Sample\n", "app/money.py": "half = 0.5\n"})
    installation = world.install(repo)
    issue = world.open_issue(repo, owner, "Totals are a cent too low", "Totals like 0.125 …")
    return FakeGitHubSetup(fake_github(world), world, repo, owner, issue, installation)


@contextmanager
def served(github: FakeGitHub) -> Iterator[str]:
    """The fake on a loopback port, for programs that need one; its address."""
    with listening() as listener, serving(github, listener) as address:
        yield address
