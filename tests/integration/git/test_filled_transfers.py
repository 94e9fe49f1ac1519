"""The publisher packs requested commits one after another, whatever is wrong with one of them."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.config.settings import Settings
from app.github.connection import AppConnection, AppCredentials, GitHubHost
from app.jobs.commit_transfer import MAX_FAILURES, PACK_AGAIN_AFTER, CommitTransferError
from app.repo.git_store import GitStore
from app.server.context import ServerContext
from app.server.publisher import build_publisher
from tests.support.clock import SettableClock
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import API, SITE
from tests.support.repositories import git, make_repository


async def test_a_commit_that_cannot_be_packed_is_refused_in_the_end_and_the_others_are_sent(
    tmp_path: Path,
) -> None:
    clock = SettableClock()
    server_context = ServerContext(Settings(state=tmp_path / "state"), clock)
    server_context.prepare()
    source = make_repository(tmp_path / "source", {"README.md": "# Sample\n"})
    commit, blob = git(source, "rev-parse", "HEAD"), git(source, "rev-parse", "HEAD:README.md")
    for repository in (1, 2):
        mirror = server_context.mirror(repository)
        mirror.ensure()
        mirror.fetch(source, "HEAD")
        server_context.transfers.request(repository, commit)
        clock.passes(timedelta(seconds=1))
    _lose(server_context.mirror(1), blob)
    async with AppConnection(GitHubHost(API, SITE), AppCredentials(APP_ID, app_key()[0])) as app:
        publisher = build_publisher(server_context, app, "agent-fix[bot]")
        assert await publisher.fill_commit_transfers() == 1
        third = GitStore(tmp_path / "third" / "mirror.git")
        for _ in range(MAX_FAILURES - 1):
            assert server_context.transfers.requested() == [], "not again at once"
            assert not server_context.transfers.unpack_into(third, 1, commit), "it may still come"
            clock.passes(PACK_AGAIN_AFTER)
            assert await publisher.fill_commit_transfers() == 0
    theirs = GitStore(tmp_path / "elsewhere" / "mirror.git")
    assert server_context.transfers.unpack_into(theirs, 2, commit)
    with pytest.raises(CommitTransferError, match=f"Commit {commit[:12]} cannot be packed"):
        server_context.transfers.unpack_into(third, 1, commit)
    server_context.engine.dispose()


def _lose(store: GitStore, blob: str) -> None:
    """Remove one object, as a damaged disk does."""
    objects = store.path / "objects"
    (pack,) = (objects / "pack").glob("*.pack")
    content = pack.read_bytes()
    for file in (objects / "pack").iterdir():
        file.unlink()
    git(store.path, "unpack-objects", "-q", stdin=content)
    (objects / blob[:2] / blob[2:]).unlink()
