"""The built wheel installed as people install it: by uv and by pipx, with one command on the PATH."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installed_programs import tool

pytestmark = [pytest.mark.full, pytest.mark.timeout(1_800)]
MAX_MEGABYTES = 275
"""Of files, with uv. LiteLLM and what only it requires are 195; docs/explanation/performance.md has the list."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    done = tool("hatchling", "build", "--target", "wheel", "--directory", str(place))
    assert done.returncode == 0, done.stderr
    (found,) = place.glob("*.whl")
    return found


def run(*words: str, **environment: str) -> str:
    given = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **environment}
    done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def size_of(place: Path) -> float:
    """In megabytes, with hard links counted once."""
    found = {(each.stat().st_ino, each.stat().st_size) for each in place.rglob("*") if each.is_file()}
    return sum(size for _, size in found) / 1e6


def test_uvx_runs_it_from_nothing(wheel: Path) -> None:
    assert run(uv(), "tool", "run", "--from", str(wheel), "agent-fix", "--version").startswith("agent-fix ")


def test_uv_installs_one_command_and_no_more_than_a_fix_needs(wheel: Path, tmp_path: Path) -> None:
    tools, programs = tmp_path / "tools", tmp_path / "bin"
    run(uv(), "tool", "install", str(wheel), UV_TOOL_DIR=str(tools), UV_TOOL_BIN_DIR=str(programs))
    assert [each.name for each in programs.iterdir()] == ["agent-fix"]
    assert "agent-fix demo" in run(str(programs / "agent-fix"))
    assert size_of(tools) <= MAX_MEGABYTES


def test_pipx_installs_one_command(wheel: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    place = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(programs), "PIPX_MAN_DIR": str(tmp_path / "man")}
    run(uv(), "tool", "run", "pipx", "install", str(wheel), **place)
    assert [each.name for each in programs.iterdir()] == ["agent-fix"]
    assert run(str(programs / "agent-fix"), "--version").startswith("agent-fix ")
