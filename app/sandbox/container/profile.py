"""Builds a container's `create` arguments, and checks the created container before it is used.

No file of this machine is mounted: the tree goes in as an archive over a stream, so that an engine on another machine
works too. Commands can only write to /workspace, /tmp and their home in the container's own layer: they run as an
account that owns nothing else and has no capabilities.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.sandbox.base import SandboxLimits

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
