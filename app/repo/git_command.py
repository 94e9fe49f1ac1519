"""The only module that starts git: plumbing with list arguments in a clean environment.

Everything here blocks; callers use `asyncio.to_thread`. This is the only file that uses GitPython, and of that only the
executor (SECURITY S14, S15, S18 to S20).
"""

import errno
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from app.core.errors import AgentFixError, ExitCode, OutputError
from app.core.task import Person
from app.repo.git_format import unsafe_branch

ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/dev/null",  # never unset: without it git dies on a `~` in a repository's configuration
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.askPass=",
    "core.sshCommand=false",
    "core.fsync=committed",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.alternateRefsCommand=",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "i18n.commitEncoding=UTF-8",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    # A repository of another user is only ever read by `upload-pack` and plumbing that executes nothing.
    "safe.directory=*",
)

ATTRIBUTES = "* -text -ident -filter -working-tree-encoding -eol -export-subst -export-ignore !diff !merge\n"
"""Beats every `.gitattributes` of a commit: stored bytes leave as they are, and no diff can be hidden."""


def identity_variables(author: Person, date: datetime) -> dict[str, str]:
    """Author and committer of a commit, as git's environment names them."""
    if date.tzinfo is None:
        raise ValueError("a commit's date needs a time zone")
    when = f"{int(date.timestamp())} {date.strftime('%z')}"
    fields = {"NAME": author.name, "EMAIL": author.email, "DATE": when}
    return {f"GIT_{role}_{field}": value for role in ("AUTHOR", "COMMITTER") for field, value in fields.items()}


_EXEC_WITH_STDIN_VARIABLES = (
    "import json, os, sys; os.environ.update(json.load(sys.stdin)); os.execv(sys.argv[1], sys.argv[1:])"
)


def secret_variables(variables: Mapping[str, str]) -> tuple[tuple[str, ...], bytes]:
    """A command prefix and its standard input that pass variables without showing them in a process list."""
    return (sys.executable, "-I", "-S", "-c", _EXEC_WITH_STDIN_VARIABLES), json.dumps(dict(variables)).encode()


try:
    import git
except ImportError as missing:  # GitPython also raises this on import if git is not installed
    if shutil.which("git") is not None:
        hint = "Install agent-fix again; its Python packages are not complete."
        raise AgentFixError(f"The Python package GitPython cannot be imported: {missing}", hint=hint) from missing
    raise AgentFixError("git is not installed", hint="Install git 2.34 or newer and try again.") from missing

_NO_SPACE = "No space left on device"
QUICK_TIMEOUT = 60.0
LONG_TIMEOUT = 1_800.0
"""Seconds a command may take: a look into a repository, and one that copies a large one."""

_GIT = shutil.which("git") or "git"
_ENV = shutil.which("env") or "/usr/bin/env"
_PATH = f"{Path(_GIT).parent}:/usr/local/bin:/usr/bin:/bin"
_OPTIONS = tuple(part for setting in SETTINGS for part in ("-c", setting))
UPLOAD_PACK = shlex.join((_GIT, *_OPTIONS, "upload-pack"))


class GitError(Exception):
    """A git command failed unexpectedly; the text is the command's name and git's message."""


class Git:
    """Executes git in one repository: clean environment, no hooks, no configured commands, a time limit.

    `where` are global options such as `--git-dir=…` or `-C …`. With `owner` a command that writes is executed as
    that user (when we are root), so that a user's repository never receives files that its owner cannot change.
    """

    def __init__(self, *where: str, owner: os.stat_result | None = None) -> None:
        self._where = where
        self._owner = owner

    def __call__(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO = b"",
        into: BinaryIO | None = None,
        env: Mapping[str, str] | None = None,
        holding: int | None = None,
        timeout: float = QUICK_TIMEOUT,
    ) -> bytes:
        """Standard output of a command that must succeed; empty if it goes `into` a file. See `attempt`."""
        status, output, error = self.attempt(
            *arguments, stdin=stdin, into=into, env=env, holding=holding, timeout=timeout
        )
        if status == 0:
            return output
        name = next(word for word in arguments if word[0] != "-" and "=" not in word)
        raise GitError(f"git {name} failed with exit code {status}: {git_message(error)}")

    def text(self, *arguments: str) -> str:
        """Standard output as one line of text."""
        return self(*arguments).decode("utf-8", "surrogateescape").removesuffix("\n")

    def attempt(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO = b"",
        into: BinaryIO | None = None,
        env: Mapping[str, str] | None = None,
        secret: Mapping[str, str] | None = None,
        holding: int | None = None,
        timeout: float = QUICK_TIMEOUT,
    ) -> tuple[int, bytes, str]:
        """Exit code, standard output and standard error of a command that may fail.

        `secret`, given instead of `stdin`, are environment variables that must stay hidden. `holding` is a lock's
        descriptor, which git keeps open while it runs: if this process is killed, nobody gets the lock before git has
        ended too.
        """
        variables = [f"{name}={value}" for name, value in {**ENVIRONMENT, "PATH": _PATH, **(env or {})}.items()]
        launcher, given = secret_variables(secret) if secret else ((), stdin)
        command = [_ENV, "-i", *variables, *launcher, _GIT, *_OPTIONS, "--literal-pathspecs", *self._where, *arguments]
        popen: dict[str, Any] = {"pass_fds": () if holding is None else (holding,)}
        if self._owner is not None and os.geteuid() == 0 and self._owner.st_uid != 0:
            popen |= {"user": self._owner.st_uid, "group": self._owner.st_gid, "extra_groups": []}
        with ExitStack() as stack:
            status, output, error = git.Git("/").execute(
                command,
                istream=stack.enter_context(_temporary_file(given)) if isinstance(given, bytes) else given,
                output_stream=into,
                with_extended_output=True,
                with_exceptions=False,
                stdout_as_string=False,
                strip_newline_in_stdout=False,
                kill_after_timeout=timeout,
                **popen,
            )
        return status, b"" if into else output, error


@contextmanager
def _temporary_file(content: bytes) -> Iterator[BinaryIO | None]:
    if not content:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


@contextmanager
def disk_full_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _disk_full(error.strerror or "") from error


def _disk_full(words: str) -> OutputError:
    hint = "Free some disk space and run the same command again; it continues where it stopped."
    return OutputError(f"The disk is full: {words.strip()}", code=ExitCode.DISK_FULL, hint=hint)


def git_message(error: str) -> str:
    """Git's standard error as one text. Raises OutputError if it reports a full disk."""
    if _NO_SPACE in error:
        raise _disk_full(error)
    return error.strip() or "git gave no reason"


def check_branch(branch: str) -> None:
    """Raises GitError if no branch of ours may have this name."""
    if why := unsafe_branch(branch):
        raise GitError(f"{branch!r} is not a valid branch name: {why}")
    Git()("check-ref-format", f"refs/heads/{branch}")
