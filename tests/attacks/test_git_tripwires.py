"""Poisoned repositories and hostile patches: git works, and not one command that somebody planted is executed."""

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.core.errors import OutputError
from app.core.patch import FileChange, Patch
from app.core.task import Person
from app.repo.git_command import Git
from app.repo.git_store import GitError, GitStore, UnsafePathError, log
from app.repo.inspection import inspect
from tests.support.repositories import commit_files, git, make_repository, snapshot

BOT = Person(name="agent-fix", email="agent-fix@users.noreply.example")
WHEN = datetime(2026, 11, 3, tzinfo=UTC)
HOOKS = """post-checkout post-commit post-index-change post-merge pre-auto-gc pre-commit pre-push pre-receive
    post-receive reference-transaction update post-update proc-receive push-to-checkout
    fsmonitor-watchman prepare-commit-msg"""
ATTRIBUTES = "* filter=evil diff=evil merge=evil ident text eol=crlf\nd.txt working-tree-encoding=UTF-16LE\n"


class Tripwires:
    """Scripts that leave a file when they are executed, each under a name of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fired_in = folder / "fired"
        self.fired_in.mkdir(parents=True)

    def script(self, name: str) -> str:
        path = self.folder / f"{name}.sh"
        path.write_text(f"#!/bin/sh\necho > '{self.fired_in}/{name}'\ncat 2>/dev/null\nexit 0\n")
        path.chmod(0o755)
        return str(path)

    def fired(self) -> set[str]:
        return {path.name for path in self.fired_in.iterdir()}


@pytest.fixture
def wires(tmp_path: Path) -> Tripwires:
    return Tripwires(tmp_path / "wires")


def poisoned_settings(wires: Tripwires) -> Mapping[str, str]:
    names = {
        "core.fsmonitor": "fsmonitor",
        "core.sshCommand": "ssh",
        "core.pager": "pager",
        "core.editor": "editor",
        "core.askPass": "askpass",
        "core.alternateRefsCommand": "alternates",
        "core.gitProxy": "proxy",
        "credential.helper": "credential",
        "diff.external": "external-diff",
        "diff.evil.command": "diff-command",
        "diff.evil.textconv": "textconv",
        "merge.evil.driver": "merge-driver",
        "filter.evil.clean": "clean",
        "filter.evil.smudge": "smudge",
        "filter.evil.process": "process",
        "filter.a=b.clean": "clean-with-equals-sign",
        "gpg.program": "gpg",
        "uploadpack.packObjectsHook": "pack-objects-hook",
        "remote.origin.uploadpack": "remote-uploadpack",
        "remote.origin.receivepack": "remote-receivepack",
        "sequence.editor": "sequence-editor",
        "interactive.diffFilter": "diff-filter",
        "alias.status": "alias-status",
    }
    settings = {key: wires.script(name) for key, name in names.items()}
    return settings | {
        "alias.rev-parse": f"!{wires.script('alias-rev-parse')}",
        "filter.evil.required": "true",
        "commit.gpgSign": "true",
        "log.showSignature": "true",
        "fetch.recurseSubmodules": "true",
        "gc.auto": "1",
        f"url.ext::{wires.script('ext-url')} .insteadOf": "/",
        "protocol.ext.allow": "always",
        "remote.origin.url": f"ext::{wires.script('ext-remote')}",
    }


@pytest.fixture
def poisoned(tmp_path: Path, wires: Tripwires) -> Path:
    """A user's repository in which everything that git can be told to execute is a tripwire."""
    repository = make_repository(tmp_path / "repo", {"a.txt": "a\n", "b.txt": "b\n", "c.md": "c\n"})
    commit_files(repository, {".gitattributes": ATTRIBUTES + "*.md filter=a=b\n"})
    (repository / "a.txt").write_text("A\n")
    os.utime(repository / "b.txt", (1, 1))
    (repository / "c.md").write_text("C\n")
    hooks = repository / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS.split():
        (hooks / name).write_text(Path(wires.script(f"hook-{name}")).read_text())
        (hooks / name).chmod(0o755)
    for key, value in poisoned_settings(wires).items():
        git(repository, "config", key, value)
    (repository / ".git" / "included").write_text(f'[filter "evil"]\n\tclean = {wires.script("included-clean")}\n')
    git(repository, "config", "include.path", "included")
    git(repository, "config", "--add", "core.hooksPath", str(hooks))
    assert wires.fired() == set()
    return repository


