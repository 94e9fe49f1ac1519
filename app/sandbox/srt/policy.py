"""What srt is told of one command: which files it may read and write, which network it has. Pure, for Linux and macOS.

Everything else is closed by srt itself: what is not writable by name is not, and no host is allowed by us. While a
set-up installs packages, the one way out is our own proxy on a port of the loopback.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.sandbox.base import SandboxLimits
from app.sandbox.command import SandboxCommand

Platform = Literal["linux", "darwin"]

SHARED = {"linux": "/tmp/claude", "darwin": "/private/tmp/claude"}  # noqa: S108
"""srt opens this to every command of every job, to read and to write, where it exists."""
PRIVATE = (
    "/Users",
    "/Volumes",
    "/Library/Keychains",
    "/private/tmp",
    "/private/var/tmp",
    "/private/var/folders",
    "/private/var/root",
    "/private/var/log",
    "/private/var/mail",
    "/private/var/spool",
)
"""What a Mac keeps of its users. Elsewhere it has system files that every program needs, so those stay readable."""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
DIRECT = "127.0.0.1,localhost"
"""What srt itself would name here includes private networks, where a company's package mirror may stand."""


@dataclass(frozen=True, slots=True)
class SrtReach:
    """One command's files: `writable` may be read too, `kept` are parts of those that may not be written.

    `hidden` are private places besides the usual. `port` is where our proxy listens, in a set-up only.
    """

    readable: Sequence[str]
    writable: Sequence[str]
    writable_exceptions: Sequence[str] = ()
    hidden: Sequence[str] = ()
    port: int | None = None


@dataclass(frozen=True, slots=True)
class SrtPrograms:
    """What srt starts itself on Linux; nothing on a Mac."""

    bwrap: str = ""
    socat: str = ""
    search: str = ""


def settings(platform: Platform, reach: SrtReach, programs: SrtPrograms) -> dict[str, object]:
    """The content of srt's settings file."""
    shared = SHARED[platform]
    # On Linux all is hidden but what is named. On a Mac that leaves a program without what the system gives it.
    hidden = ["/"] if platform == "linux" else [*PRIVATE, *reach.hidden]
    told: dict[str, object] = {
        "network": {
            "allowedDomains": [],
            "deniedDomains": [],
            "strictAllowlist": True,
            "allowUnixSockets": [],
            "allowAllUnixSockets": False,
            "allowLocalBinding": False,
            **({} if reach.port is None else {"httpProxyPort": reach.port, "socksProxyPort": reach.port}),
        },
        "filesystem": {
            "denyRead": [*hidden, f"{shared}/*"],
            "allowRead": list(reach.readable),
            "allowWrite": list(reach.writable),
            "denyWrite": [shared, *reach.writable_exceptions],
        },
        "enableWeakerNestedSandbox": False,
        "enableWeakerNetworkIsolation": False,
        "allowAppleEvents": False,
    }
    if platform == "linux":
        # It would look for files to protect in its own working directory, which has none: any program will do.
        told |= {
            "bwrapPath": programs.bwrap,
            "socatPath": programs.socat,
            "ripgrep": {"command": programs.search},
        }
    return told


def script(platform: Platform, command: SandboxCommand, limits: SandboxLimits, begun: Path, *, proxied: bool) -> bytes:
    """What srt executes: the command with its own environment, directory and limits, and nothing of srt's.

    A script and no argument, because srt makes one line of a shell of its arguments, which has a length. The shell
    waits for the command, so that one ended by a signal is 128 and more; what it says of that itself is not output.
    """
    variables = dict(command.env)
    if proxied:
        variables |= {"NO_PROXY": DIRECT, "no_proxy": DIRECT}
    words = [shlex.quote(f"{name}={value}") for name, value in variables.items()]
    words += [f'{name}="${name}"' for name in PROXIES] if proxied else []
    if platform == "linux":
        bounds = [f"--data={limits.memory}", f"--nproc={limits.processes}", f"--fsize={limits.file_size}"]
        start = shlex.join(["prlimit", "--core=0", *bounds, "--", "env", "-i"])
    else:
        start = "env -i"
    lines = [
        "exec 3>&2 2> /dev/null",
        f": > {shlex.quote(str(begun))}",
        f"cd -- {shlex.quote(command.cwd)} 2>&3 || exit 127",
        *(() if platform == "linux" else ("ulimit -c 0", f"ulimit -f {limits.file_size // 512}")),
        f"( exec 2>&3 3>&-; exec {start} {' '.join(words)} {shlex.join(command.argv)} )",
        "exit $?",
    ]
    return "\n".join([*lines, ""]).encode(errors="surrogateescape")


def surroundings_of_srt(path: str, temporary: Path, marks: Mapping[str, str]) -> dict[str, str]:
    """The environment of srt itself, which is outside: nothing that a repository or a command could have set."""
    return {"PATH": path, "HOME": "/nonexistent", "TMPDIR": str(temporary), "LANG": "C.UTF-8", **marks}
