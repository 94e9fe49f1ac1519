"""Examines the image that containers are made from: its existence, required programs, and tools."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import SandboxError
from app.sandbox.base import ENV, HOME, SandboxLimits
from app.sandbox.bubblewrap.profile import SYSTEM_PATH
from app.sandbox.container.engine import ContainerEngine, discard
from app.sandbox.machine.execution import PLACE, PROGRAM, SUPERVISOR
from app.sandbox.machine.steps import AGAIN, ARCHIVE, FINISH, LEFT_OUT, PREPARE, UNPACK
from app.sandbox.setup.package_tools import SYSTEM_TOOLS

# Builds a container's `create` arguments, and checks the created container before it is used.
# No file of this machine is mounted: the tree goes in as an archive over a stream, so that an engine on another
# machine works too. Commands can only write to /workspace, /tmp and their home in the container's own layer: they run
# as an account that owns nothing else and has no capabilities.

SCOPE = "agent-fix"
KEY = "agent-fix-key"
"""Labels: the installation and the tree."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID")
"""Capabilities of the supervisor, as root inside: to fill a tree for another account, to become it, to end it."""
RESERVE = 64
"""Our own processes (supervisors, the socket) in addition to those of commands."""
FILES = 8192
PERIOD = 100_000
"""Microseconds. `--cpus` is the same, but refuses more processors than there are."""
SHM = "512m"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create: its name, labels, image and limits."""

    name: str
    scope: str
    key: str
    image: str
    limits: SandboxLimits
    quota: bool = False
    """Whether the engine limits processor time: rootless Podman often cannot, and would not start the container."""

    def arguments(self) -> list[str]:
        """Arguments of `create`. Process 1 only waits: whoever starts a command reaps what it leaves."""
        limits = self.limits
        return [
            *("--pull", "never", "--name", self.name, "--hostname", "sandbox"),
            *("--label", f"{SCOPE}={self.scope}", "--label", f"{KEY}={self.key}"),
            *("--network", "none", "--ipc", "private", "--cap-drop", "ALL"),
            *(word for name in CAPABILITIES for word in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *("--pids-limit", str(limits.processes + RESERVE)),
            *(("--cpu-period", str(PERIOD), "--cpu-quota", str(limits.cpus * PERIOD)) if self.quota else ()),
            *("--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--shm-size", SHM),
            *("--ulimit", f"nofile={FILES}:{FILES}", "--ulimit", "core=0:0"),
            *("--ulimit", f"nproc={limits.processes + RESERVE}:{limits.processes + RESERVE}"),
            *("--log-driver", "none", "--no-healthcheck", "--user", "0", "--workdir", "/", *_no_proxies()),
            *("--entrypoint", "sleep", self.image, "infinity"),
        ]

    def difference(self, description: Mapping[str, Any]) -> str:
        """Properties of the container that were not requested; the engine's own settings may add some."""
        host = description["HostConfig"]
        labels = description["Config"].get("Labels") or {}
        added = {str(name).upper().removeprefix("CAP_") for name in host.get("CapAdd") or ()}
        effective = description.get("EffectiveCaps")
        if effective is not None:  # Podman reports the result here
            added = {str(name).upper().removeprefix("CAP_") for name in effective}
        mounts = [
            str(mount.get("Source")) for mount in description.get("Mounts") or () if mount.get("Type") != "volume"
        ]
        wrong = {
            "its labels": (labels.get(SCOPE), labels.get(KEY)) != (self.scope, self.key),
            "its network": host.get("NetworkMode") != "none",
            "privileged": bool(host.get("Privileged")),
            f"capabilities {', '.join(sorted(added - set(CAPABILITIES)))}": not added <= set(CAPABILITIES),
            f"files of this machine: {', '.join(mounts)}": bool(mounts or host.get("Binds")),
            "devices": bool(host.get("Devices")),
            "processes of this machine": host.get("PidMode") not in {"", "private"},
            "no limit of memory": host.get("Memory") != self.limits.memory,
            "no limit of processors": self.quota and host.get("CpuQuota") != self.limits.cpus * PERIOD,
            "no limit of processes": host.get("PidsLimit") != self.limits.processes + RESERVE,
            "new privileges": not any("no-new-privileges" in option for option in host.get("SecurityOpt") or ()),
        }
        return "; ".join(what for what, is_so in wrong.items() if is_so)


def _no_proxies() -> list[str]:
    """Both engines pass this machine's proxies on, including passwords, unless they are told not to."""
    return [word for name in _PROXIES for form in (name, name.lower()) for word in ("--env", f"{form}=")]


