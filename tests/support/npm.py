"""What others publish on npm and tests judge by: fetched once by npm's own client, kept in .cache, read as archives."""

import fcntl
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.emulate.provision import Unavailable

CACHE = Path(__file__).parents[2] / ".cache" / "npm"
SECONDS = 200.0


def member(package: str, sha256: str, name: str) -> bytes:
    """One file of a package; Unavailable where npm or its registry cannot be had."""
    with tarfile.open(_archive(package, sha256)) as archive:
        file = archive.extractfile(f"package/{name}")
        assert file is not None, f"{package} has no {name}"
        return file.read()


@contextmanager
def alone() -> Iterator[None]:
    """One process at a time fetches and unpacks; the others wait and find it there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _archive(package: str, sha256: str) -> Path:
    path = CACHE / f"{package.lstrip('@').replace('/', '-').replace('@', '-')}.tgz"
    if not path.exists():
        with alone():
            if not path.exists():
                _fetch(package, path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256, f"{path} is not what was published"
    return path


def _fetch(package: str, path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable(f"npm, which would bring {package}, is not installed")
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", place, package]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm did not bring {package} within {SECONDS:.0f} seconds") from None
        found = list(Path(place).glob("*.tgz"))
        if done.returncode or len(found) != 1:
            raise Unavailable(f"npm gives no {package}: {' '.join(done.stderr.split())[:200]}")
        found[0].rename(path)
