"""What the comparison needs from the package index: exact pins, each set in an environment below `.cache/peers`."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements"
CACHE = Path(__file__).parent.parent / ".cache" / "peers"
PROJECT = "sqlparse"


class NotInstalledError(Exception):
    """Why something cannot be had on this machine, in one line."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment after `bench/requirements/<name>.txt`; made anew where that file has changed."""

    name: str
    python: tuple[int, int] = (3, 11)

    @property
    def root(self) -> Path:
        return CACHE / self.name

    @property
    def programs(self) -> Path:
        return self.root / "bin"

    def install(self) -> "Environment":
        """Raises NotInstalledError."""
        requirements = REQUIREMENTS / f"{self.name}.txt"
        stamp, mark = self.root / ".installed", hashlib.sha256(requirements.read_bytes()).hexdigest()
        if stamp.is_file() and stamp.read_text() == mark:
            return self
        print(f"installing {self.name} …", file=sys.stderr, flush=True)
        shutil.rmtree(self.root, ignore_errors=True)
        _execute(interpreter(self.python), "-m", "venv", str(self.root))
        _execute(*self._pip("install"), "--require-hashes", "-r", str(requirements))
        stamp.write_text(mark)
        return self

    def _pip(self, command: str) -> tuple[str, ...]:
        return (str(self.programs / "python"), "-m", "pip", command, "-qq", "--disable-pip-version-check")

    def version(self, package: str) -> str:
        script = f"from importlib.metadata import version; print(version({package!r}))"
        return _execute(str(self.programs / "python"), "-c", script).strip()

    def source(self, package: str) -> Path:
        """The unpacked source distribution of what is pinned in `bench/requirements/<package>.txt`."""
        place = CACHE / "source" / package
        if not place.is_dir():
            with_pip = (*self._pip("download"), "--no-deps", "--require-hashes", "--no-binary", package)
            _execute(*with_pip, "-r", str(REQUIREMENTS / f"{package}.txt"), "-d", str(CACHE / "downloads"))
            _unpack(next((CACHE / "downloads").glob(f"{package}-*.tar.gz")), place)
        return place


MINI = Environment("mini-swe-agent")
OPENHANDS = Environment("openhands", python=(3, 12))


def interpreter(at_least: tuple[int, int]) -> str:
    """A Python of this version or a newer one. Raises NotInstalledError."""
    check = f"import sys; raise SystemExit(sys.version_info < {at_least})"
    for program in _interpreters(at_least):
        if subprocess.run((program, "-c", check), capture_output=True, check=False).returncode == 0:
            return program
    wanted = ".".join(map(str, at_least))
    raise NotInstalledError(f"needs Python {wanted} or newer, and none is on PATH or among pyenv's and uv's")


def _interpreters(at_least: tuple[int, int]) -> Iterator[str]:
    """The oldest that does first: packages have wheels for it."""
    yield sys.executable
    minors = range(at_least[1], at_least[1] + 4)
    yield from filter(None, (shutil.which(f"python3.{minor}") for minor in minors))
    home = Path.home()
    kept = (
        Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions",
        home / ".local" / "share" / "uv" / "python",
    )
    for minor in minors:
        yield from (str(found) for place in kept for found in sorted(place.glob(f"*3.{minor}.*/bin/python3")))


def _execute(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        raise NotInstalledError(f"{' '.join(command[1:4])}: {' '.join(last)[:300] or f'exit {done.returncode}'}")
    return done.stdout


def _unpack(archive: Path, place: Path) -> None:
    unpacked = place.with_name(f"{place.name}.new")
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (only,) = unpacked.iterdir()
    only.rename(place)
    unpacked.rmdir()
