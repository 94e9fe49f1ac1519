"""What a rule decides: the commands of one ecosystem, and the choices that a candidate hands it."""

import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

ABSENT = " cannot be had here, and is left out"
"""What ends a line of a set-up's output that begins with a dependency's name."""

WITHOUT_SCRIPTS = "the packages' own install scripts failed, and are left out"
"""Another such line."""


@dataclass(frozen=True, slots=True)
class InstallStep:
    """What has to be installed for one ecosystem in one directory.

    `client` is the downloader (`pip`, `npm`, `cargo`, `go`), `tools` the programs whose versions the result depends
    on, `manifests` the files that decided it (all files if code of the project may be executed), `facts` anything else
    the result depends on. `neutral` means that no code that the project chooses is executed, so that the result is
    valid for every project with the same needs. `short` is what a person would write; empty for `commands` as they are.
    """

    client: str
    commands: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    neutral: bool = False
    short: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetupChoice:
    """What one candidate decides about a set-up; what is empty is decided by the manifests.

    `requirements` are pip's arguments, quoted for a shell. `python` is an interpreter that the sandbox shows at the
    same path. `before` is a date (ISO 8601): packages are resolved as they were then. `pytest` says that it will run
    the tests, whoever they are written for. `node` is a major version that npm brings (`22`), or a program of this
    machine that the sandbox shows at the same path. `without` are clients of which nothing is installed.
    """

    requirements: tuple[str, ...] = ()
    python: str = ""
    before: str = ""
    pytest: bool = False
    node: str = ""
    without: tuple[str, ...] = ()


def not_installed(client: str, needed: str, tool: str) -> InstallStep:
    """The step that only says so."""
    return InstallStep(client, notes=(f"the project needs {needed}, but {tool} is not installed on this machine",))


def inside(root: str, command: str) -> str:
    """The command in the directory `root` (`""` or `"server/"`)."""
    return f"cd {shlex.quote(root)} && {command}" if root else command


def https_host(address: str) -> str:
    """The host of a repository's address; empty unless it is an https address with the usual port and no user."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    plain = parts.scheme == "https" and port is None and parts.username is None
    return (parts.hostname or "") if plain else ""


@cache
def program(name: str) -> str:
    """The text of a program beside this file, which a set-up's command runs inside."""
    return Path(__file__).with_name(name).read_text("utf-8")
