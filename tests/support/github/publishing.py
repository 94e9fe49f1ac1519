"""A forge over the fake, with commits and a draft to publish there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.core.patch import FileChange, Patch
from app.github.base import NewPullRequest
from app.github.effects import GitHubForge, open_forge
from app.repo.git_store import GitStore
from tests.support.github.fake import FakeGitHubSetup, served
from tests.support.github.world import Issue

BRANCH = "agent-fix/issue-1-totals"


@asynccontextmanager
async def forge_at(fake_github: FakeGitHubSetup, directory: Path) -> AsyncIterator[GitHubForge]:
    """The forge for the ground's issue: API in this process, git over loopback HTTP."""
    with served(fake_github.github) as site:
        async with fake_github.app(site=site) as app:
            store = GitStore(directory / "store.git")
            yield await open_forge(
                app, fake_github.installation.id, fake_github.repository, store, fake_github.issue.number
            )


async def commit(forge: GitHubForge, fake_github: FakeGitHubSetup, text: str, base: str = "") -> str:
    """A commit of ours on the default branch's head, or on another one."""
    base = base or fake_github.repo.branches["main"]
    await forge.branches.fetch(base)
    patch = Patch(base=base, changes=(FileChange(path="app/money.py", mode="100644", content=text.encode()),))
    date = datetime(2026, 11, 21, tzinfo=UTC)
    return forge.branches.store.commit(patch, message="Fix: totals\n", author=forge.bot.person, date=date)


def wanted(**changes: Any) -> NewPullRequest:
    return replace(NewPullRequest(branch=BRANCH, base="main", title="Fix: totals", body="Fixes #1"), **changes)


async def opened(forge: GitHubForge, fake_github: FakeGitHubSetup) -> Issue:
    await forge.ensure_branch(BRANCH, await commit(forge, fake_github, "half = 0.25\n"))
    await forge.ensure_pull_request(wanted())
    return fake_github.repo.pulls[-1]
