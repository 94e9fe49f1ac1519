"""Other coding agents, really installed from their registries: no key, no network, one model, and the same proof."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app.agent.external.recipe import AgentRecipe, built_in
from app.sandbox.base import TOOLS
from app.sandbox.bubblewrap.toolchains import newer_pythons
from app.sandbox.setup.plan import find_tool_for_sandbox
from tests.support.cli_job import FIXED, PLAN, TESTED, CliJob, ended
from tests.support.secret_canaries import canary, find_canary
from tests.support.shell_model import ShellModel

ALWAYS = ("kilo", "codex")
"""Two of different kinds, by two protocols; `make runners` tries them all."""
TIMEOUT = 900.0
"""Seconds for an installation from a registry on a busy machine, and the work."""
SUBMISSION = {
    "summary": "Give the remainder to the first people.",
    "reproduction": "python3 -m unittest tests.test_money.TestSplit.test_remainder",
}
LOOK_AROUND = (
    "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls -la /run /opt/agent /home/agent /tmp; "
    "grep -rIl CANARY / --exclude-dir=proc --exclude-dir=sys 2>/dev/null; "
    "python3 -c \"import socket; socket.create_connection(('1.1.1.1', 443), 2)\"; true"
)
FIX = f"""python3 - <<'EOF'
from pathlib import Path
money, tests = Path("/workspace/money.py"), Path("/workspace/tests/test_money.py")
money.write_text(money.read_text().replace("    return [share] * people\\n", {FIXED!r}))
tests.write_text(tests.read_text().replace("25, 25, 25, 25])\\n", {TESTED!r}))
EOF"""
HAND_IN = f"cat > /tmp/submission.json <<'EOF'\n{json.dumps(SUBMISSION)}\nEOF"


def _each() -> Iterator[object]:
    for name, recipe in sorted(built_in().items()):
        yield pytest.param(recipe, id=name, marks=() if name in ALWAYS else pytest.mark.full)


def _lacking(recipe: AgentRecipe, environment: Mapping[str, str]) -> str:
    if recipe.client == "npm":
        return ", ".join(tool for tool in ("node", "npm") if find_tool_for_sandbox(tool) is None)
    least = int(recipe.least_python.partition(".")[2])
    return "" if sys.version_info.minor >= least or newer_pythons(environment) else f"Python {recipe.least_python}"


@pytest.mark.timeout(TIMEOUT + 60)
@pytest.mark.parametrize("recipe", list(_each()))
def test_a_real_agent_reaches_proved_with_the_gateway_alone(recipe: AgentRecipe, tmp_path: Path) -> None:
    if lacks := _lacking(recipe, os.environ):
        pytest.skip(f"{recipe.name} was NOT TESTED: this machine lacks {lacks}")
    secrets = {"model key": canary(), "other key": canary()}
    with ShellModel(PLAN, [LOOK_AROUND, FIX, HAND_IN]) as model:
        environment = {
            "PATH": os.environ["PATH"],
            "OPENAI_API_BASE": model.url,
            "OPENAI_API_KEY": secrets["model key"],
            "ANTHROPIC_API_KEY": secrets["other key"],
        }
        cli_job = CliJob(tmp_path, environment=environment)
        done = ended(cli_job.begin("--runner", recipe.name, model="openai/scripted"), within=TIMEOUT)
        assert done.code == 0, done.text
        assert cli_job.document["verification"]["verdict"] == "proved"
        assert cli_job.document["runner"] == recipe.name
        assert len(cli_job.branches) == 1
        assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {secrets['model key']}"}
        sent = json.dumps([request.body for request in model.requests])
    cli_job.assert_quiet()
    steps = [json.loads(line) for line in (cli_job.out / "trajectory.jsonl").read_text().splitlines()]
    assert "submission.json" in json.dumps([step["actions"] for step in steps])
    assert cli_job.document["usage"]["calls"] == sum(not step["refused"] for step in steps) + 2, (
        "plan, reviewer, and these"
    )
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "to-the-model.json").write_text(sent)
    assert "model.sock" not in sent, "no path of the host is seen inside"
    assert find_canary(secrets, cli_job.state, cli_job.out, cli_job.repository, tmp_path / "sent") == []


class PythonMirror:
    """A folder with one interpreter, this one, in the form and under the name in which uv downloads interpreters."""

    def __init__(self, place: Path) -> None:
        self.place = place
        version, machine = sys.version_info, platform.machine()
        name = f"cpython-3.{version.minor}.{version.micro}+20260101-{machine}-unknown-linux-gnu-install_only.tar.gz"
        self.archive = place / "mirror" / "20260101" / name
        self.archive.parent.mkdir(parents=True)
        with tarfile.open(self.archive, "w:gz", compresslevel=1) as archive:
            for part in ("bin", "include", "lib"):
                archive.add(Path(sys.base_prefix) / part, f"python/{part}", filter=self._needed)
        published = "https://github.com/astral-sh/python-build-standalone/releases/download/20260101/"
        self._entry = {
            "name": "cpython",
            "arch": {"family": machine, "variant": None},
            "os": "linux",
            "libc": "gnu",
            "major": 3,
            "minor": version.minor,
            "patch": version.micro,
            "prerelease": "",
            "variant": None,
            "build": "20260101",
            "url": published + name.replace("+", "%2B"),
            "sha256": hashlib.sha256(self.archive.read_bytes()).hexdigest(),
        }

    @staticmethod
    def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        left_out = {"site-packages", "test", "__pycache__", "pkgconfig"}
        return None if left_out & set(Path(entry.name).parts) or entry.name.endswith(".a") else entry

    def install(self, **changes: str) -> "subprocess.CompletedProcess[str]":
        """What a recipe does where the sandbox's interpreter is too old."""
        known = self.place / "known.json"
        minor = sys.version_info.minor
        key = f"cpython-3.{minor}.{sys.version_info.micro}-linux-{platform.machine()}-gnu"
        known.write_text(json.dumps({key: self._entry | changes}))
        old = self.place / "old"
        old.write_text(f'#!/bin/sh\n[ "$2" != -c ] || exit 1\nexec {sys.executable} "$@"\n')
        old.chmod(0o700)
        recipe = built_in()["openhands"]
        create = recipe.install(str(old))[0].replace(f" {recipe.least_python}", f" 3.{minor}")
        create = create.replace(TOOLS, str(self.place / "agent"))
        variables = {
            "UV_PYTHON_INSTALL_MIRROR": (self.place / "mirror").as_uri(),
            "UV_PYTHON_DOWNLOADS_JSON_URL": str(known),
            "HOME": str(self.place),
        }
        return subprocess.run(
            ["/bin/sh", "-ec", create.replace("/tmp/uv", str(self.place / "uv"))],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )


@pytest.mark.full
@pytest.mark.timeout(TIMEOUT + 60)
def test_a_real_uv_installs_the_interpreter_of_a_mirror_and_no_other(tmp_path: Path) -> None:
    """uv from its registry, and an interpreter that is this one packed again, because GitHub may be out of reach."""
    mirror = PythonMirror(tmp_path)
    wrong = mirror.install(sha256="0" * 64)
    assert wrong.returncode != 0
    assert "mismatch" in wrong.stderr.lower()
    missing = mirror.install(build="20260102", url=str(mirror._entry["url"]).replace("20260101", "20260102"))
    assert missing.returncode != 0
    assert not (tmp_path / "agent" / "bin").exists(), "the agent is not installed with an interpreter that is too old"
    done = mirror.install()
    assert done.returncode == 0, done.stderr
    question = "import ssl, sys; print(sys.base_prefix, *sys.version_info[:3])"
    asked = [str(tmp_path / "agent" / "bin" / "python"), "-I", "-c", question]
    prefix, *version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert Path(prefix).is_relative_to(tmp_path / "agent" / "python"), "below the one directory that is kept"
    assert version == [str(part) for part in sys.version_info[:3]]
