"""A worker that wishes and a publisher, in one process to be killed: `intents_child DIR FAILPOINT EPOCH`."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app import failpoints
from app.forge.base import Target
from app.jobs.tables import sqlite_engine
from app.publish.intent import LEASE, Label, OpenDraftPullRequest, Place, React, Recipe, StatusComment
from app.publish.intents import Intents
from app.publish.publisher import Publisher
from app.task import Person
from tests.fakes.conversations import FolderConversation, as_wished

PLACE = Place(installation=1, repository=2, owner="ada", name="sample", number=3)
WISHES = (
    React(target=Target(kind="issue", id=3), content="eyes"),
    Label(add=("agent-in-progress",), remove=("agent-fix",)),
    OpenDraftPullRequest(
        branch="agent-fix/issue-3",
        commit="a" * 40,
        recipe=Recipe(
            patch="c" * 64,
            message="Fix\n",
            author=Person(name="bot", email="bot@forge.example"),
            date=datetime(2026, 11, 21, tzinfo=UTC),
        ),
        base="main",
        title="Fix",
        body="Fixes #3",
    ),
    StatusComment(body="done"),
)


async def main(directory: Path, epoch: int) -> None:
    # Each process lives after the leases of the one before it.
    now = datetime(2026, 11, 21, tzinfo=UTC) + epoch * (LEASE + timedelta(seconds=1))
    intents = Intents(sqlite_engine(directory / "state.db"), lambda: now)

    async def open_forge(_place: Place) -> FolderConversation:
        return FolderConversation(directory)

    publisher = Publisher(intents, open_forge, as_wished, f"p{epoch}")
    intents.adopt("j1", epoch)
    for wish in WISHES:
        intents.want("j1", epoch, PLACE, wish)
    while await publisher.publish_next():
        pass


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[3])))
