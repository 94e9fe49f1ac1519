"""Makes a commit by GitHub's API, without author and committer, so that GitHub signs it for the App.

GraphQL's `createCommitOnBranch` could do that too, but it knows neither file modes, symlinks nor merges, and it moves
the branch before the result can be compared. Here the tree's id shows that all files are the same, and then it moves.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from app.core.patch import TreeEntry
from app.github import calls, models
from app.github.base import NeedsHumanAction
from app.github.repository_api import RepositoryApi
from app.repo.git_store import GitStore

_INLINE_BYTES = 1_000_000
"""A larger text is sent as a blob of its own."""
KEY_INSTEAD = "An operator can sign with a key instead: AGENT_FIX_SIGNING_KEY."


async def create_signed_commit(api: RepositoryApi, store: GitStore, commit: str) -> str:
    """The id of a commit on GitHub with the same files, message and signed parents. Raises NeedsHumanAction."""
    parts = await asyncio.to_thread(store.parts, commit)
    parents = [await asyncio.to_thread(store.as_pushed, parent) for parent in parts.parents]
    before, after, known = await asyncio.to_thread(_trees, store, commit, parts.parents)
    changed = {path: after.get(path) for path in {**before, **after} if before.get(path) != after.get(path)}
    paths = [path for path, entry in changed.items() if entry is not None and entry.oid not in known]
    contents = await asyncio.to_thread(store.tree(commit).read_many, paths)
    tree = (await asyncio.to_thread(store.parts, parts.parents[0])).tree
    if changed:
        entries = [await _entry(api, path, changed[path], contents.get(path)) for path in sorted(changed)]
        body = {"base_tree": tree, "tree": entries}
        tree = (await api.change(models.CreatedObject, calls.CREATE_TREE, body=body)).id
    if tree != parts.tree:
        raise NeedsHumanAction("GitHub made other files of this change, so it was not published.", hint=KEY_INSTEAD)
    body = {"message": parts.message.decode(), "tree": tree, "parents": parents}
    made = await api.change(models.CreatedCommit, calls.CREATE_COMMIT, body=body)
    if not made.verified:
        raise NeedsHumanAction(
            f"GitHub did not sign the commit ({made.reason or 'no reason given'}). It signs only for Apps and for a "
            "workflow's own token, and not on Enterprise Server.",
            hint=KEY_INSTEAD,
        )
    return made.id


def _trees(
    store: GitStore, commit: str, parents: tuple[str, ...]
) -> tuple[Mapping[str, TreeEntry], Mapping[str, TreeEntry], frozenset[str]]:
    """The files before and after, and the blobs that GitHub has from other parents of a merge."""
    others = (entry.oid for parent in parents[1:] for entry in store.tree(parent).entries().values())
    return store.tree(parents[0]).entries(), store.tree(commit).entries(), frozenset(others)


async def _entry(api: RepositoryApi, path: str, entry: TreeEntry | None, content: bytes | None) -> dict[str, Any]:
    """A file for GitHub; without content if it has that already."""
    try:
        path.encode()
    except UnicodeEncodeError:
        name = path.encode("utf-8", "backslashreplace").decode()
        message = f"The name {name} is not UTF-8, and GitHub's API takes no other names for commits that it signs."
        raise NeedsHumanAction(message, hint=KEY_INSTEAD) from None
    if entry is None:
        return {"path": path, "mode": "100644", "type": "blob", "sha": None}
    made: dict[str, Any] = {"path": path, "mode": entry.mode, "type": "blob"}
    if content is None:
        return {**made, "sha": entry.oid}
    try:
        if len(content) <= _INLINE_BYTES and b"\0" not in content:
            return {**made, "content": content.decode()}
    except UnicodeDecodeError:
        pass
    blob = {"content": base64.b64encode(content).decode(), "encoding": "base64"}
    return {**made, "sha": (await api.change(models.CreatedObject, calls.CREATE_BLOB, body=blob)).id}
