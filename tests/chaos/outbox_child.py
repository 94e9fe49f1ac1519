"""A worker and a publisher in one process to be killed: `outbox_child DIR FAILPOINT EPOCH`."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from app.core import failpoints
from app.core.task import IssueRef, Person
from app.github.base import ReactionTarget
from app.jobs.tables import sqlite_engine
from app.publish.effects import (
    LEASE,
    AddReaction,
    ChangeLabels,
    CommitRecipe,
    OpenDraftPullRequest,
    UpdateStatusComment,
)
from app.publish.outbox import Outbox
from app.publish.publisher import Publisher
from tests.support.file_conversation import FileForge, as_wished

PLACE = IssueRef(installation=1, repository=2, owner="ada", name="sample", number=3)
EFFECTS = (
    AddReaction(target=ReactionTarget(kind="issue", id=3), content="eyes"),
    ChangeLabels(add=("agent-in-progress",), remove=("agent-fix",)),
    OpenDraftPullRequest(
        branch="agent-fix/issue-3",
        commit="a" * 40,
        recipe=CommitRecipe(
            patch="c" * 64,
            message="Fix\n",
            author=Person(name="bot", email="bot@forge.example"),
            date=datetime(2026, 11, 21, tzinfo=UTC),
        ),
        base="main",
        title="Fix",
        body="Fixes #3",
    ),
    UpdateStatusComment(body="done"),
)


async def main(directory: Path, epoch: int) -> None:
    # Each process lives after the leases of the one before it.
    now = datetime(2026, 11, 21, tzinfo=UTC) + epoch * (LEASE + timedelta(seconds=1))
    outbox = Outbox(sqlite_engine(directory / "state.db"), lambda: now)

    async def open_forge(_place: IssueRef) -> FileForge:
        return FileForge(directory)

    publisher = Publisher(outbox, open_forge, as_wished, f"p{epoch}")
    outbox.adopt("j1", epoch)
    for effect in EFFECTS:
        outbox.add("j1", epoch, PLACE, effect)
    while await publisher.publish_next():
        pass


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[3])))
