"""The trusted bare repository: commits come in from a source, trees go out, patches become commits, branches are left.

    source ─fetch─► mirror ─tree, checkout─► readers, sandbox
                      ▲ └──deliver─► a new branch in the user's repository
                    commit ◄── Patch (bytes, never a work tree or `.git` that an agent could write)

Everything here blocks; callers use `asyncio.to_thread`. Git itself is started by `app.repo.git_command`.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from app.config.signing import SigningKey
from app.core.errors import ExitCode, OutputError, RepositoryError
from app.core.failpoints import failpoint
from app.core.patch import FileChange, FileStat, Patch
from app.core.scratch import scratch
from app.core.task import Person
from app.repo.git_command import (
    ATTRIBUTES,
    LONG_TIMEOUT,
    UPLOAD_PACK,
    Git,
    GitError,
    check_branch,
    disk_full_errors,
    git_message,
    identity_variables,
)
from app.repo.git_format import (
    NULL_OID,
    CommitParts,
    GitTree,
    base_ref,
    free_name,
    index_info,
    is_full_id,
    log_ref,
    parents_of,
    parse_listing,
    parse_stat,
    path_text,
    refused_changes,
    signed_ref,
    unsafe_change,
)

__all__ = ["GitError", "GitStore", "UnsafePathError"]

_AUTHOR = Person(name="nobody", email="nobody@invalid")
_ANY_DATE = datetime(2000, 1, 1, tzinfo=UTC)
CHUNK = 1 << 20
"""Bytes of a pack that are handed on at a time."""


class UnsafePathError(GitError):
    """A patch contains a path that git must never get."""


class GitStore:
    """A bare repository of ours at `path`, with other people's commits and those that we make from patches."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._git = Git(f"--git-dir={path}")

    @disk_full_errors()
    def ensure(self) -> None:
        """Create the repository if it is missing; a crash halfway leaves nothing that looks complete."""
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

    @disk_full_errors()
    def fetch(self, source: Path | str, commit_or_ref: str) -> str:
        """Bring a commit here from a repository on this machine; returns its full id.

        The history is not copied: no step reads it, and it can be a thousand times the size.
        """
        if is_full_id(commit_or_ref) and self.keeps(commit_or_ref):
            return commit_or_ref
        theirs = Git("-C", str(source))
        commit = theirs.text("rev-parse", "--verify", "--end-of-options", f"{commit_or_ref}^{{commit}}")
        with self.lock("fetch") as held:
            if not self.keeps(commit):
                self.remove_leftovers(commit)
                self._fetch(Path(source).resolve(), commit, held)
        return commit

    def tree(self, commit: str) -> GitTree:
        """A view of one commit's files; reads nothing until asked."""
        return GitTree(self._git, _check_full_id(commit))

    @disk_full_errors()
    def checkout(self, commit: str, directory: Path, changes: Sequence[FileChange] = ()) -> None:
        """Write a commit's files into an empty directory: exact bytes, modes and symlinks, and no `.git`.

        With `changes`, the changed files are written in the same pass, so nothing reveals which they are.
        """
        with self._index(commit) as index, self._objects() as objects:
            if any(directory.iterdir()):
                raise ValueError(f"{directory} is not empty")
            env = {**index, **objects}
            self._update(changes, env)
            where = f"--work-tree={directory.resolve()}"
            Git(f"--git-dir={self.path}", where)("checkout-index", "-a", "-q", env=env, timeout=LONG_TIMEOUT)

    def diff(self, base: str, head: str, *, paths: Iterable[str] | None = None, context: int = 3) -> str:
        """The unified diff between two commits; bytes that are not UTF-8 become U+FFFD."""
        output = self._diff_tree(base, head, "-p", "-M", f"-U{context}", "--no-color", paths=paths)
        return output.decode("utf-8", "replace")

    def beginning_of_diff(self, base: str, head: str, most: int) -> tuple[bytes, int]:
        """The first bytes of such a diff, and its full size; the diff may be larger than memory."""
        with tempfile.TemporaryFile(dir=self.path.parent) as file:
            self._diff_tree(base, head, "-p", "-M", "--no-color", into=file)
            length = file.seek(0, os.SEEK_END)
            file.seek(0)
            return file.read(most), length

    def patch_stat(self, patch: Patch, *, base: str = "") -> tuple[FileStat, ...]:
        """The files that `patch_diff` shows."""
        commit = self.commit(patch, message="A change\n", author=_AUTHOR, date=_ANY_DATE)
        return self.diff_stat(base or patch.base, commit)

    def patch_diff(self, patch: Patch, *, base: str = "", context: int = 3) -> bytes:
        """The unified diff from the patch's own base, or from another commit of the store; includes binary files.

        Each change has `context` lines around it. Raises GitError if git refuses the patch.
        """
        commit = self.commit(patch, message="A change\n", author=_AUTHOR, date=_ANY_DATE)
        options = ("-p", "--binary", "--full-index", "-M", f"-U{context}", "--no-color")
        return self._diff_tree(base or patch.base, commit, *options)

    def diff_stat(self, base: str, head: str) -> tuple[FileStat, ...]:
        """The changed files with their modes and line counts, by path."""
        return parse_stat(self._diff_tree(base, head, "-M", "--raw", "--numstat", "-z", "--no-abbrev"))

    @disk_full_errors()
    def commit(self, patch: Patch, *, message: str, author: Person, date: datetime, parents: Sequence[str] = ()) -> str:
        """Commit the patch on its base, or with other `parents`; the files always build on the base.

        The same arguments give the same id, on any machine.
        """
        for path, reason in refused_changes(patch.changes, self.tree(patch.base)).items():
            raise UnsafePathError(f"refusing to write {path!r}: {reason}")
        with self._index(patch.base) as env:
            self._update(patch.changes, env)
            tree = self._git("write-tree", env=env).decode("ascii").strip()
        changed = self._git("diff-tree", "-r", "-z", "--name-only", "--no-renames", patch.base, tree).split(b"\0")
        if implied := {path_text(name) for name in changed if name} - set(patch.paths()):
            raise GitError(f"the patch would also change {sorted(implied)[:3]}, which it does not list")
        return self.commit_tree(tree, parents or (patch.base,), message=message, author=author, date=date)

    def commit_tree(self, tree: str, parents: Sequence[str], *, message: str, author: Person, date: datetime) -> str:
        """Commit a tree that is already in the store."""
        parent_options = [word for parent in parents for word in ("-p", _check_full_id(parent))]
        output = self._git(
            "commit-tree", tree, *parent_options, stdin=message.encode(), env=identity_variables(author, date)
        )
        return output.decode("ascii").strip()

    def write_blobs(self, contents: Mapping[str, bytes], env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Store contents unchanged, in one git process; returns the blob ids by path."""
        with scratch("blobs") as directory:
            for number, content in enumerate(contents.values()):
                (directory / str(number)).write_bytes(content)
            names = "".join(f"{directory}/{number}\n" for number in range(len(contents)))
            output = self._git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names.encode(), env=env)
        return dict(zip(contents, output.decode("ascii").split(), strict=True))

    @disk_full_errors()
    def pack(self, commit: str) -> Iterator[bytes]:
        """One commit with its files, without its history, in pieces of a megabyte for `unpack`."""
        objects = self._git("rev-list", "--objects", "--no-walk", _check_full_id(commit), timeout=LONG_TIMEOUT)
        file = tempfile.TemporaryFile(dir=self.path.parent)  # noqa: SIM115  # the pieces outlive this function
        self._git(
            "pack-objects", "-q", "--stdout", "--delta-base-offset", stdin=objects, into=file, timeout=LONG_TIMEOUT
        )
        file.seek(0)
        return _pieces(file)

    @disk_full_errors()
    def unpack(self, commit: str, pieces: Iterable[bytes]) -> None:
        """Add a commit from the output of `pack`. Raises GitError, and adds nothing, if that is incomplete."""
        if self.keeps(commit):
            return
        with tempfile.TemporaryFile(dir=self.path.parent) as file:
            file.writelines(pieces)
            file.seek(0)
            with self.lock("fetch") as held:
                self.remove_leftovers(commit)
                self._git("index-pack", "--stdin", stdin=file, holding=held, timeout=LONG_TIMEOUT)
                failpoint("unpack.indexed")
                self._mark_shallow(commit)
                failpoint("unpack.cut")
                self._git("rev-list", "--objects", "--quiet", commit, timeout=LONG_TIMEOUT)
                self.keep(commit)

    def date(self, commit: str) -> datetime:
        """When a commit was made."""
        seconds, _ = self._git.text("rev-list", "--no-walk", "--timestamp", _check_full_id(commit)).split()
        return datetime.fromtimestamp(int(seconds), UTC)

    def log(self, commit: str, most: int) -> bytes:
        """The log of the newest commits up to this one, for `app.repo.index.ranking`; empty if unknown."""
        status, output, _ = self._git.attempt("cat-file", "blob", log_ref(_check_full_id(commit)))
        return output if status == 0 else log(Git(f"--git-dir={self.history.path}"), commit, most)

    def keep_log(self, commit: str, log: bytes) -> None:
        """Store a commit's log that a store with the history produced."""
        blob = self._git("hash-object", "-w", "--no-filters", "--stdin", stdin=log).decode("ascii").strip()
        self._git("update-ref", log_ref(_check_full_id(commit)), blob)

    @property
    def history(self) -> "GitStore":
        """The commits' history without files, in a second repository: in this one, every commit is complete."""
        return GitStore(self.path.with_name(f".{self.path.name}.history"))

    @disk_full_errors()
    def deliver(self, repository: Path, branch: str, commit: str) -> str:
        """Create `commit` as a new branch in a user's repository; its work tree, index and HEAD are not touched.

        Returns the branch's name: the requested one, or a numbered one if that exists with other content. Idempotent
        for the same commit. Raises OutputError if the repository refuses the branch.
        """
        plain = Git("-C", str(repository))
        check_branch(branch)
        theirs = _git_as_owner(repository)
        name, delivered = free_name(branch, commit, _branches(plain))
        refused = "" if delivered else self._transfer(_check_full_id(commit), theirs)
        while not delivered and not refused:
            previous, refused = name, _create_branch(theirs, name, commit)
            name, delivered = free_name(branch, commit, _branches(plain))
            if name != previous:  # another process took the name between the check and the creation
                refused = ""
        if delivered:
            return name
        hint = "Fix that and run the same command again; it continues where it stopped."
        raise OutputError(f"The branch {branch} cannot be created in {repository}: {refused}", hint=hint)

    def _fetch(self, source: Path, commit: str, held: int) -> None:
        try:
            self._git(
                *("-c", "protocol.file.allow=always", "-c", "protocol.version=2", "-c", "fetch.unpackLimit=1"),
                *("fetch", "-q", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *(f"--upload-pack={UPLOAD_PACK}", "--", str(source), f"+{commit}:{base_ref(commit)}"),
                holding=held,
                timeout=LONG_TIMEOUT,
            )
        except GitError as error:
            status, listing, _ = Git("-C", str(source)).attempt(
                "ls-tree", "-r", "-l", "-z", commit, timeout=LONG_TIMEOUT
            )
            if status == 0 and not parse_listing(listing).missing:
                raise
            raise RepositoryError(
                f"{source} is incomplete: objects of the commit {commit[:10]} are missing.",
                code=ExitCode.UNSUPPORTED_REPOSITORY,
                hint="Clone the repository again, without --filter. `git fsck` lists what is missing.",
            ) from error

    def remove_leftovers(self, commit: str) -> None:
        """Remove what a killed fetch left. The caller must hold the lock `fetch`."""
        for lock in ("shallow.lock", f"{base_ref(commit)}.lock"):
            (self.path / lock).unlink(missing_ok=True)
        for leftover in (self.path / "objects" / "pack").glob("tmp_*"):
            leftover.unlink(missing_ok=True)

    def parents(self, commit: str) -> list[str]:
        """The parents that a commit of the store names, whether or not they are in the store."""
        return parents_of(self._git("cat-file", "commit", _check_full_id(commit)))

    def parts(self, commit: str) -> CommitParts:
        """A commit of the store, taken apart."""
        return CommitParts.of(self._git("cat-file", "commit", _check_full_id(commit)))

    def signed(self, commit: str) -> str | None:
        """The signed commit that was made for this one before."""
        status, output, _ = self._git.attempt("rev-parse", "-q", "--verify", signed_ref(_check_full_id(commit)))
        return output.decode("ascii").strip() if status == 0 else None

    def as_pushed(self, commit: str) -> str:
        """The id under which a commit of ours is published: the signed one's, if there is one."""
        return self.signed(commit) or commit

    def keep_signed(self, commit: str, signed: str) -> None:
        """Remember it: a signature made again may differ. Raises GitError if the two do not hold the same files."""
        if self.parts(commit).tree != self.parts(signed).tree:
            raise GitError(f"{signed} does not have the files of {commit}")
        self._git("update-ref", signed_ref(_check_full_id(commit)), signed)

    def sign(self, commit: str, key: SigningKey) -> str:
        """The same commit with a signature, on its signed parents; always the same one. Raises GitError."""
        if (known := self.signed(commit)) is not None:
            return known
        parts = self.parts(commit)
        name, _, rest = parts.author.decode().partition(" <")
        email, _, when = rest.partition("> ")
        fields = {"NAME": name, "EMAIL": email, "DATE": when}
        env = {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in fields.items()}
        parents = [word for parent in parts.parents for word in ("-p", self.as_pushed(parent))]
        signing = Git(*key.options, f"--git-dir={self.path}")
        made = signing("commit-tree", "-S", parts.tree, *parents, stdin=parts.message, env={**env, **key.variables})
        signed = made.decode("ascii").strip()
        self.keep_signed(commit, signed)
        return signed

    def _mark_shallow(self, commit: str) -> None:
        """Record in git's own `shallow` file that the commits before this one are missing."""
        before = self.parents(commit)
        shallow, fresh = self.path / "shallow", self.path / "shallow.lock"
        known = set(shallow.read_text("ascii").split()) if shallow.exists() else set()
        if commit in known or all(map(self.keeps, before)):
            return
        with fresh.open("x", encoding="ascii") as file:
            file.writelines(f"{each}\n" for each in sorted({*known, commit}))
            file.flush()
            os.fsync(file.fileno())
        failpoint("unpack.cutting")
        fresh.rename(shallow)

    @contextmanager
    def lock(self, purpose: str) -> Iterator[int]:
        """Let one process in at a time, by a file beside the repository; the kernel frees the lock when we die.

        Yields the descriptor for a git that must hold the lock too: it may outlive this process.
        """
        with self.path.with_name(f".{self.path.name}.{purpose}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file.fileno()

    def keeps(self, commit: str) -> bool:
        """True if the commit arrived with everything it needs, as our own ref shows; the object alone does not."""
        status, output, _ = self._git.attempt("rev-parse", "-q", "--verify", base_ref(_check_full_id(commit)))
        return status == 0 and output.decode("ascii").strip() == commit

    def keep(self, commit: str) -> None:
        """Mark a commit as complete; call this only once everything it needs is here."""
        self._git("update-ref", base_ref(_check_full_id(commit)), commit)

    @contextmanager
    def _index(self, commit: str) -> Iterator[Mapping[str, str]]:
        """The environment of a temporary index that holds one commit."""
        with scratch("index") as directory:
            env = {"GIT_INDEX_FILE": f"{directory}/index"}
            self._git("read-tree", _check_full_id(commit), env=env)
            yield env

    @contextmanager
    def _objects(self) -> Iterator[Mapping[str, str]]:
        """An environment in which new objects are discarded afterwards."""
        with scratch("objects") as directory:
            yield {
                "GIT_OBJECT_DIRECTORY": str(directory),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self.path.resolve() / "objects"),
            }

    def _update(self, changes: Sequence[FileChange], env: Mapping[str, str]) -> None:
        """Apply changes to an index."""
        for change in changes:
            if reason := unsafe_change(change):
                raise UnsafePathError(f"refusing to write {reason}: {change.path!r}")
        if not changes:
            return
        contents = {change.path: change.content for change in changes if change.content is not None}
        lines = index_info(changes, self.write_blobs(contents, env))
        self._git("update-index", "-z", "--index-info", stdin=lines, env=env)

    def _transfer(self, commit: str, theirs: Git) -> str:
        """Copy a commit's missing objects from a repository without a remote, URL or hook; returns why that failed."""
        _, *parents = self._git.text("rev-list", "--no-walk", "--parents", commit).split()
        there = [parent for parent in parents if theirs.attempt("cat-file", "-e", f"{parent}^{{commit}}")[0] == 0]
        revisions = "\n".join([commit, *(f"^{parent}" for parent in there), ""]).encode("ascii")
        pack = self._git("pack-objects", "-q", "--revs", "--stdout", stdin=revisions, timeout=LONG_TIMEOUT)
        status, _, error = theirs.attempt("unpack-objects", "-q", "--strict", stdin=pack, timeout=LONG_TIMEOUT)
        return git_message(error) if status else ""

    def _diff_tree(
        self, base: str, head: str, *options: str, paths: Iterable[str] | None = None, into: BinaryIO | None = None
    ) -> bytes:
        fixed = ("-r", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short")
        words = (*fixed, *options, _check_full_id(base), _check_full_id(head), "--", *(paths or ()))
        return self._git("diff-tree", *words, into=into, timeout=LONG_TIMEOUT)


def log(repository: Git, commit: str, most: int) -> bytes:
    """Subjects and changed files of the newest commits up to this one, without merges; empty if unknown.

    Uses plumbing, for which no setting of a repository can execute anything. Renames are not detected.
    """
    status, commits, _ = repository.attempt(
        "rev-list", "--no-merges", f"--max-count={most}", "--end-of-options", commit
    )
    if status:
        return b""
    words = ("diff-tree", "--stdin", "-r", "-z", "--name-only", "--no-renames", "--format=%x01%s")
    status, output, _ = repository.attempt(*words, stdin=commits, timeout=LONG_TIMEOUT)
    return output if status == 0 else b""


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(CHUNK):
            yield piece


def _check_full_id(commit: str) -> str:
    if not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    return commit


def _branches(repository: Git) -> dict[str, str]:
    output = repository.text("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/")
    return dict(line.rsplit(" ", 1) for line in output.splitlines())


def _create_branch(repository: Git, branch: str, commit: str) -> str:
    """Create a new branch, never move an existing one; returns why that failed."""
    words = ("update-ref", "-m", "agent-fix: new branch", f"refs/heads/{branch}", commit, NULL_OID)
    status, _, error = repository.attempt(*words)
    return git_message(error) if status else ""


def _git_as_owner(repository: Path) -> Git:
    """Git as the user who owns the repository, so that files written by root stay changeable for that user."""
    plain = Git("-C", str(repository))
    shared = plain.text("rev-parse", "--path-format=absolute", "--git-common-dir")
    owned = Git("-C", str(repository), owner=Path(shared).stat())
    # If the owner cannot even reach the directory (it may be below another user's home), files of root do no harm.
    return owned if owned.attempt("rev-parse", "--git-dir")[0] == 0 else plain