def changed(base: str, *changes: tuple[str, bytes]) -> Patch:
    made = tuple(FileChange(path=path, mode="100644", content=content) for path, content in changes)
    return Patch(base=base, changes=made)


def test_each_tripwire_fires_when_triggered(poisoned: Path, wires: Tripwires) -> None:
    for command in (["status"], ["branch", "x"]):
        git(poisoned, *command, check=False)
    assert wires.fired() >= {"fsmonitor", "hook-reference-transaction"}
    assert any("clean" in name or name == "process" for name in wires.fired())


def test_the_whole_way_through_a_poisoned_repository(poisoned: Path, wires: Tripwires, tmp_path: Path) -> None:
    store = GitStore(tmp_path / "state" / "mirror.git")
    seen = inspect(poisoned, None, store)
    target = tmp_path / "out"
    target.mkdir()
    store.checkout(seen.base_commit, target)
    patch = changed(seen.base_commit, ("a.txt", b"fixed\r\n"), (".gitattributes", ATTRIBUTES.encode() + b"# more\n"))
    head = store.commit(patch, message="fix", author=BOT, date=WHEN)
    store.diff(seen.base_commit, head)
    store.diff_stat(seen.base_commit, head)
    assert b"change" in log(Git("-C", str(poisoned)), seen.base_commit, 100)
    assert store.deliver(poisoned, "agent-fix/a", head) == "agent-fix/a"
    assert store.fetch(poisoned, "refs/heads/agent-fix/a") == head
    assert store.tree(head).read("a.txt") == b"fixed\r\n"
    assert seen.dirty == 2
    assert wires.fired() == set()


def test_a_poisoned_environment_is_not_inherited(
    poisoned: Path, wires: Tripwires, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = {
        "GIT_DIR": str(tmp_path / "elsewhere"),
        "GIT_INDEX_FILE": str(tmp_path / "elsewhere.index"),
        "GIT_EXTERNAL_DIFF": wires.script("env-external-diff"),
        "GIT_SSH_COMMAND": wires.script("env-ssh"),
        "GIT_PROXY_COMMAND": wires.script("env-proxy"),
        "GIT_ASKPASS": wires.script("env-askpass"),
        "GIT_EXEC_PATH": str(tmp_path),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": wires.script("env-fsmonitor"),
        "GIT_CONFIG_GLOBAL": str(poisoned / ".git" / "config"),
        "GIT_AUTHOR_NAME": "Mallory",
        "GIT_TRACE": str(tmp_path / "trace"),
        "PAGER": wires.script("env-pager"),
        "HOME": str(poisoned / ".git"),
    }
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    store = GitStore(tmp_path / "state" / "mirror.git")
    base = inspect(poisoned, None, store).base_commit
    head = store.commit(changed(base, ("a.txt", b"fixed\n")), message="fix", author=BOT, date=WHEN)
    store.deliver(poisoned, "agent-fix/a", head)
    assert git(store.path, "log", "-1", "--format=%an", head) == BOT.name
    assert not (tmp_path / "trace").exists()
    assert wires.fired() == set()


def test_a_hostile_tree_checks_out_only_below_its_directory(tmp_path: Path, wires: Tripwires) -> None:
    """A tree that holds the link `a` and the file `a/x`, as no honest git makes it, cannot write through the link."""
    source = make_repository(tmp_path / "source")
    outside = tmp_path / "outside"
    outside.mkdir()
    link = git(source, "hash-object", "-w", "--stdin", stdin=str(outside).encode())
    blob = git(source, "hash-object", "-w", "--stdin", stdin=b"escaped")
    inner = git(source, "mktree", stdin=f"100644 blob {blob}\tx\n".encode())
    tree = git(source, "mktree", stdin=f"120000 blob {link}\ta\n040000 tree {inner}\ta\n".encode())
    store = GitStore(tmp_path / "mirror.git")
    store.ensure()
    commit = store.fetch(source, git(source, "commit-tree", tree, "-m", "hostile"))
    target = tmp_path / "out"
    target.mkdir()
    with suppress(GitError):
        store.checkout(commit, target)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("name", [".git", ".GIT", ".git\u200c", "git~1"])
def test_a_hostile_tree_with_a_git_directory_is_not_checked_out(tmp_path: Path, wires: Tripwires, name: str) -> None:
    source = make_repository(tmp_path / "source")
    blob = git(source, "hash-object", "-w", "--stdin", stdin=Path(wires.script("planted-hook")).read_bytes())
    hooks = git(source, "mktree", stdin=f"100755 blob {blob}\tpost-checkout\n".encode())
    tree = git(source, "mktree", stdin=f"040000 tree {hooks}\t{name}\n".encode())
    store = GitStore(tmp_path / "mirror.git")
    store.ensure()
    commit = store.fetch(source, git(source, "commit-tree", tree, "-m", "hostile"))
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(GitError, match="invalid path"):
        store.checkout(commit, target)
    assert list(target.iterdir()) == []
    assert wires.fired() == set()


@pytest.fixture
def honest(tmp_path: Path) -> tuple[GitStore, Path, str]:
    source = make_repository(tmp_path / "honest", {"docs/a.md": "a\n"})
    store = GitStore(tmp_path / "state" / "mirror.git")
    return store, source, inspect(source, None, store).base_commit


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".GIT/config",
        "docs/.git/config",
        ".g\u200cit/hooks/x",
        "../../etc/cron.d/x",
        "/etc/passwd",
        "docs/../../x",
        "docs/a.md/below-a-file",
    ],
)
def test_a_hostile_patch_becomes_no_commit(honest: tuple[GitStore, Path, str], path: str) -> None:
    store, _, base = honest
    before = snapshot(store.path / "refs")
    with pytest.raises((UnsafePathError, GitError)):
        store.commit(changed(base, (path, b"x")), message="fix", author=BOT, date=WHEN)
    assert snapshot(store.path / "refs") == before


