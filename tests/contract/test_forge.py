"""What every forge does: a branch, a draft and a comment that are safe to say twice, and nobody's work touched."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.github.base import Forge, NewPullRequest
from app.github.effects import open_forge
from app.publish.local_forge import LocalForge, OutputFolder
from app.repo.git_store import GitStore
from tests.support.github.fake import make_fake_github, served
from tests.support.repositories import git, make_repository

BRANCH = "agent-fix/issue-1-totals"


@dataclass
class Place:
    """A forge, its repository on this disk, and the commit to publish there. `said` is all that was written."""

    forge: Forge
    repository: Path
    commit: str
    said: Callable[[], list[str]]


def commit_of(store: GitStore, base: str) -> str:
    change = FileChange(path="fix.txt", mode="100644", content=b"fixed\n")
    author = Person(name="bot", email="bot@users.noreply.example")
    date = datetime(2026, 11, 21, tzinfo=UTC)
    return store.commit(Patch(base=base, changes=(change,)), message="Fix\n", author=author, date=date)


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[Place]:
    repository = make_repository(directory / "repository")
    store = GitStore(directory / "store.git")
    store.ensure()
    out = directory / "out"
    forge = LocalForge(repository, store, OutputFolder(out))
    OutputFolder(out).prepare()
    yield Place(
        forge,
        repository,
        commit_of(store, store.fetch(repository, "main")),
        lambda: [path.read_text() for path in sorted(out.iterdir())],
    )


@asynccontextmanager
async def github(directory: Path) -> AsyncIterator[Place]:
    fake_github = make_fake_github(directory)
    with served(fake_github.github) as address:
        store = GitStore(directory / "store.git")
        async with fake_github.app(site=address) as app:
            forge = await open_forge(
                app, fake_github.installation.id, fake_github.repository, store, fake_github.issue.number
            )
            base = fake_github.repo.branches["main"]
            await forge.branches.fetch(base)

            def said() -> list[str]:
                return [f"{pull.title}\n{pull.body}" for pull in fake_github.repo.pulls]

            yield Place(forge, fake_github.repo.path, commit_of(store, base), said)


FORGES: dict[str, Callable[[Path], AbstractAsyncContextManager[Place]]] = {"local": local, "github": github}


@pytest.fixture(params=sorted(FORGES))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with FORGES[str(request.param)](tmp_path) as opened:
        yield opened


async def test_creating_the_same_branch_twice_creates_one(place: Place) -> None:
    names = [await place.forge.ensure_branch(BRANCH, place.commit) for _ in range(2)]
    assert names == [BRANCH, BRANCH]
    assert git(place.repository, "rev-parse", BRANCH) == place.commit
    assert git(place.repository, "branch", "--list", "agent-fix/*").split() == [BRANCH]


async def test_a_name_that_is_taken_is_left_alone(place: Place) -> None:
    main = git(place.repository, "rev-parse", "main")
    git(place.repository, "branch", BRANCH, "main")
    for _ in range(2):
        assert await place.forge.ensure_branch(BRANCH, place.commit) == f"{BRANCH}-2"
    assert git(place.repository, "rev-parse", BRANCH) == main


async def test_a_branch_where_a_folder_of_branches_would_be(place: Place) -> None:
    git(place.repository, "branch", "agent-fix", "main")
    assert await place.forge.ensure_branch(BRANCH, place.commit) == BRANCH.replace("/", "-")


async def test_a_pull_request_is_updated_in_place(place: Place) -> None:
    await place.forge.ensure_branch(BRANCH, place.commit)
    urls = set()
    for text in ("first words", "last words", "last words"):
        urls.add(await place.forge.ensure_pull_request(NewPullRequest(BRANCH, "main", "Fix totals", text)))
    assert len(urls) == 1
    (pull,) = place.said()
    assert "Fix totals" in pull
    assert "last words" in pull
    assert "first words" not in pull
