"""Fetches base commits from GitHub over HTTP and pushes branches with a lease.

The token is a header in git's environment, set by a process that reads it from a pipe-like file: it is in no argument
list, no configuration and no named file.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from app.repo.git_command import LONG_TIMEOUT, QUICK_TIMEOUT, Git, GitError, check_branch, git_message
from app.repo.git_format import base_ref, is_full_id
from app.repo.git_store import GitStore

PUSH_TIMEOUT = 240.0
"""Seconds; less than a publisher holds an intent for."""
HISTORY_TIMEOUT = 120.0
HISTORY_SPAN = timedelta(days=730)
"""How much history to fetch; ranking is as good with two years as with all of it."""
_NOT_ON_REMOTE = re.compile(
    r"not our ref|unadvertised object|no such remote ref|couldn't find remote ref", re.IGNORECASE
)
_CONNECTION_OPTIONS = (
    "-c",
    "http.lowSpeedLimit=1000",
    "-c",
    "http.lowSpeedTime=60",
    "-c",
    "http.followRedirects=false",
)


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository's URL and token; `variables` are for git's environment, such as a proxy's address."""

    url: str
    token: str = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def secret(self) -> dict[str, str]:
        """`variables`, which may hold a proxy's password, and git configuration: one header, for this URL only."""
        credentials = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        return {
            **self.variables,
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{self.url}.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {credentials}",
        }


class PushResult(NamedTuple):
    """The outcome of a push: `refused` is empty if the branch is now at the commit, else git's message."""

    refused: str = ""
    stale: bool = False
    """The branch was not at the expected commit: somebody else pushed to it."""


class RemoteError(GitError):
    """The remote failed or refused; the text is git's message."""


def fetch(store: GitStore, remote: Remote, commit: str, *, ref: str = "", cut: bool = True) -> None:
    """Fetch one commit with its files, without its history; no request is made if the store has it.

    `ref` is a remote ref with that commit, such as `refs/pull/7/head`: it is used if the bare id is refused, as it may
    be for a fork's head. Without `cut` the parents, which the store has, stay its parents. Raises RemoteError if that
    ref has moved on to another commit.
    """
    if not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    if ref and not ref.startswith("refs/"):
        raise ValueError(f"{ref!r} is not the full name of a ref")
    if ref:
        Git()("check-ref-format", ref)
    if store.keeps(commit):
        return
    with store.lock("fetch") as held:
        if store.keeps(commit):
            return
        store.remove_leftovers(commit)
        words = (*(("--depth=1",) if cut else ()), f"+{commit}:{base_ref(commit)}")
        refused = _fetch(store, remote, *words, held=held, timeout=LONG_TIMEOUT)
        if refused and ref and _NOT_ON_REMOTE.search(refused):
            refused = _fetch_ref(store, remote, commit, ref, held)
    if refused:
        raise RemoteError(refused)


def fetch_history(store: GitStore, remote: Remote, commit: str, *, since: datetime | None = None) -> bool:
    """Fetch the commits up to this one, without their files, for `store.log`; returns whether they are here now.

    Best effort. Fetches the two years before the commit, which must be in the store then, or the commits since a date.
    The time limit is short, because a server that cannot leave out files would send them all.
    """
    past = store.history
    past.ensure()
    if past.keeps(commit):
        return True
    since = since or store.date(commit) - HISTORY_SPAN
    words = ("--filter=blob:none", f"--shallow-since={since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    with past.lock("fetch") as held:
        past.remove_leftovers(commit)
        return not _fetch(past, remote, *words, f"+{commit}:{base_ref(commit)}", held=held, timeout=HISTORY_TIMEOUT)


def branch_tips(store: GitStore, remote: Remote, prefix: str, *, timeout: float = QUICK_TIMEOUT) -> dict[str, str]:
    """The remote's branches with this prefix, with their commits. `timeout` in seconds."""
    git = Git(f"--git-dir={store.path}")
    status, output, error = git.attempt(
        *_transport(remote),
        *("ls-remote", "--heads", "--", remote.url, f"refs/heads/{prefix}*"),
        secret=remote.secret,
        timeout=timeout,
    )
    if status:
        raise RemoteError(_tail(error))
    lines = (line.split("\t", 1) for line in output.decode("utf-8", "surrogateescape").splitlines())
    return {ref.removeprefix("refs/heads/"): commit for commit, ref in lines}


def push(store: GitStore, remote: Remote, branch: str, commit: str | None, *, expected: str | None) -> PushResult:
    """Move the branch to `commit` if it is at `expected` (None: does not exist), or already at `commit`.

    Without a commit the branch is deleted.
    """
    check_branch(branch)
    if commit is not None and not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    ref = f"refs/heads/{branch}"
    status, output, error = Git(f"--git-dir={store.path}").attempt(
        *_transport(remote),
        *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed"),
        *(f"--force-with-lease={ref}:{expected or ''}", "--", remote.url, f"{commit or ''}:{ref}"),
        secret=remote.secret,
        timeout=PUSH_TIMEOUT,
    )
    if status == 0:
        return PushResult()
    refused = re.search(r"^!\t\S+\t\[(?P<who>[^\]]+)\] ?(?P<why>.*)$", output.decode("utf-8", "replace"), re.MULTILINE)
    if refused is None:
        raise RemoteError(_tail(error))
    from_hooks = (line for line in error.splitlines() if line.startswith("remote:"))  # the server's own words
    message = " ".join(line.removeprefix("remote:").strip() for line in from_hooks)
    why = f"{refused['why'].strip('()')} {message}".strip()
    return PushResult(refused=why or refused["who"], stale="stale info" in refused["why"])


def _fetch_ref(store: GitStore, remote: Remote, commit: str, ref: str, held: int) -> str:
    """Fetch a ref under a temporary name and accept it only if it is the commit; returns why it failed."""
    temporary_ref = f"refs/agent-fix/arrived/{commit}"
    if refused := _fetch(store, remote, "--depth=1", f"+{ref}:{temporary_ref}", held=held, timeout=LONG_TIMEOUT):
        return refused
    git = Git(f"--git-dir={store.path}")
    tip = git.text("rev-parse", temporary_ref)
    if tip == commit:
        store.keep(commit)
    git("update-ref", "-d", temporary_ref)
    return "" if tip == commit else f"{ref} has moved to {tip}, and {commit} cannot be fetched by itself"


def _fetch(store: GitStore, remote: Remote, *words: str, held: int, timeout: float) -> str:
    """Returns why the fetch failed, in git's words."""
    status, _, error = Git(f"--git-dir={store.path}").attempt(
        *(*_transport(remote), "-c", "fetch.unpackLimit=1"),
        *("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
        *(*words[:-1], "--", remote.url, words[-1]),
        secret=remote.secret,
        holding=held,
        timeout=timeout,
    )
    return _tail(git_message(error)) if status else ""


def _transport(remote: Remote) -> tuple[str, ...]:
    if remote.scheme not in {"https", "http"}:
        raise ValueError(f"{remote.url!r} is not a supported repository URL")
    return ("-c", f"protocol.{remote.scheme}.allow=always", "-c", "protocol.version=2", *_CONNECTION_OPTIONS)


def _tail(error: str) -> str:
    return " ".join(error.split())[-500:] or "git gave no reason"
