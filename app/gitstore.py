"""The trusted bare repository: commits come in from a source, trees go out, patches become commits, branches are left.

    source ─fetch─► mirror ─tree, checkout─► readers, sandbox
                      ▲ └──deliver─► a new branch in the user's repository
                    commit ◄── Patch (bytes, never a work tree or `.git` that an agent could write)

Everything here blocks; callers use `asyncio.to_thread`. This is the only file that knows GitPython, and of that
only the executor: plumbing with list arguments in a clean environment (SECURITY S14, S15, S18 to S20).
"""

import errno
import fcntl
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from app.errors import AgentFixError, ExitCode, OutputError
from app.gitclean import ATTRIBUTES, ENVIRONMENT, SETTINGS, identity_variables, secret_variables
from app.gitformat import (
    NOTHING,
    FileStat,
    free_name,
    index_info,
    is_full_id,
    parse_stat,
    path_text,
    unsafe_change,
)
from app.gittree import GitTree
from app.patch import Patch
from app.task import Person

try:
    import git
except ImportError as missing:  # GitPython refuses to be imported where there is no git
    raise AgentFixError("git is not installed", hint="Install git 2.34 or newer and try again.") from missing

_NO_SPACE = "No space left on device"
QUICK = 60.0
LONG = 1_800.0
"""Seconds a command may take: a look into a repository, and one that copies a large one."""

_GIT = shutil.which("git") or "git"
_ENV = shutil.which("env") or "/usr/bin/env"
_PATH = f"{Path(_GIT).parent}:/usr/local/bin:/usr/bin:/bin"
_OPTIONS = tuple(part for setting in SETTINGS for part in ("-c", setting))
_UPLOAD_PACK = shlex.join((_GIT, *_OPTIONS, "upload-pack"))


class GitError(Exception):
    """A git command failed that should not have; the text is the command's name and git's own words."""


class UnsafePathError(GitError):
    """A patch names a path that git must never get."""


class Git:
    """Executes git in one repository: clean environment, no hooks, no configured commands, a time limit.

    `where` are global options such as `--git-dir=…` or `-C …`. With `owner` a command that writes is executed as
    that user (when we are root), so that a user's repository never receives files that its owner cannot change.
    """

    def __init__(self, *where: str, owner: os.stat_result | None = None) -> None:
        self._where = where
        self._owner = owner

    def __call__(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, timeout: float = QUICK
    ) -> bytes:
        """Standard output of a command that must succeed."""
        status, output, error = self.attempt(*arguments, stdin=stdin, env=env, timeout=timeout)
        if status == 0:
            return output
        if _NO_SPACE in error:
            raise _disk_full(error)
        name = next(word for word in arguments if word[0] != "-" and "=" not in word)
        raise GitError(f"git {name} ended with {status}: {error.strip()}")

    def text(self, *arguments: str) -> str:
        """Standard output as one line of text."""
        return self(*arguments).decode("utf-8", "surrogateescape").removesuffix("\n")

    def attempt(
        self,
        *arguments: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        secret: Mapping[str, str] | None = None,
        timeout: float = QUICK,
    ) -> tuple[int, bytes, str]:
        """Exit code, standard output, standard error. `secret`, in the place of `stdin`, are variables to be hidden."""
        variables = [f"{name}={value}" for name, value in {**ENVIRONMENT, "PATH": _PATH, **(env or {})}.items()]
        launcher, stdin = secret_variables(secret) if secret else ((), stdin)
        command = [_ENV, "-i", *variables, *launcher, _GIT, *_OPTIONS, "--literal-pathspecs", *self._where, *arguments]
        identity: dict[str, Any] = {}
        if self._owner is not None and os.geteuid() == 0 and self._owner.st_uid != 0:
            identity = {"user": self._owner.st_uid, "group": self._owner.st_gid, "extra_groups": []}
        with ExitStack() as stack:
            status, output, error = git.Git("/").execute(
                command,
                istream=stack.enter_context(_file_of(stdin)) if stdin else None,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                kill_after_timeout=timeout,
                **identity,
            )
        return status, output, error


@contextmanager
def _file_of(content: bytes) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


@contextmanager
def _full_disk_is_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _disk_full(error.strerror or "") from error


def _disk_full(words: str) -> OutputError:
    hint = "Free some space, then give the same command again: it goes on where it stood."
    return OutputError(f"The disk is full: {words.strip()}", code=ExitCode.DISK_FULL, hint=hint)


