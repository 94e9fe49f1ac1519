"""The trusted repository and a forge over HTTP: base commits come in, branches go out under a lease.

The token is a header in git's environment, set by a process that reads it from a pipe-like file: it is in no argument
list, no configuration and no file with a name.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.gitformat import is_full_id
from app.gitstore import LONG, QUICK, Git, GitError, GitStore

PUSH = 240.0
"""Seconds; less than a publisher holds an intent for."""
_QUIET_LINE = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-c", "http.followRedirects=false")


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository's address and the token that opens it; `variables` such as a proxy's address."""

    url: str
    token: str = field(repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    @property
    def secret(self) -> dict[str, str]:
        """Git's configuration by environment: one header, for this address only."""
        credentials = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        return {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"http.{self.url}.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {credentials}",
        }


class Push(NamedTuple):
    """How a push ended: `refused` is empty where the branch now is at the commit, else git's words."""

    refused: str = ""
    stale: bool = False
    """The branch was not where it was expected: somebody else has been there."""


class RemoteError(GitError):
    """The remote did not answer as one; the text is git's own words."""


def fetch(store: GitStore, remote: Remote, commit: str) -> None:
    """Bring one commit with its files into the store, without its history. Nothing is asked where it is there."""
    if not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    git = Git(f"--git-dir={store.path}")
    ref = f"refs/agent-fix/base/{commit}"
    if git.attempt("rev-parse", "-q", "--verify", ref)[0] == 0:
        return
    words = ("fetch", "-q", "--depth=1", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    with store.lock("fetch"):
        status, _, error = git.attempt(
            *_transport(remote), *words, "--", remote.url, f"+{commit}:{ref}", secret=remote.secret, timeout=LONG
        )
    if status:
        raise RemoteError(_last_words(error))


def branch_tips(store: GitStore, remote: Remote, prefix: str) -> dict[str, str]:
    """The remote's branches whose name begins so, with their commits."""
    git = Git(f"--git-dir={store.path}")
    status, output, error = git.attempt(
        *_transport(remote),
        *("ls-remote", "--heads", "--", remote.url, f"refs/heads/{prefix}*"),
        secret=remote.secret,
        timeout=QUICK,
    )
    if status:
        raise RemoteError(_last_words(error))
    lines = (line.split("\t", 1) for line in output.decode("utf-8", "surrogateescape").splitlines())
    return {ref.removeprefix("refs/heads/"): commit for commit, ref in lines}


def push(store: GitStore, remote: Remote, branch: str, commit: str, *, expected: str | None) -> Push:
    """Make `commit` the branch's tip if the branch is at `expected` (None: does not exist), or at `commit` already."""
    Git()("check-ref-format", f"refs/heads/{branch}")
    if not is_full_id(commit):
        raise ValueError(f"{commit!r} is not a full commit id")
    ref = f"refs/heads/{branch}"
    status, output, error = Git(f"--git-dir={store.path}").attempt(
        *_transport(remote),
        *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", "--no-signed"),
        *(f"--force-with-lease={ref}:{expected or ''}", "--", remote.url, f"{commit}:{ref}"),
        secret=remote.secret,
        timeout=PUSH,
    )
    if status == 0:
        return Push()
    refused = re.search(r"^!\t\S+\t\[(?P<who>[^\]]+)\] ?(?P<why>.*)$", output.decode("utf-8", "replace"), re.MULTILINE)
    if refused is None:
        raise RemoteError(_last_words(error))
    why = f"{refused['why'].strip('()')} {_remote_words(error)}".strip()
    return Push(refused=why or refused["who"], stale="stale info" in refused["why"])


def _transport(remote: Remote) -> tuple[str, ...]:
    if remote.scheme not in {"https", "http"}:
        raise ValueError(f"{remote.url!r} is no address of a forge")
    return ("-c", f"protocol.{remote.scheme}.allow=always", "-c", "protocol.version=2", *_QUIET_LINE)


def _remote_words(error: str) -> str:
    """What the forge's own hooks said, without git's decoration."""
    return " ".join(line.removeprefix("remote:").strip() for line in error.splitlines() if line.startswith("remote:"))


def _last_words(error: str) -> str:
    return " ".join(error.split())[-500:] or "git gave no reason"
