"""Checks a user's repository before work starts, and finds the commit of a fix that tests are wanted for.

Says in one sentence why it cannot be used. Nothing in it is changed, and nothing that it configures is executed: no
hook, filter, textconv or file watcher.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from app.core.errors import ExitCode, RepositoryError
from app.core.patch import Tree
from app.core.text import count
from app.repo.git_command import Git, GitError
from app.repo.git_format import GitTree, shown_path
from app.repo.git_store import GitStore, log

SLUG_LENGTH = 40
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_ATTRIBUTE = re.compile(rb"(?m)^[^#\n]*[ \t]filter=lfs(\s|$)")


@dataclass(frozen=True, slots=True)
class RepositoryInspection:
    """A repository that can be worked on. `tree` holds the base commit's files, already in the store."""

    root: Path
    base_commit: str
    base_ref: str
    """The full ref that the base was resolved from, or what the user typed, or `HEAD` if it is detached."""
    dirty: int | None
    """The number of files with uncommitted changes (untracked ones included); None if git could not tell."""
    tree: GitTree
    notes: tuple[str, ...] = ()
    """Sentences that the user should see."""


def inspect(path: Path, base: str | None, store: GitStore) -> RepositoryInspection:
    """Check a repository and bring its base commit into the store.

    Raises RepositoryError with a separate code for each obstacle.
    """
    root = top_level(path)
    git = Git("-C", str(root))
    _refuse_unusable_history(root, git)
    _refuse_read_only(root, git)
    commit, ref = _resolve(root, git, base)
    store.ensure()
    store.fetch(root, commit)
    tree = store.tree(commit)
    dirty = _count_dirty(git)
    return RepositoryInspection(
        root=root,
        base_commit=commit,
        base_ref=ref,
        dirty=dirty,
        tree=tree,
        notes=_notes(path, root, dirty),
    )


@dataclass(frozen=True, slots=True)
class ComparedCommits:
    """A change that is there already: full ids of the commit that it began at and of the one that it ended at."""

    base: str
    base_ref: str
    change: str
    messages: str
    """Of the commits between them, the oldest first."""


def compare(path: Path, base: str | None, change: str) -> ComparedCommits:
    """The commit at which the change left the base, so that what others did to the base meanwhile is not judged.

    Raises RepositoryError.
    """
    root = top_level(path)
    git = Git("-C", str(root))
    _refuse_unusable_history(root, git)
    (ours, ref), (theirs, _) = _resolve(root, git, base), _resolve(root, git, change)
    status, output, _ = git.attempt("merge-base", ours, theirs)
    if status:
        message = f"The change {_shown(change)!r} and the base {_shown(base or 'HEAD')!r} have no common history."
        raise RepositoryError(message, code=ExitCode.UNKNOWN_BASE)
    began = output.decode("ascii").split()[0]
    if began == theirs:
        base, change = _shown(base or "HEAD"), _shown(change)
        message = f"There is nothing to verify: the base {base!r} already contains the change {change!r}."
        raise RepositoryError(message, code=ExitCode.NO_CHANGE, hint=_NO_CHANGE)
    words = ("log", "--reverse", f"--max-count={MAX_MENTIONS}", "--format=%B", f"{began}..{theirs}")
    _, messages, _ = git.attempt(*words)
    return ComparedCommits(began, ref, theirs, messages.decode("utf-8", "replace").strip())


_NO_CHANGE = (
    "Name with --base what the change is to be merged into, and with --change the branch or commit to judge (HEAD if "
    "it is left out). What is not committed is not judged."
)


def recent_log(root: Path, commit: str, most: int) -> bytes:
    """The log of the newest commits up to this one (`GitStore.log`); empty if the repository is gone."""
    return log(Git("-C", str(root)), commit, most)


def note_about(out: Path, repository: Path) -> str:
    """A note for the user if the output folder lies in the repository's own work tree, else an empty text."""
    inside = out.resolve().is_relative_to(repository.resolve())
    return f"{out} is inside the repository; git will show it as untracked." if inside else ""