class GitStore:
    """A bare repository of ours at `path`, full of other people's commits and of the ones we make from patches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git = Git(f"--git-dir={path}")

    @_full_disk_is_told()
    def ensure(self) -> None:
        """Create the mirror unless it stands; a crash half-way leaves nothing that would be taken for one."""
        if (self.path / "info" / "attributes").is_file():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.new")
        with self.lock("new"):
            if (self.path / "info" / "attributes").is_file():
                return
            shutil.rmtree(fresh, ignore_errors=True)
            Git()("init", "-q", "--bare", "--template=", "--object-format=sha1", "--", str(fresh))
            (fresh / "info").mkdir(exist_ok=True)
            (fresh / "info" / "attributes").write_text(ATTRIBUTES)
            fresh.rename(self.path)

    @_full_disk_is_told()
    def fetch(self, source: Path | str, commit_or_ref: str) -> str:
        """Bring a commit here from a repository on this machine; returns its full id.

        Without its history, which no step of the story reads and which can be a thousand times the size.
        """
        if is_full_id(commit_or_ref) and self._keeps(commit_or_ref):
            return commit_or_ref
        theirs = Git("-C", str(source))
        commit = theirs.text("rev-parse", "--verify", "--end-of-options", f"{commit_or_ref}^{{commit}}")
        with self.lock("fetch"):
            if not self._keeps(commit):
                self._fetch(Path(source).resolve(), commit)
        return commit

    def tree(self, commit: str) -> GitTree:
        """A view of one commit's files; nothing is read before it is asked for."""
        return GitTree(self._git, _full(commit))

    @_full_disk_is_told()
    def checkout(self, commit: str, directory: Path) -> None:
        """Write a commit's files into an empty directory: exact bytes, modes and symlinks, and no `.git`."""
        with self._index(commit) as env:
            if any(directory.iterdir()):
                raise ValueError(f"{directory} is not empty")
            where = f"--work-tree={directory.resolve()}"
            Git(f"--git-dir={self.path}", where)("checkout-index", "-a", "-q", env=env, timeout=LONG)

    def diff(self, base: str, head: str, *, paths: Iterable[str] | None = None, context: int = 3) -> str:
        """The unified diff between two commits; bytes that are not UTF-8 become U+FFFD."""
        output = self._diff_tree(base, head, "-p", "-M", f"-U{context}", "--no-color", paths=paths)
        return output.decode("utf-8", "replace")

    def diff_stat(self, base: str, head: str) -> tuple[FileStat, ...]:
        """The changed files with their modes and line counts, by path."""
        return parse_stat(self._diff_tree(base, head, "-M", "--raw", "--numstat", "-z", "--no-abbrev"))

    @_full_disk_is_told()
    def commit(self, patch: Patch, *, message: str, author: Person, date: datetime) -> str:
        """Make the patch a commit on its base. The same arguments give the same id, on any machine, ever."""
        for change in patch.changes:
            if reason := unsafe_change(change):
                raise UnsafePathError(f"refusing to commit {reason}: {change.path!r}")
        with self._index(patch.base) as env:
            lines = index_info(patch.changes, self._write_blobs(patch))
            self._git("update-index", "-z", "--index-info", stdin=lines, env=env)
            tree = self._git("write-tree", env=env).decode("ascii").strip()
        touched = self._git("diff-tree", "-r", "-z", "--name-only", "--no-renames", patch.base, tree).split(b"\0")
        if implied := {path_text(name) for name in touched if name} - set(patch.paths()):
            raise GitError(f"the patch would also change {sorted(implied)[:3]}, which it does not name")
        identity = identity_variables(author, date)
        output = self._git("commit-tree", tree, "-p", patch.base, stdin=message.encode(), env=identity)
        return output.decode("ascii").strip()

    @_full_disk_is_told()
    def deliver(self, repository: Path, branch: str, commit: str) -> str:
        """Leave `commit` as a new branch in a user's repository; its work tree, index and HEAD are not touched.

        Returns the branch's name: the one asked for, or a numbered one where that is taken by other content.
        Said twice with the same commit it changes nothing and returns the same name. OutputError where the repository
        does not take it.
        """
        plain = Git("-C", str(repository))
        _check_branch(branch)
        theirs = _as_owner(repository)
        for _ in range(8):  # another process may take the name between the look and the leap
            name, delivered = free_name(branch, commit, _branches(plain))
            if delivered:
                return name
            refused = self._transfer(_full(commit), theirs) or _create(theirs, name, commit)
            if not refused:
                return name
        hint = "Mend that, then give the same command again: it goes on where it stood."
        raise OutputError(f"The branch {branch} cannot be left in {repository}: {refused}", hint=hint)

    def branch_exists(self, repository: Path, branch: str) -> bool:
        """Whether a user's repository has a local branch of this name."""
        return branch in _branches(Git("-C", str(repository)))

    def _fetch(self, source: Path, commit: str) -> None:
        self._clear_up_after_the_dead(commit)
        self._git(
            *("-c", "protocol.file.allow=always", "-c", "protocol.version=2", "-c", "fetch.unpackLimit=1"),
            *("fetch", "-q", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *(f"--upload-pack={_UPLOAD_PACK}", "--", str(source), f"+{commit}:refs/agent-fix/base/{commit}"),
            timeout=LONG,
        )

    def _clear_up_after_the_dead(self, commit: str) -> None:
        """Remove what a killed fetch left; ours is the lock that counts, and it is held."""
        for lock in ("shallow.lock", f"refs/agent-fix/base/{commit}.lock"):
            (self.path / lock).unlink(missing_ok=True)
        for unfinished in (self.path / "objects" / "pack").glob("tmp_*"):
            unfinished.unlink()

    @contextmanager
    def lock(self, purpose: str) -> Iterator[None]:
        """One process at a time, in a file beside the mirror; the kernel gives it back, whatever becomes of us."""
        with self.path.with_name(f".{self.path.name}.{purpose}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _keeps(self, commit: str) -> bool:
        """Our own ref says more than the object's presence: everything that the commit needs arrived too."""
        return self._git.attempt("rev-parse", "-q", "--verify", f"refs/agent-fix/base/{commit}")[0] == 0

    @contextmanager
    def _index(self, commit: str) -> Iterator[Mapping[str, str]]:
        """The environment of a throw-away index that holds one commit."""
        with tempfile.TemporaryDirectory(prefix="agent-fix-index-") as scratch:
            env = {"GIT_INDEX_FILE": f"{scratch}/index"}
            self._git("read-tree", _full(commit), env=env)
            yield env

    def _write_blobs(self, patch: Patch) -> dict[str, str]:
        """Store every new content as it is, in one process; returns the blob ids by path."""
        contents = [(change.path, change.content) for change in patch.changes if change.content is not None]
        with tempfile.TemporaryDirectory(prefix="agent-fix-blobs-") as scratch:
            for number, (_, content) in enumerate(contents):
                (Path(scratch) / str(number)).write_bytes(content)
            names = "".join(f"{scratch}/{number}\n" for number in range(len(contents)))
            output = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names.encode())
        return dict(zip((path for path, _ in contents), output.decode("ascii").split(), strict=True))

    def _transfer(self, commit: str, theirs: Git) -> str:
        """Copy what a repository lacks of a commit, without a remote, a URL or a hook; returns why that failed."""
        _, *parents = self._git.text("rev-list", "--no-walk", "--parents", commit).split()
        there = [parent for parent in parents if theirs.attempt("cat-file", "-e", f"{parent}^{{commit}}")[0] == 0]
        revisions = "\n".join([commit, *(f"^{parent}" for parent in there), ""]).encode("ascii")
        pack = self._git("pack-objects", "-q", "--revs", "--stdout", stdin=revisions, timeout=LONG)
        status, _, error = theirs.attempt("unpack-objects", "-q", "--strict", stdin=pack, timeout=LONG)
        return _words(error) if status else ""

    def _diff_tree(self, base: str, head: str, *options: str, paths: Iterable[str] | None = None) -> bytes:
        fixed = ("-r", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short")
        return self._git("diff-tree", *fixed, *options, _full(base), _full(head), "--", *(paths or ()))


def _full(commit: str) -> str:
    if not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    return commit


def _branches(repository: Git) -> dict[str, str]:
    output = repository.text("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/")
    return dict(line.rsplit(" ", 1) for line in output.splitlines())


def _create(repository: Git, branch: str, commit: str) -> str:
    """Make a new branch, never move one; returns why that failed."""
    words = ("update-ref", "-m", "agent-fix: new branch", f"refs/heads/{branch}", commit, NOTHING)
    status, _, error = repository.attempt(*words)
    return _words(error) if status else ""


def _words(error: str) -> str:
    """What git said, raising OutputError at once where that is a full disk."""
    if _NO_SPACE in error:
        raise _disk_full(error)
    return error.strip() or "git gave no reason"


def _check_branch(branch: str) -> None:
    if branch.startswith("-") or branch in {"HEAD", "@"}:  # refs that git can hold and nobody can name
        raise GitError(f"{branch!r} is no name for a branch")
    Git()("check-ref-format", f"refs/heads/{branch}")


def _as_owner(repository: Path) -> Git:
    """Git as the user who owns the repository, so that what root leaves there stays theirs to change."""
    plain = Git("-C", str(repository))
    shared = plain.text("rev-parse", "--path-format=absolute", "--git-common-dir")
    owned = Git("-C", str(repository), owner=Path(shared).stat())
    # An owner who cannot even reach the directory (below another's home, say) is not hindered by root's files.
    return owned if owned.attempt("rev-parse", "--git-dir")[0] == 0 else plain
