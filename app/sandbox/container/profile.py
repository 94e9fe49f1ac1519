"""What a sandbox's container is made of, as arguments of `create`; and what of it is read back before it is used.

No file of this machine is mounted: the tree goes in as an archive over a stream, so that an engine on another machine
does as well. The root file system is the container's own layer, which commands cannot write beside /workspace, /tmp
and their home: they are executed as an account that owns nothing else, and hold no capability.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.sandbox.base import SandboxLimits

SCOPE = "agent-fix"
KEY = "agent-fix-key"
"""Labels: whose it is, and which tree."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID")
"""What the supervisor, as root inside, is left with: to fill a tree for another account, to become it, to end it."""
RESERVE = 64
"""Processes of ours (supervisors, the way out) beside those that commands may have."""
FILES = 8192
SHM = "512m"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to be: its name, its labels, what it is made from, and what it may use."""

    name: str
    scope: str
    key: str
    image: str
    limits: SandboxLimits

    def arguments(self) -> list[str]:
        """Of `create`. Process 1 only waits: whoever starts a command reaps what that leaves."""
        limits = self.limits
        return [
            *("--pull", "never", "--name", self.name, "--hostname", "sandbox"),
            *("--label", f"{SCOPE}={self.scope}", "--label", f"{KEY}={self.key}"),
            *("--network", "none", "--ipc", "private", "--cap-drop", "ALL"),
            *(word for name in CAPABILITIES for word in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *("--pids-limit", str(limits.processes + RESERVE)),
            *("--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--shm-size", SHM),
            *("--ulimit", f"nofile={FILES}:{FILES}", "--ulimit", "core=0:0"),
            *("--ulimit", f"nproc={limits.processes + RESERVE}:{limits.processes + RESERVE}"),
            *("--log-driver", "none", "--no-healthcheck", "--user", "0", "--workdir", "/", *_no_proxies()),
            *("--entrypoint", "sleep", self.image, "infinity"),
        ]

    def difference(self, told: Mapping[str, Any]) -> str:
        """What the engine says of it that was not asked for: its own settings may add to what it is told."""
        host = told["HostConfig"]
        labels = told["Config"].get("Labels") or {}
        added = {str(name).upper().removeprefix("CAP_") for name in host.get("CapAdd") or ()}
        effective = told.get("EffectiveCaps")
        if effective is not None:  # Podman says what it came to
            added = {str(name).upper().removeprefix("CAP_") for name in effective}
        mounts = [str(mount.get("Source")) for mount in told.get("Mounts") or () if mount.get("Type") != "volume"]
        wrong = {
            "its labels": (labels.get(SCOPE), labels.get(KEY)) != (self.scope, self.key),
            "its network": host.get("NetworkMode") != "none",
            "privileged": bool(host.get("Privileged")),
            f"capabilities {', '.join(sorted(added - set(CAPABILITIES)))}": not added <= set(CAPABILITIES),
            f"files of this machine: {', '.join(mounts)}": bool(mounts or host.get("Binds")),
            "devices": bool(host.get("Devices")),
            "processes of this machine": host.get("PidMode") not in {"", "private"},
            "no limit of memory": host.get("Memory") != self.limits.memory,
            "no limit of processes": host.get("PidsLimit") != self.limits.processes + RESERVE,
            "new privileges": not any("no-new-privileges" in option for option in host.get("SecurityOpt") or ()),
        }
        return "; ".join(what for what, is_so in wrong.items() if is_so)


def _no_proxies() -> list[str]:
    """Both engines hand this machine's proxies on, passwords and all, unless they are told otherwise."""
    return [word for name in _PROXIES for form in (name, name.lower()) for word in ("--env", f"{form}=")]