def slug(title: str) -> str:
    """A title as a short name that is safe in a ref, a file name and a shell: `[a-z0-9-]`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode("ascii")
    words = re.findall(r"[a-z0-9]+", plain.replace("'", ""))
    name = "-".join(words)
    if len(name) > SLUG_LENGTH:
        cut = name[: SLUG_LENGTH + 1].rpartition("-")[0]
        name = cut if len(cut) > SLUG_LENGTH // 2 else name[:SLUG_LENGTH]
    return name.strip("-") or "issue"


def top_level(path: Path) -> Path:
    """The work tree that contains a path. Raises RepositoryError if there is none."""
    if not path.exists():
        raise _not_a_repository(f"{path} does not exist.")
    if not path.is_dir():
        raise _not_a_repository(f"{path} is a file, not a repository.")
    git = Git("-C", str(path))
    status, output, error = git.attempt("rev-parse", "--is-bare-repository", "--is-inside-work-tree")
    if status != 0:
        raise _unreadable(path, error)
    bare, inside = output.decode("ascii").split()
    if bare == "true":
        raise RepositoryError(
            f"{path} is a bare repository: it has no work tree.",
            code=ExitCode.BARE_REPOSITORY,
            hint="Clone it and use the clone.",
        )
    if inside != "true":
        raise _not_a_repository(f"{path} is inside a .git directory.")
    return Path(git.text("rev-parse", "--show-toplevel"))


def _not_a_repository(message: str) -> RepositoryError:
    return RepositoryError(
        message, code=ExitCode.NOT_A_REPOSITORY, hint="Pass the top directory of a git repository with --repo."
    )


def _unreadable(path: Path, error: str) -> RepositoryError:
    if "not a git repository" in error:
        return _not_a_repository(f"{path} is not a git repository.")
    if "Permission denied" in error or "cannot change to" in error:
        return _not_a_repository(f"{path} cannot be read: {_first_line(error)}")
    return _unsupported(
        f"git cannot read {path}: {_first_line(error)}", "Repair the repository so that `git status` works."
    )


def _unsupported(message: str, hint: str) -> RepositoryError:
    return RepositoryError(message, code=ExitCode.UNSUPPORTED_REPOSITORY, hint=hint)


def _first_line(error: str) -> str:
    """The first line of what git said, as the end of a sentence."""
    line = next((line for line in error.splitlines() if line.strip()), "no reason given")
    return line.removeprefix("fatal: ").removeprefix("error: ").strip().rstrip(".") + "."


def _refuse_unusable_history(root: Path, git: Git) -> None:
    shallow, kind = git.text("rev-parse", "--is-shallow-repository", "--show-object-format").split()
    if kind != "sha1":
        raise _unsupported(
            f"{root} uses the object format {kind}, which GitHub does not accept yet.",
            "Use a repository with SHA-1 objects.",
        )
    if shallow == "true":
        raise RepositoryError(
            f"{root} is a shallow clone: part of its history is missing.",
            code=ExitCode.SHALLOW_REPOSITORY,
            hint="Complete it with `git fetch --unshallow`, or clone without --depth.",
        )


def _refuse_read_only(root: Path, git: Git) -> None:
    """Raise now if the repository is read-only, not after the money is spent."""
    shared = Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
    for directory in (shared / "objects", shared / "refs" / "heads"):
        if not os.access(directory, os.W_OK):
            raise _unsupported(
                f"{root} is not writable, so no branch can be created in it.",
                f"Make {directory} writable, or work in a clone.",
            )


def _resolve(root: Path, git: Git, base: str | None) -> tuple[str, str]:
    """The base's commit id and the name it came from."""
    wanted = "HEAD" if base is None else base
    if "\0" in wanted:
        raise _unknown_base(root, wanted, [])
    _refuse_ambiguous(git, wanted)
    if commit := _commit_named(git, wanted):
        return commit, _full_ref(git, wanted)
    if _commit_named(git, "HEAD") is None and not _ref_names(git):
        raise RepositoryError(
            f"{root} has no commits yet.", code=ExitCode.NO_COMMITS, hint="Commit something first, then try again."
        )
    raise _unknown_base(root, wanted, _ref_names(git))


def branch_ref(repository: Path, branch: str) -> str:
    """The ref of a branch that a configuration names: the repository's own, else that of `origin`, never a tag.

    Raises RepositoryError if there is neither.
    """
    git = Git("-C", str(repository))
    for ref in (f"refs/heads/{branch}", f"refs/remotes/origin/{branch}"):
        if _commit_named(git, ref):
            return ref
    raise RepositoryError(
        f"The configuration's `base` is the branch {branch}, which is not in {repository}.",
        code=ExitCode.UNKNOWN_BASE,
        hint=f"Fetch it (`git fetch origin {branch}`), or name another base: --base HEAD.",
    )


