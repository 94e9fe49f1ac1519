"""The image, held to account without a Docker engine: rules, its health check, and its steps done by hand."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pip
import pytest

from app.sandbox.seccomp import FORBIDDEN, MISSING
from deploy import health, seccomp
from tests.support.dockerfile import DockerStage, read_stages
from tests.support.installed_programs import ROOT, tool
from tests.unit.test_architecture import tracked_files

DOCKERFILE = ROOT / "Dockerfile"
COMPILERS = {"build-essential", "gcc", "g++", "clang", "make", "cargo", "rustc", "python3-dev", "curl", "wget"}
ORDINARY = 65534
"""The number of nobody."""


# The image


@pytest.fixture(scope="module")
def stages() -> list[DockerStage]:
    return read_stages(DOCKERFILE)


def test_hadolint_finds_nothing() -> None:
    done = tool("hadolint", "--no-color", str(DOCKERFILE))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_image_is_an_ordinary_users_and_has_no_compiler(stages: list[DockerStage]) -> None:
    build, image = stages
    assert build.image == image.image
    assert ":" in image.image
    assert "latest" not in image.image
    assert image.last("USER").text == "10001:10001"
    assert not [each for stage in stages for each in stage.all("ADD")]
    commands = " ".join(each.text for each in image.all("RUN"))
    assert not COMPILERS & set(commands.split())
    assert "--no-install-recommends" in commands
    assert "rm -rf /var/lib/apt/lists/*" in commands
    assert {"bubblewrap", "git", "tini"} <= set(commands.split())
    assert "pip" not in commands.split()


def test_the_image_takes_its_role_from_arguments(stages: list[DockerStage]) -> None:
    image = stages[-1]
    assert image.last("ENTRYPOINT").words == ["tini", "--", "agent-fix"]
    assert image.last("CMD").words == ["serve"]
    checked = image.last("HEALTHCHECK").text
    assert json.loads(checked.partition("CMD ")[2])[-1] == "/opt/agent-fix/health.py"
    labels = image.last("LABEL").text
    assert all(f"org.opencontainers.image.{name}=" in labels for name in ("version", "revision", "source", "licenses"))
    assert not [name for name in image.variables() if "KEY" in name or "SECRET" in name or "TOKEN" in name]


def test_everything_in_the_image_is_locked(stages: list[DockerStage]) -> None:
    for each in stages[0].all("RUN"):
        for command in each.text.split("&&"):
            if " install " in command:
                assert "--require-hashes --only-binary :all:" in command or "--no-index --no-deps" in command, command


def test_both_stages_begin_with_one_base_that_nobody_can_change() -> None:
    bases = re.findall(r"(?m)^FROM (\S+)", (ROOT / "Dockerfile").read_text("utf-8"))
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.13-slim-trixie@sha256:[0-9a-f]{64}", bases[0]), "no registry, and a digest"


def test_only_what_is_copied_enters_the_build(stages: list[DockerStage]) -> None:
    first, *rest = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] != "#"]
    assert first == "*"
    let_in = {line[1:].rstrip("/") for line in rest if line.startswith("!")}
    copied = {source for stage in stages for each in stage.all("COPY") if not each.stage for source in each.copied[0]}
    assert copied == let_in
    assert all((ROOT / source).exists() for source in copied)


def test_a_wheel_has_every_file_of_ours(tmp_path: Path) -> None:
    done = tool("hatchling", "build", "--target", "wheel", "--directory", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    ours = {path.relative_to(ROOT).as_posix() for path in tracked_files() if path.is_relative_to(ROOT / "app")}
    present = {name for name in ours if (ROOT / name).is_file()}
    assert present - inside == set()
    assert {Path(name).parts[0] for name in inside if ".dist-info" not in name} == {"app"}


# Its health


@contextmanager
def answering(status: int) -> Iterator[int]:
    asked = []

    class Receiver(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()
    assert asked == ["/healthz"]


@pytest.mark.parametrize(("status", "well"), [(200, True), (503, False), (404, False)])
def test_health_is_the_receivers_word(status: int, well: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(status) as port:
        assert health.healthy(port) is well


def test_a_server_that_does_not_answer_is_unhealthy() -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    assert health.healthy(port) is False


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("tini -- agent-fix serve --role worker", "worker"),
        ("tini -- agent-fix serve --role=publisher", "publisher"),
        ("tini -- agent-fix serve", ""),
        ("tini -- agent-fix serve --role", ""),
        ("tini -- agent-fix serve --role receiver", "receiver"),
    ],
)
def test_roles_without_a_port_are_not_asked(command: str, role: str) -> None:
    assert health.role_of(command.split()) == role
    assert (role in health.WITHOUT_PORT) == (role in {"worker", "publisher"})


# What a worker's container may ask of the kernel


def test_the_profile_is_made_from_the_sandboxs_table() -> None:
    assert (ROOT / "deploy" / "seccomp.json").read_text("utf-8") == seccomp.text()
    refused = {name for rule in seccomp.profile()["syscalls"] for name in rule["names"]}
    assert set(FORBIDDEN) >= seccomp.NEEDED
    assert refused == (set(FORBIDDEN) | set(MISSING)) - seccomp.NEEDED - seccomp.HARMLESS
    assert {"bpf", "keyctl", "kexec_load", "init_module", "open_by_handle_at", "io_uring_setup"} <= refused


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of a sandbox on this machine, where no profile confines us."""
    done = doctor(tmp_path_factory.mktemp("free"))
    if done.returncode:
        pytest.skip("NOT TESTED under the container's profile: no sandbox has every property on this machine")
    return names(done)


