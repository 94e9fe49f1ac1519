"""What leaves a work tree can be committed: the export refuses, by name, whatever the commit would refuse."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from app.core.patch import Patch
from app.core.task import Person
from app.repo.git_store import GitStore
from app.sandbox.base import Sandbox, SandboxSpec
from app.sandbox.changes import Baseline, baseline, export
from app.sandbox.unsandboxed import UnsandboxedProvider
from tests.support.repositories import git, make_repository
from tests.support.sandboxes import opened, shell

NAMED_BY_ITS_BYTES = "caf\udce9.txt"
FILES: dict[str, str | bytes] = {
    "README.md": "hello\n",
    "deps/own.txt": "ours\n",
    "lib/a.py": "a = 1\n",
    "lib/deep/b.py": "b = 1\n",
    "Makefile": "all:\n",
    "link": "x\n",
    NAMED_BY_ITS_BYTES: "latin\n",
    "a\\b.txt": "backslash\n",
}


class WorkTree(NamedTuple):
    sandbox: Sandbox
    base: Baseline
    store: GitStore


@pytest.fixture
async def work_tree(tmp_path: Path) -> AsyncIterator[WorkTree]:
    repository = make_repository(tmp_path / "theirs", FILES)
    inner = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{inner},deps/lib")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{inner},engine")
    git(repository, "commit", "-q", "-m", "submodules")
    store = GitStore(tmp_path / "store.git")
    store.ensure()
    base = store.fetch(repository, "main")
    spec = SandboxSpec("job", lambda directory: store.checkout(base, directory))
    async with opened(UnsandboxedProvider(tmp_path / "jobs"), spec) as sandbox:
        yield WorkTree(sandbox, baseline(store.tree(base)), store)


REFUSED = {
    "a file in a submodule": ("echo 1 > deps/lib/fix.py", "deps/lib/fix.py"),
    "a directory in a submodule": ("mkdir -p engine/src/x; echo 1 > engine/src/x/fix.py", "engine/src/x/fix.py"),
    "a submodule replaced by a file": ("rmdir engine; echo 1 > engine", "engine"),
    "a submodule replaced by a link": ("rmdir engine; ln -s lib engine", "engine"),
    "the directory above a submodule replaced by a file": ("rm -r deps; echo 1 > deps", "deps"),
    "the directory above a submodule replaced by a link": ("rm -r deps; ln -s lib deps", "deps"),
    "git's directory": ("mkdir -p x/.GIT; echo 1 > x/.GIT/config", "x/.GIT"),
    "git's directory by its short name": ("mkdir -p 'GIT~1'; echo 1 > 'GIT~1/config'", "GIT~1/config"),
    "git's directory with an invisible character": (
        "mkdir -p \"$(printf '.g\\342\\200\\214it')\"; echo 1 > \"$(printf '.g\\342\\200\\214it')/config\"",
        ".g\\u200cit/config",
    ),
    "git's directory as a stream": ("mkdir -p '.git::$INDEX_ALLOCATION'; echo 1 > '.git::$INDEX_ALLOCATION/x'", ""),
    "git's settings as a link": ("ln -s README.md .gitmodules", ".gitmodules"),
    "git's settings as a link with a short name": ("ln -s README.md 'GITMOD~1'", "GITMOD~1"),
    "git's settings as a link with a dot": ("ln -s README.md '.gitmodules.'", ".gitmodules."),
    "a name that is not UTF-8": ("printf x > \"$(printf 'new\\351.txt')\"", "new\\xe9.txt"),
    "a changed file whose name is not UTF-8": ("printf x > \"$(printf 'caf\\351.txt')\"", "caf\\xe9.txt"),
    "a removed file whose name is not UTF-8": ("rm \"$(printf 'caf\\351.txt')\"", "caf\\xe9.txt"),
    "a control character": ("printf x > \"$(printf 'a\\tb')\"", "a\\tb"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_change_that_git_would_refuse_is_refused_by_name(work_tree: WorkTree, case: str) -> None:
    script, path = REFUSED[case]
    await shell(work_tree.sandbox, f"{script}; echo fixed > README.md")
    patch = await export(work_tree.sandbox, work_tree.base)
    assert set(patch.paths()) - {"deps/own.txt"} == {"README.md"}
    assert any(path in refusal.path for refusal in patch.refusals)
    committed(work_tree, patch)


ACCEPTED = {
    "a file becomes a directory": "rm lib/a.py; mkdir lib/a.py; echo 1 > lib/a.py/x",
    "a directory becomes a file": "rm -r lib; echo 1 > lib",
    "a directory becomes a link": "rm -r lib; ln -s deps lib",
    "a link becomes a directory": "rm link; mkdir link; echo 1 > link/x",
    "names that differ in case": "echo 1 > makefile; echo 2 > MAKEFILE",
    "a rename in case": "mv Makefile makefile",
    "a directory that differs in case": "mkdir LIB; echo 1 > LIB/a.py",
    "composed and decomposed names": "echo 1 > \"$(printf 'e\\314\\201')\"; echo 2 > \"$(printf '\\303\\251')\"",
    "a link that leads out": "ln -s /etc/passwd passwd; ln -s ../../x up",
    "a name of 255 bytes": 'echo 1 > "$(printf %0255d 7)"',
    "a deep path": "d=$(printf 'd%.0s/' $(seq 300)); mkdir -p $d; echo 1 > ${d}x",
    "a backslash": "echo 1 > 'a\\b.txt'; echo 2 > 'c\\d'",
    "names of devices": "echo 1 > aux.py; echo 2 > con; echo 3 > 'trail '",
    "a directory emptied": "rm -r lib/deep",
    "a submodule left alone": "echo 1 > deps/own.txt; echo 2 > engine.py",
    "git's directory as a file of another name": "echo 1 > .gitx; echo 2 > git; mkdir .github; echo 3 > .github/x",
    "an empty submodule removed": "rmdir engine; echo 1 > README.md",
}


@pytest.mark.parametrize("case", ACCEPTED)
async def test_changes_that_leave_a_work_tree_are_committed_as_they_are(work_tree: WorkTree, case: str) -> None:
    await shell(work_tree.sandbox, ACCEPTED[case])
    patch = await export(work_tree.sandbox, work_tree.base)
    assert patch.changes
    assert not patch.refusals
    committed(work_tree, patch)


def committed(work_tree: WorkTree, patch: Patch) -> None:
    """Commits it, and compares git's list of changed paths with the patch's."""
    author, date = Person(name="a", email="a@b"), datetime(2026, 1, 1, tzinfo=UTC)
    commit = work_tree.store.commit(patch, message="x", author=author, date=date)
    changed = git(work_tree.store.path, "diff-tree", "-r", "-z", "--name-only", "--no-renames", patch.base, commit)
    assert sorted(changed.split("\0")[:-1]) == sorted(patch.paths())