def _refuse_ambiguous(git: Git, wanted: str) -> None:
    """git itself would take the tag before the branch, silently."""
    if wanted == "HEAD" or git.attempt("check-ref-format", f"refs/{wanted}")[0]:
        return
    refs = [f"refs/{folder}{wanted}" for folder in ("tags/", "heads/", "remotes/")]
    commits = {ref: commit for ref in refs if (commit := _commit_named(git, ref))}
    if len(set(commits.values())) > 1:
        raise RepositoryError(
            f"The base {_shown(wanted)} could be {' or '.join(commits)}, which are different commits.",
            code=ExitCode.UNKNOWN_BASE,
            hint=f"Say which: --base {next(ref for ref in reversed(commits))}",
        )


def _unknown_base(root: Path, wanted: str, names: list[str]) -> RepositoryError:
    similar = [name for name in names if name.rpartition("/")[2] == wanted]
    similar += [name for name in difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) if name not in similar]
    hint = f"Did you mean {' or '.join(similar[:3])}?" if similar else "`git branch -a` lists the branches that exist."
    what = "HEAD does not point to a commit" if wanted == "HEAD" else f"{_shown(wanted)!r} is not a commit"
    return RepositoryError(f"The base {what} in {root}.", code=ExitCode.UNKNOWN_BASE, hint=hint)


def _full_ref(git: Git, wanted: str) -> str:
    status, output, _ = git.attempt("rev-parse", "-q", "--verify", "--symbolic-full-name", "--end-of-options", wanted)
    full = output.decode("utf-8", "surrogateescape").strip().splitlines() if status == 0 else []
    return next((line for line in full if line.startswith("refs/") or line == "HEAD"), wanted)


def _ref_names(git: Git) -> list[str]:
    return git.text("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags").splitlines()


def notes_about_contents(tree: Tree) -> tuple[str, ...]:
    """Sentences on what the commit names and does not hold: submodules, and contents that are kept in Git LFS."""
    notes = []
    if links := tree.gitlinks():
        notes.append(
            f"{count(len(links), 'submodule')} ({_first(links)}) cannot be changed here: the pinned commits stay."
        )
    if pointers := _lfs_pointers(tree):
        notes.append(
            f"{count(len(pointers), 'file')} in Git LFS ({_first(pointers)}) cannot be had here: "
            "the pointers stand in their place, and tests that need the contents fail."
        )
    return tuple(notes)


def _first(paths: Iterable[str]) -> str:
    return ", ".join(shown_path(path) for path in islice(paths, 3))


def _lfs_pointers(tree: Tree) -> list[str]:
    """Files that need Git LFS: attributes and pointers together. Pointers alone may be test data."""
    entries = tree.entries()
    attributes = [path for path in entries if path.rpartition("/")[2] == ".gitattributes"]
    if not any(_LFS_ATTRIBUTE.search(content) for content in tree.read_many(attributes).values()):
        return []
    small = [path for path, entry in entries.items() if len(_LFS_POINTER) < entry.size <= 1_024]
    return [path for path, content in tree.read_many(small).items() if content.startswith(_LFS_POINTER)]


def _count_dirty(git: Git) -> int | None:
    """The number of paths that differ from HEAD.

    `git status` would pipe changed files through configured filters, so each filter is set to empty.
    """
    _, listed, _ = git.attempt("config", "--list", "--name-only", "-z")
    keys = {key.decode("utf-8", "surrogateescape") for key in listed.split(b"\0")}
    drivers = sorted(key for key in keys if re.fullmatch(r"(?s)filter\..*\.(clean|smudge|process|required)", key))
    env = {"GIT_CONFIG_COUNT": str(len(drivers))}
    for number, key in enumerate(drivers):
        value = "false" if key.endswith(".required") else ""
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        output = git("status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all", "-unormal", env=env)
    except GitError:  # a broken index, for example: it is not used, so it does no harm
        return None
    return output.count(b"\0")


def origin_url(git: Git) -> str:
    """The URL the repository was cloned from, without credentials, or empty."""
    status, output, _ = git.attempt("config", "--get", "remote.origin.url")
    url = output.decode("utf-8", "replace").strip() if status == 0 else ""
    return re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@", r"\1", url)


def _notes(path: Path, root: Path, dirty: int | None) -> tuple[str, ...]:
    notes = []
    if path.resolve() != root.resolve():
        notes.append(f"{path} is inside the repository {root}; agent-fix uses the whole repository.")
    if dirty is None:
        notes.append(f"Uncommitted changes in {root}, if any, are neither used nor changed.")
    elif dirty:
        notes.append(
            f"{count(dirty, 'uncommitted change')} in {root} {'is' if dirty == 1 else 'are'} neither used nor changed."
        )
    return tuple(notes)