def test_gitlinks_are_not_expressible() -> None:
    with pytest.raises(ValidationError):
        FileChange.model_validate({"path": "vendor", "mode": "160000", "content": b"1" * 40})


def test_gitmodules_cannot_be_a_link(honest: tuple[GitStore, Path, str]) -> None:
    store, _, base = honest
    link = FileChange(path=".gitmodules", mode="120000", content=b"docs/a.md")
    with pytest.raises(GitError):
        store.commit(Patch(base=base, changes=(link,)), message="fix", author=BOT, date=WHEN)


def test_no_author_or_message_forges_a_header(honest: tuple[GitStore, Path, str]) -> None:
    store, _, base = honest
    author = Person(name="x <ceo@corp.example>\ncommitter Ceo", email="a@b.example>\nparent 0")
    message = "fix\n\nauthor Ceo <ceo@corp.example> 0 +0000\n"
    head = store.commit(changed(base, ("x", b"x")), message=message, author=author, date=WHEN)
    header, _, body = git(store.path, "cat-file", "-p", head).partition("\n\n")
    assert [line.split(" ")[0] for line in header.splitlines()] == ["tree", "parent", "author", "committer"]
    assert body == message.removesuffix("\n")


def test_a_racing_branch_is_never_overwritten(honest: tuple[GitStore, Path, str]) -> None:
    """Somebody creates the branch between the look and the leap: theirs stays, ours gets another name."""
    store, source, base = honest
    head = store.commit(changed(base, ("x", b"x")), message="fix", author=BOT, date=WHEN)
    lock = source / ".git" / "refs" / "heads" / "agent-fix" / "a.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(OutputError, match=r"a\.lock"):
        store.deliver(source, "agent-fix/a", head)
    lock.unlink()
    git(source, "branch", "agent-fix/a", base)
    assert store.deliver(source, "agent-fix/a", head) == "agent-fix/a-2"
    assert git(source, "rev-parse", "agent-fix/a") == base


BRANCHES = r"""-x --help -D @ @{ @{-1} a..b .. . a. a.lock a/.lock x.lock/y a//b /a a/ a~1 a^ a^{} a:b a?b a*b a[b a\b
    HEAD refs/heads/../x ../x ../../HEAD .a a/.b a@{b --upload-pack=x ref:x"""


@pytest.mark.parametrize("name", [*BRANCHES.split(), "", " ", "a b", "a\nb", "a\tb", "a\x7fb", "a\x1b[31m", "a\0b"])
def test_no_branch_name_is_an_option_or_another_ref(honest: tuple[GitStore, Path, str], name: str) -> None:
    store, source, base = honest
    head = store.commit(changed(base, ("x", b"x")), message="fix", author=BOT, date=WHEN)
    before = snapshot(source)
    with pytest.raises((GitError, ValueError)):
        store.deliver(source, name, head)
    assert snapshot(source) == before
