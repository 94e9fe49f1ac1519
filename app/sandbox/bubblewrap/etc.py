"""Writes a sandbox's /etc: names for its user, certificates, the linker's cache, and nothing of the host's own."""

import hashlib
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from app.sandbox.bubblewrap.profile import Mount

HOST_ETC = Path("/etc")
COPIED_FILES = ("ld.so.cache", "ld.so.conf", "services", "protocols", "ethertypes", "mime.types", "maven/m2.conf")
MOUNTED_DIRECTORIES = ("alternatives", "pki", "ca-certificates/extracted", "crypto-policies", "maven/logging")
"""Directories that are mounted read-only if the host has them."""


def synthetic_etc(caches: Path, uid: int, host: Path = HOST_ETC) -> tuple[Mount, ...]:
    """Write it once per content below `caches`; returns its mounts."""
    files = _files(uid, host)
    directories = _directories(host)
    digest = hashlib.sha256(repr((sorted(files.items()), directories)).encode()).hexdigest()[:16]
    etc_directory = caches / f"etc-{digest}"
    if not etc_directory.exists():
        _write(etc_directory, files, [str(directory.relative_to(host)) for directory in directories])
    shown = (Mount(directory, f"/etc/{directory.relative_to(host)}") for directory in directories)
    return (Mount(etc_directory, "/etc"), *shown)


def _files(uid: int, host: Path) -> dict[str, bytes]:
    made = {
        "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nagent:x:{uid}:{uid}:agent:/home/agent:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nagent:x:{uid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "hostname": "sandbox\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
        "resolv.conf": "",
        "shells": "/bin/sh\n/bin/bash\n",
    }
    files = {name: text.encode() for name, text in made.items()}
    for source in [*(host / name for name in COPIED_FILES), *(host / "ssl").glob("*")]:
        with suppress(OSError):  # unreadable is treated as absent
            if source.is_file():
                files[str(source.relative_to(host))] = source.read_bytes()
    return files


def _directories(host: Path) -> list[Path]:
    """`ssl/private` holds the host's keys, so only the other directories of `ssl` are shown."""
    known = [host / name for name in MOUNTED_DIRECTORIES]
    known += sorted(host.glob("java-*"))  # where distributions keep parts of a JDK
    certificates = [path for path in sorted((host / "ssl").glob("*")) if path.name != "private"]
    return [path for path in (*known, *certificates) if path.is_dir()]


def _write(directory: Path, files: dict[str, bytes], directories: list[str]) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".etc-", dir=directory.parent))
    for name in directories:
        (partial / name).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (partial / name).parent.mkdir(exist_ok=True)
        (partial / name).write_bytes(content)
    (partial / "os-release").symlink_to("../usr/lib/os-release")
    (partial / "mtab").symlink_to("/proc/self/mounts")
    for path in (partial, *partial.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
    try:
        partial.rename(directory)
    except OSError:  # another process was faster
        shutil.rmtree(partial)
