"""A forge let loose on the fake, with commits and a draft to publish there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.forge.base import PullRequest
from app.forge.github.forge import GitHubForge, open_forge
from app.gitstore import GitStore
from app.patch import FileChange, Patch
from tests.fakes.github.ground import Ground, served
from tests.fakes.github.world import Issue

BRANCH = "agent-fix/issue-1-totals"


@asynccontextmanager
async def forge_at(ground: Ground, directory: Path) -> AsyncIterator[GitHubForge]:
    """The forge for the ground's issue: API in this process, git over loopback HTTP."""
    with served(ground.github) as site:
        async with ground.app(site=site) as app:
            store = GitStore(directory / "store.git")
            yield await open_forge(app, ground.installation.id, ground.repository, store, ground.issue.number)


async def commit(forge: GitHubForge, ground: Ground, text: str, base: str = "") -> str:
    """A commit of ours on the default branch's head, or on another one."""
    base = base or ground.repo.branches["main"]
    await forge.branches.bring(base)
    patch = Patch(base=base, changes=(FileChange(path="app/money.py", mode="100644", content=text.encode()),))
    date = datetime(2026, 11, 21, tzinfo=UTC)
    return forge.branches.store.commit(patch, message="Fix: totals\n", author=forge.bot.person, date=date)


def wanted(**changes: Any) -> PullRequest:
    return replace(PullRequest(branch=BRANCH, base="main", title="Fix: totals", body="Fixes #1"), **changes)


async def opened(forge: GitHubForge, ground: Ground) -> Issue:
    await forge.ensure_branch(BRANCH, await commit(forge, ground, "half = 0.25\n"))
    await forge.ensure_pull_request(wanted())
    return ground.repo.pulls[-1]
