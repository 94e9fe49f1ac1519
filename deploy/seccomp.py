"""Prints `deploy/seccomp.json`: what a container of a worker may not ask of the kernel, from the sandbox's own table.

A worker makes namespaces and mounts for its sandboxes, which a container runtime's profile refuses; everything else
that the sandbox's filter refuses stays refused in the whole container. Inside each sandbox the stricter filter applies.
"""

import errno
import json
import sys
from typing import Any

from app.sandbox.seccomp import FORBIDDEN, MISSING

NEEDED = frozenset({"mount", "umount2", "pivot_root", "sethostname"})
"""What bubblewrap calls, in a user namespace of its own, to lay out a sandbox."""
HARMLESS = frozenset({"clone3"})
"""Missing inside a sandbox because its flags cannot be read; a worker may start processes as it likes."""


def profile() -> dict[str, Any]:
    """In the form that container runtimes and Kubernetes read (OCI runtime specification, `linux.seccomp`)."""
    refused = [(errno.EPERM, set(FORBIDDEN) - NEEDED), (errno.ENOSYS, set(MISSING) - HARMLESS)]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": sorted(names), "action": "SCMP_ACT_ERRNO", "errnoRet": int(error)} for error, names in refused
        ],
    }


def text() -> str:
    return json.dumps(profile(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
