"""Finds the repair for a sandbox that does not start or hold, as commands to copy."""

import platform
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import AgentFixError

SYS_ADMIN_BIT = 21
APPARMOR = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
DEBIAN_SETTING = Path("/proc/sys/kernel/unprivileged_userns_clone")
MAX_NAMESPACES = Path("/proc/sys/user/max_user_namespaces")
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

OTHER_SANDBOXES = "Or use another sandbox: --sandbox e2b, --sandbox docker."
AS_ORDINARY_USER = "Run agent-fix as an ordinary user."
DOCKER = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined --user 1000 ..."
)
DOCKER_ROOT = "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined ..."
UBUNTU = (
    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
    "(or install the package apparmor-profiles and load its profile bwrap-userns-restrict for /usr/bin/bwrap)"
)
PROPERTY_REPAIR = {
    "": f"This kernel or container does not enforce it. {OTHER_SANDBOXES}",
    "network": "The kernel needs CONFIG_NET_NS; a container must be allowed to create network namespaces. "
    f"{OTHER_SANDBOXES}",
    "system call filter": f"The kernel needs CONFIG_SECCOMP_FILTER. {OTHER_SANDBOXES}",
    "system calls": f"The kernel needs CONFIG_SECCOMP_FILTER. {OTHER_SANDBOXES}",
    "process limit": "Start agent-fix where it may create control groups (systemd-run --user --scope -p Delegate=yes "
    "agent-fix ...), or on Linux 5.14 or newer, where the process limit counts per sandbox.",
    "memory limit": "Start agent-fix where it may create control groups: "
    "systemd-run --user --scope -p Delegate=yes agent-fix ...",
    "work tree": "Choose a state directory on a writable file system: --state DIR.",
    "attack": "The Python of this installation must be readable by other users: chmod -R a+rX on its directory.",
}


@dataclass(frozen=True, slots=True)
class HostConditions:
    """The facts about this machine that decide whether namespaces can be created."""

    linux: bool = True
    root: bool = False
    sys_admin: bool = False
    container: bool = False
    apparmor_restricts: bool = False
    namespaces_off: bool = False
    """A Debian kernel's own setting turns unprivileged user namespaces off."""
    none_allowed: bool = False


def host_conditions() -> HostConditions:
    status = _read(Path("/proc/self/status"))
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return HostConditions(
        linux=platform.system() == "Linux",
        root=fields.get("Uid", "").split()[1:2] == ["0"],
        sys_admin=bool(int(fields.get("CapEff", "0"), 16) >> SYS_ADMIN_BIT & 1),
        container=any(mark.exists() for mark in CONTAINER_MARKS),
        apparmor_restricts=_read(APPARMOR) == "1",
        namespaces_off=_read(DEBIAN_SETTING) == "0",
        none_allowed=_read(MAX_NAMESPACES) == "0",
    )


def start_repair(conditions: HostConditions, error: AgentFixError) -> str:
    """The repair that fits this machine best; `error` is why no sandbox started."""
    has_own_hint = bool(error.hint) and "doctor" not in error.hint
    rules = (
        (not conditions.linux, "bubblewrap exists on Linux only. Use --sandbox docker or --sandbox e2b."),
        (has_own_hint, error.hint),
        (
            conditions.root and conditions.sys_admin,
            f"This container does not let even root create namespaces. {AS_ORDINARY_USER} {OTHER_SANDBOXES}",
        ),
        (
            conditions.root,
            f"This root user may not create namespaces. {AS_ORDINARY_USER} Or: {DOCKER_ROOT} {OTHER_SANDBOXES}",
        ),
        (conditions.apparmor_restricts, UBUNTU),
        (conditions.namespaces_off, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (conditions.none_allowed, "sudo sysctl -w user.max_user_namespaces=15000"),
        (conditions.container, f"{DOCKER} The sandbox has its own filter. {OTHER_SANDBOXES}"),
        (True, f"The kernel needs CONFIG_USER_NS and user.max_user_namespaces above 0. {OTHER_SANDBOXES}"),
    )
    return next(text for holds, text in rules if holds)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
