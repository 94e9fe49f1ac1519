"""The fake for whole servers: its clock runs, it is at a loopback port, and its webhooks go to a receiver there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import FakeGitHubSetup, fake_github, served
from tests.support.github.webhooks import Hooks
from tests.support.github.world import Delivery, World

SECRET = "it is a secret to everybody"


class RunningWorld(World):
    """The same, at the time that it is."""

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    @now.setter
    def now(self, moment: datetime) -> None:
        """Time is not set here."""


class RunningGitHub:
    """One repository with an issue, at `address`. `hooks` are sent from the test's own thread."""

    def __init__(self, fake_github: FakeGitHubSetup, address: str) -> None:
        self.fake_github = fake_github
        self.address = address
        self.receiver = ""

    @property
    def environment(self) -> dict[str, str]:
        """What a server of ours has to know of it."""
        return {
            "AGENT_FIX_APP_ID": str(APP_ID),
            "AGENT_FIX_PRIVATE_KEY": app_key()[0],
            "AGENT_FIX_WEBHOOK_SECRET": SECRET,
            "AGENT_FIX_GITHUB_API_URL": self.address,
            "AGENT_FIX_GITHUB_URL": self.address,
        }

    def tell(self, event: Callable[[Hooks], Awaitable[Delivery]]) -> Delivery:
        """Send a webhook and wait for its answer, as GitHub does."""

        async def send() -> Delivery:
            async with httpx.AsyncClient(base_url=self.receiver, timeout=30.0) as client:
                return await event(Hooks(self.fake_github.world, client, SECRET))

        return asyncio.run(send())

    def label(self, name: str = "agent-fix") -> Delivery:
        fake_github = self.fake_github
        return self.tell(
            lambda hooks: hooks.labeled(
                fake_github.repo, fake_github.installation, fake_github.owner, fake_github.issue, name
            )
        )

    def comment(self, body: str) -> Delivery:
        fake_github = self.fake_github
        comment = fake_github.world.comment(fake_github.repo, fake_github.issue, fake_github.owner, body)
        return self.tell(
            lambda hooks: hooks.commented(
                fake_github.repo, fake_github.installation, fake_github.owner, fake_github.issue, comment
            )
        )

    @property
    def comments(self) -> list[str]:
        """What stands below the issue, by us."""
        fake_github = self.fake_github
        mine = (fake_github.repo.comments[each] for each in fake_github.issue.comments)
        return [each.body for each in mine if each.user.id == fake_github.world.bot.id]


@contextmanager
def running_github(place: Path, files: Mapping[str, str | bytes], title: str, body: str) -> Iterator[RunningGitHub]:
    """At a port of its own until the end of the context."""
    world = RunningWorld(place)
    owner = world.add_user("ada", name="Ada Lovelace")
    repo = world.add_repo(owner, "sample", files)
    installation = world.install(repo)
    issue = world.open_issue(repo, owner, title, body)
    setup = FakeGitHubSetup(fake_github(world), world, repo, owner, issue, installation)
    with served(setup.github) as address:
        yield RunningGitHub(setup, address)