def doctor(state: Path, profile: dict[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-I", "-m", "app", "doctor", "--json", "--state", str(state)]
    if profile is not None:
        file = state / "profile.json"
        file.write_text(json.dumps(profile), "utf-8")
        words = [sys.executable, "-m", "tests.support.confined", str(file), *words]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def names(done: "subprocess.CompletedProcess[str]") -> list[str]:
    return [check["name"] for check in json.loads(done.stdout)["checks"] if check["ok"]]


def test_sandboxes_start_under_the_profile(properties: list[str], tmp_path: Path) -> None:
    done = doctor(tmp_path, seccomp.profile())
    assert done.returncode == 0, done.stdout + done.stderr
    assert names(done) == properties


@pytest.mark.parametrize("name", sorted(seccomp.NEEDED))
def test_each_system_call_in_the_profile_is_needed(properties: list[str], name: str, tmp_path: Path) -> None:
    profile = seccomp.profile()
    profile["syscalls"][0]["names"].append(name)
    done = doctor(tmp_path, profile)
    assert done.returncode == 6, done.stdout + done.stderr
    assert "start" in properties
    assert "start" not in names(done)


# The Dockerfile's steps, by hand


@pytest.fixture(scope="module")
def clean_root(stages: list[DockerStage]) -> Iterator[Path]:
    """What the first stage makes, made here: the same commands on the same files, with an ordinary user's rights."""
    with tempfile.TemporaryDirectory(prefix="agent-fix-image-") as place:  # pytest's own is closed to other users
        root = Path(place)
        root.chmod(0o755)
        _lay_out(root, stages[0])
        for each in stages[0].all("RUN"):
            script = f"umask 022; {_here(each.text, root)}"
            done = ordinary(["/bin/sh", "-euc", script], root / "source", pip=True)
            assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
        yield root


def _lay_out(root: Path, stage: DockerStage) -> None:
    """The build's context, and the virtual environment of its tools."""
    source = root / "source"
    for each in stage.all("COPY"):
        sources, target = each.copied
        for name in sources:
            _copy(ROOT / name, source / target / (Path(name).name if target.endswith("/") else ""))
    (root / "opt").mkdir()
    _make_build(root / "build")
    if os.geteuid() == 0:
        for path in [root, *root.rglob("*")]:
            os.chown(path, ORDINARY, ORDINARY, follow_symlinks=False)


def _make_build(place: Path) -> None:
    """As `python -m venv` does with the image's Python; a distribution's often lacks the pip to put inside."""
    subprocess.run([_python(), "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python3.*/site-packages")
    shutil.copytree(Path(pip.__file__).parent, packages / "pip", ignore=shutil.ignore_patterns("__pycache__"))


def _here(command: str, root: Path) -> str:
    """The Dockerfile's own words with places below `root`."""
    moved = re.sub(r"(?:^|(?<=\s))/(?=build/|build\s|opt/agent-fix)", f"{root}/", command)
    begin = f"python -m venv {root}/build && "
    assert moved.startswith(begin) or "python -m venv" not in moved
    moved = moved.removeprefix(begin).replace("/build/bin/pip ", "/build/bin/python -I -m pip ")
    return moved.replace(" python -m", f" {_python()} -m")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _python() -> str:
    """One that an ordinary user may execute: root's own often lies in root's home."""
    names = ("python3.13", "python3.12", "python3.11")
    for found in (sys.executable, *(shutil.which(name, path="/usr/bin:/usr/local/bin") for name in names)):
        real = Path(found).resolve() if found else None
        if real and (os.geteuid() or all(part.stat().st_mode & 0o001 for part in real.parents)):
            return str(real)
    pytest.skip("NOT TESTED in a clean root: no Python 3.11 or newer that an ordinary user may execute")


def ordinary(
    words: list[str], where: Path, *, pip: bool = False, bare: bool = False, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """As an ordinary user with an environment of its own; `bare` without a way to any capability."""
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(where), "LANG": "C.UTF-8", **variables}
    if pip:
        kept = ("PIP_", "SSL_", "HTTP", "http")
        own |= {name: value for name, value in os.environ.items() if name.startswith(kept)}
    if os.geteuid() == 0:
        rights = ("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs") if bare else ()
        words = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", *rights, *words]
    return subprocess.run(words, cwd=where, env=own, capture_output=True, text=True, check=False)


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_the_images_steps_in_a_clean_root(clean_root: Path) -> None:
    program = clean_root / "opt" / "agent-fix" / "bin" / "agent-fix"
    shown = ordinary([str(program), "--version"], clean_root)
    assert shown.stdout.startswith("agent-fix "), shown.stderr
    for words in (["serve", "--help"], ["fix", "--help"]):
        assert ordinary([str(program), *words], clean_root).returncode == 0
    roles = ordinary([str(program), "serve", "--role", "publisher"], clean_root)
    assert roles.returncode == 2, "what is missing is told, so every import of the command was found"
    assert "AGENT_FIX_APP_ID" in roles.stderr
    assert not (clean_root / "opt" / "agent-fix" / "bin" / "pip").exists()
    imports = "import app.server.job_process, app.server.publisher, app.server.receiver, litellm, uvicorn"
    python = clean_root / "opt" / "agent-fix" / "bin" / "python"
    done = ordinary([str(python), "-I", "-c", imports], clean_root, LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_sandboxes_start_as_in_a_workers_container(clean_root: Path) -> None:
    """No capability, no way to one, the container's profile, an ordinary user: all that a worker's container is."""
    python = str(clean_root / "opt" / "agent-fix" / "bin" / "python")
    place = clean_root / "tried"
    place.mkdir()
    for name in ("tests/support/confined.py", "deploy/seccomp.json"):
        shutil.copy(ROOT / name, place)
    if os.geteuid() == 0:
        os.chown(place, ORDINARY, ORDINARY)
    doctor = [python, "-I", "-m", "app", "doctor", "--state", str(place / "state")]
    done = ordinary([python, "-I", "confined.py", "seccomp.json", *doctor], place, bare=True)
    assert done.returncode == 0, done.stdout + done.stderr