MAX_MENTIONS: Final = 2_000
"""How many of the newest commits that mention a number are examined."""
MAX_NAMED: Final = 10
"""Ids and numbers of a text that are looked up."""
_ID = re.compile(r"(?<![0-9A-Za-z#/_.-])[0-9a-f]{7,40}(?![0-9A-Za-z_-])")
_NUMBER = re.compile(r"(?:(?<![\w/&])#|\bgh-|/pull/|/issues/)([1-9][0-9]{0,8})\b", re.IGNORECASE)


def named_commits(text: str) -> tuple[str, ...]:
    """Words that may be commit ids, in order; a word of only letters or only digits is not one."""
    found = (each for each in _ID.findall(text) if re.search(r"[0-9]", each) and re.search(r"[a-f]", each))
    return tuple(dict.fromkeys(found))[:MAX_NAMED]


def named_numbers(text: str) -> tuple[int, ...]:
    """The numbers of mentioned issues and pull requests, in order."""
    return tuple(dict.fromkeys(map(int, _NUMBER.findall(text))))[:MAX_NAMED]


def requested_fix(repository: Path, base: str, name: str) -> str:
    """The full id of a named commit. Raises RepositoryError if the base's history does not contain it."""
    git = Git("-C", str(repository))
    commit = _commit_named(git, name)
    if commit is None:
        raise RepositoryError(f"The fix {_shown(name)!r} is not a commit in {repository}.", code=ExitCode.UNKNOWN_BASE)
    if not _contains(git, base, commit):
        raise RepositoryError(
            f"The fix {_shown(name)!r} is not in the history of the base {base[:10]}.",
            code=ExitCode.UNKNOWN_BASE,
            hint="Tests are written for a fix that the base contains; name such a base with --base REF.",
        )
    return commit


def mentioned_fix(repository: Path, base: str, text: str) -> str:
    """The first commit in the base's history that a text names, or an empty text.

    A commit is named by its id, or by the number of an issue or pull request: the newest commit that merged, was
    squashed from, or closed it.
    """
    git = Git("-C", str(repository))
    for name in named_commits(text):
        commit = _commit_named(git, name)
        if commit is not None and _contains(git, base, commit):
            return commit
    return _fix_of_numbers(git, base, named_numbers(text))


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 100 else ascii(name[:100])


def _commit_named(git: Git, name: str) -> str | None:
    if "\0" in name or not name:
        return None
    status, output, _ = git.attempt("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
    return output.decode("ascii").strip() if status == 0 else None


def _contains(git: Git, base: str, commit: str) -> bool:
    return git.attempt("merge-base", "--is-ancestor", commit, base)[0] == 0


def _fix_of_numbers(git: Git, base: str, numbers: tuple[int, ...]) -> str:
    """The best commit for the first number that has one, the newest among equals; reads the history once."""
    if not numbers:
        return ""
    greps = [f"--grep=#{number}" for number in numbers]
    words = ("rev-list", f"--max-count={MAX_MENTIONS}", "-F", *greps, "--format=%x01%H%x00%B", base)
    status, output, _ = git.attempt(*words)
    messages = list(_messages(output)) if status == 0 else []
    return next(filter(None, (_closest_commit(messages, number) for number in numbers)), "")


def _closest_commit(messages: list[tuple[str, str]], number: int) -> str:
    ranked = [(rank, commit) for commit, message in messages if (rank := _closeness(message, number)) is not None]
    return min(ranked, default=(0, ""), key=lambda pair: pair[0])[1]


def _messages(output: bytes) -> Iterator[tuple[str, str]]:
    for record in output.decode("utf-8", "replace").split("\x01")[1:]:
        commit, _, message = record.partition("\0")
        yield commit, message


def _closeness(message: str, number: int) -> int | None:
    """How closely a commit message refers to a number, smaller is closer; None if it does not."""
    subject = message.partition("\n")[0]
    signs = (
        rf"^Merge pull request #{number}\b",
        rf"\(#{number}\)\s*$",
        rf"\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?):?\s+#{number}\b",
    )
    places = (subject, subject, message)
    found = (rank for rank, sign in enumerate(signs) if re.search(sign, places[rank], re.IGNORECASE))
    return next(found, None)
