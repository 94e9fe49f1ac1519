"""The fake for whole servers: its clock runs, it is at a loopback port, and its webhooks go to a receiver there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.fakes.github.gate import APP_ID, app_key
from tests.fakes.github.ground import Ground, fake_github, served
from tests.fakes.github.webhooks import Hooks
from tests.fakes.github.world import Delivery, World

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

    def __init__(self, ground: Ground, address: str) -> None:
        self.ground = ground
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
                return await event(Hooks(self.ground.world, client, SECRET))

        return asyncio.run(send())

    def label(self, name: str = "agent-fix") -> Delivery:
        ground = self.ground
        return self.tell(
            lambda hooks: hooks.labeled(ground.repo, ground.installation, ground.owner, ground.issue, name)
        )

    def comment(self, body: str) -> Delivery:
        ground = self.ground
        comment = ground.world.comment(ground.repo, ground.issue, ground.owner, body)
        return self.tell(
            lambda hooks: hooks.commented(ground.repo, ground.installation, ground.owner, ground.issue, comment)
        )

    @property
    def comments(self) -> list[str]:
        """What stands below the issue, by us."""
        ground = self.ground
        mine = (ground.repo.comments[each] for each in ground.issue.comments)
        return [each.body for each in mine if each.user.id == ground.world.bot.id]


@contextmanager
def running_github(place: Path, files: Mapping[str, str | bytes], title: str, body: str) -> Iterator[RunningGitHub]:
    """At a port of its own until the end of the context."""
    world = RunningWorld(place)
    owner = world.add_user("ada", name="Ada Lovelace")
    repo = world.add_repo(owner, "sample", files)
    installation = world.install(repo)
    issue = world.open_issue(repo, owner, title, body)
    ground = Ground(fake_github(world), world, repo, owner, issue, installation)
    with served(ground.github) as address:
        yield RunningGitHub(ground, address)