DEFAULT = "python:3.12-bookworm"
NEEDED = (
    *("python3", "git", "grep", "gzip", "sleep", "mv", "rm", "chmod", "rmdir", "realpath", "install", "base64"),
    *("/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/find", "/usr/bin/setpriv", "/usr/bin/sha1sum"),
    *("/usr/bin/tar", "/usr/bin/xargs"),
)
"""Programs without which no sandbox or job can run."""
MIN_PYTHON = (3, 9)
QUESTION_SECONDS = 120
"""After this time a container for a question is gone, even if its caller has died."""
_FIND_TOOLS = """
for name in "$@"; do command -v "$name" > /dev/null 2>&1 && echo "$name"; done
echo "interpreter:$(command -v python3)"
find / -maxdepth 0 -printf 'gnu-find\n' 2> /dev/null
python3 -I -c 'import asyncio, ctypes, selectors, sys; print("python-%d.%d" % sys.version_info[:2])' 2> /dev/null
exit 0
"""
_OUR_VARIABLES = ("HOME", "HOSTNAME", "TMPDIR", "LANG")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """`id` is the engine's digest; `environment` are the variables that it sets."""

    name: str
    id: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def from_inspect(cls, name: str, facts: Mapping[str, Any]) -> "ContainerImage":
        pairs = (str(entry).partition("=") for entry in facts.get("Config", {}).get("Env") or ())
        return cls(name, str(facts["Id"]), tuple((key, value) for key, _, value in pairs if key not in _OUR_VARIABLES))

    def variables(self) -> dict[str, str]:
        """Every variable of a command, without those of the set-up and the single command."""
        variables = dict(self.environment)
        path = variables.pop("PATH", "") or ":".join(SYSTEM_PATH)
        return {**variables, "PATH": f"{ENV}/bin:{path}", "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108


async def find_image(engine: ContainerEngine, name: str) -> ContainerImage:
    """Raises SandboxError if it does not exist: nothing is downloaded while a job waits."""
    facts = await engine.image(name)
    if facts is None:
        raise SandboxError(f"{engine.title} does not have the image {name}.", hint=missing_image_hint(engine, name))
    return ContainerImage.from_inspect(name, facts)


def missing_image_hint(engine: ContainerEngine, name: str) -> str:
    return f"Fetch it with `{engine.name} pull {name}`, or set AGENT_FIX_CONTAINER_IMAGE to another one."


async def ask_image(engine: ContainerEngine, image: str) -> frozenset[str]:
    """Which of NEEDED and SYSTEM_TOOLS the image has, and `gnu-find`, `python-MAJOR.MINOR`, `interpreter:PATH`. Raises
    SandboxError if that cannot be found out, for example without `sh` or `sleep`."""
    name = f"agent-fix-question-{secrets.token_hex(8)}"
    try:
        *words, _ = ContainerSpec(name, scope="", key="", image=image, limits=SandboxLimits()).arguments()
        await engine.create(["--rm", *words, str(QUESTION_SECONDS)])
        await engine.start(name)
        output = await engine.run(
            "exec", name, "sh", "-c", _FIND_TOOLS, "sh", *NEEDED, *SYSTEM_TOOLS, action="asking the image"
        )
    finally:
        await discard(engine, name)
    return frozenset(output.split())


def missing_tools(tools: frozenset[str]) -> Sequence[str]:
    """What an image lacks, according to `ask_image`."""
    lacks = [name for name in NEEDED if name not in tools]
    if "/usr/bin/find" in tools and "gnu-find" not in tools:
        lacks.append("GNU find (findutils)")
    versions = [tuple(map(int, word[7:].split("."))) for word in tools if word.startswith("python-")]
    if "python3" in tools and (not versions or versions[0] < MIN_PYTHON):
        lacks.append("a complete Python 3.9 or newer")
    return lacks


_QUIET = ": > /etc/resolv.conf; echo '127.0.0.1 localhost sandbox' > /etc/hosts"
"""The engine writes this machine's names and name servers there."""

_LACKING = f"""
lacking=$(for name in {" ".join(NEEDED)}; do command -v $name > /dev/null 2>&1 || printf ' %s' $name; done)
[ -z "$lacking" ] || {{ echo "the image lacks$lacking; see agent-fix doctor" >&2; exit 3; }}
"""

FILL = f"""
{_LACKING}
number=$1 supervisor=$2 files=$3
shift 3
directories=("$@")
{_QUIET}
mkdir -p {PLACE}
printf %s "$supervisor" | base64 -d > {PROGRAM}
set -- "$number"
{PREPARE}
cat > {ARCHIVE}
set -- "$files"
{UNPACK}
"""
"""Prepared, and filled from stdin. A set-up continues from here."""

OPEN = f"""{FILL}
set -- "${{directories[@]}}"
{FINISH}
{LEFT_OUT}
"""
"""Filled and ready; prints what failed in the set-up."""

REOPEN = f"""
({AGAIN}) || {{ echo unready; exit 0; }}
{_QUIET}
{LEFT_OUT}
"""
"""Prints that it never became ready, or what failed in the set-up."""

UNREADY = "unready"


def arguments(number: int, files: int, *directories: str) -> list[str]:
    """Arguments of FILL and OPEN: the uid of commands, the number of files, the set-up's paths in the tree."""
    return [str(number), base64.b64encode(SUPERVISOR.read_bytes()).decode(), str(files), *directories]
