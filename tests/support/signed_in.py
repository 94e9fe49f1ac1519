"""People of every role who sign in to the dashboard through the fake GitHub, as their browsers would."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

from app.github.connection import GitHubHost
from app.github.user_sign_in import GitHubSignIn
from tests.support.github.fake import API, SITE, fake_github
from tests.support.github.server import FakeGitHub
from tests.support.github.world import Repo, User, World
from tests.support.seeded_database import PLACES
from tests.support.web_client import HOST, NOW

ROLES: Mapping[str, str] = {
    "stranger": "none",
    "reader": "read",
    "triager": "triage",
    "writer": "write",
    "maintainer": "maintain",
    "admin": "admin",
    "operator": "none",
}
"""People by what they may do in the first repository of the seeded database; in the others they may do nothing."""


@dataclass
class GitHubPeople:
    """A GitHub with the seeded database's repositories, the App in all of them, and a person of each role."""

    github: FakeGitHub
    people: Mapping[str, User]

    @property
    def world(self) -> World:
        return self.github.world

    @property
    def repo(self) -> Repo:
        return self.world.repos[PLACES[0][2]]

    def client(self) -> GitHubSignIn:
        async def sleep(seconds: float) -> None:
            self.world.tick(seconds)

        return GitHubSignIn(
            GitHubHost(API, SITE),
            self.world.sign_in.client,
            self.world.sign_in.secret,
            transport=httpx.ASGITransport(self.github),
            now=lambda: self.world.now,
            sleep=sleep,
        )

    async def sent_back(self, address: str, role: str) -> str:
        """Press GitHub's button at this address; where the browser is sent then."""
        self.world.sign_in.person = self.people[role]
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.github), base_url=SITE) as browser:
            assert (await browser.get(address)).status_code == 200
            return (await browser.post("/login/oauth/authorize", data=query)).headers["location"]

    async def sign_in(self, browser: httpx.AsyncClient, role: str, wanted: str = "/") -> httpx.Response:
        """Sign a browser in; returns the answer that makes the session."""
        started = await browser.get("/sign-in/github", params={"next": wanted})
        assert started.status_code == 303
        return await browser.get(await self.sent_back(started.headers["location"], role))


def github_people(place: Path, address: str = HOST) -> GitHubPeople:
    """`address` is the dashboard's."""
    world = World(place)
    world.now = NOW
    people = {role: world.add_user(role) for role in ROLES}
    for owner, name, number in PLACES:
        world.repos[number] = Repo(number, User(world.number(), owner), name, place / name)
    world.install(*world.repos.values())
    made = GitHubPeople(fake_github(world), people)
    made.repo.collaborators = {people[role].id: permission for role, permission in ROLES.items()}
    world.sign_in.callbacks = {f"{address}/sign-in/done"}
    return made
