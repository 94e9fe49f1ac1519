"""The settings that a package client on this machine uses, and how to ask for them."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

SECONDS = 30.0
"""The time a client has to answer (half a second is usual, ten on a busy machine), else it is treated as not there."""

_REMOTE = {"http", "https"}


@dataclass(frozen=True, slots=True)
class ClientProblem:
    """Why an index cannot be used from a sandbox; `fatal` for a client's main index."""

    client: str
    sentence: str
    fatal: bool


@dataclass(frozen=True, slots=True)
class PackageClients:
    """What a set-up needs to use this machine's package indexes.

    `hosts` are origins for `app.sandbox.egress.allow_list`; `environment` holds client settings, never a credential;
    `directories` are host paths to mount at the same path (local indexes, a CA file); `cargo_config` is text for
    cargo's configuration file, because source replacement has no variable.
    """

    hosts: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    directories: tuple[Path, ...] = ()
    cargo_config: str = ""
    problems: tuple[ClientProblem, ...] = ()


def merge(parts: Iterable[PackageClients]) -> PackageClients:
    """All parts as one; the first to set a variable wins."""
    every = tuple(parts)
    variables: dict[str, str] = {}
    for part in every:
        variables = dict(part.environment) | variables
    return PackageClients(
        hosts=tuple(dict.fromkeys(host for part in every for host in part.hosts)),
        environment=tuple(sorted(variables.items())),
        directories=tuple(dict.fromkeys(path for part in every for path in part.directories)),
        cargo_config="".join(part.cargo_config for part in every),
        problems=tuple(problem for part in every for problem in part.problems),
    )


@dataclass(frozen=True, slots=True)
class IndexLocation:
    """Where an index is: `origin` for a remote one, `path` for one on this machine; both empty for anything else."""

    url: str
    origin: str = ""
    path: Path | None = None
    credentials: bool = False


def locate(url: str) -> IndexLocation:
    """Tell a remote index from a local one, and whether its address contains a user name or password."""
    plain = url.removeprefix("sparse+")
    try:
        parts = urlsplit(plain)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return IndexLocation(url)
    if parts.scheme == "file":
        return IndexLocation(url, path=Path(unquote(parts.path)))
    if not parts.scheme and plain:
        return IndexLocation(url, path=Path(plain).expanduser())
    if parts.scheme not in _REMOTE or not parts.hostname:
        return IndexLocation(url)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return IndexLocation(url, origin=f"{parts.scheme}://{host}{port}", credentials="@" in parts.netloc)


def credentials_problem(client: str, location: IndexLocation, *, fatal: bool) -> ClientProblem:
    sentence = f"{client} on this machine uses an index at {location.origin} with credentials in its address"
    return ClientProblem(client, f"{sentence}, which must not enter the sandbox", fatal)


async def ask(
    argv: Sequence[str], environment: Mapping[str, str] | None = None, *, seconds: float = SECONDS
) -> str | None:
    """A client's output, or None if it is missing, fails or takes too long.

    Runs in the root directory, because the settings of the caller's project are not this machine's.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=None if environment is None else dict(environment),
            cwd="/",
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode("utf-8", "replace") if process.returncode == 0 else None
