"""`agent-fix serve` as people start it: the real program with its real roles, over a GitHub on the loopback."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from app.core.errors import ExitCode
from tests.support import webhook_requests as made
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import make_fake_github, served
from tests.support.secret_canaries import canary, find_canary

TIMEOUT = 60.0
PROGRAM = [sys.executable, "-I", "-m", "app", "serve"]


@dataclass
class ServeProcess:
    """A supervisor that runs, what it is told of secrets, and what it says."""

    process: subprocess.Popen[str]
    state: Path
    log: Path
    secrets: dict[str, str]
    said: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.fact("webhooks").removesuffix("/webhook")

    def fact(self, name: str) -> str:
        return next(line.removeprefix(name).strip() for line in self.said if line.startswith(name))

    def roles(self) -> dict[str, int]:
        """The process of each role that lives."""
        found = {}
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if "--role" in words:
                found[words[words.index("--role") + 1]] = int(pid)
        return found

    def until(self, true: Callable[[], bool], what: str) -> None:
        for _ in range(int(TIMEOUT / 0.1)):
            if true():
                return
            time.sleep(0.1)
        raise AssertionError(f"{what}: {self.log.read_text()}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


def environment(state: Path, github: str, **changes: str) -> dict[str, str]:
    ours = {
        "STATE_DIR": str(state),
        "APP_ID": str(APP_ID),
        "PRIVATE_KEY": app_key()[0],
        "WEBHOOK_SECRET": made.SECRET,
        "WEB_TOKEN": canary(),
        "MODEL": "openai/some",
        "PORT": "0",
        "GITHUB_API_URL": github,
        "GITHUB_URL": github,
        **changes,
    }
    named = {f"AGENT_FIX_{name}": value for name, value in ours.items()}
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(state),
        "OPENAI_API_KEY": canary(),
        "GITHUB_TOKEN": canary(),
        **named,
    }


@contextmanager
def serving(place: Path, **changes: str) -> Iterator[ServeProcess]:
    fake_github, log = make_fake_github(place / "github"), place / "log"
    with served(fake_github.github) as github, log.open("w") as sink:
        given = environment(place / "state", github, **changes)
        process = subprocess.Popen(PROGRAM, env=given, cwd=place, stdout=subprocess.PIPE, stderr=sink, text=True)
        secrets = {name: given[name] for name in ("AGENT_FIX_WEB_TOKEN", "OPENAI_API_KEY", "GITHUB_TOKEN")}
        secrets |= {"AGENT_FIX_WEBHOOK_SECRET": made.SECRET, "AGENT_FIX_PRIVATE_KEY": app_key()[0].splitlines()[5]}
        running = ServeProcess(process, place / "state", log, secrets)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                running.said.append(line.rstrip())
                if line.startswith("roles"):
                    break
            assert running.said, log.read_text()
            yield running
        finally:
            process.kill()
            process.wait(TIMEOUT)
            if process.stdout is not None:
                process.stdout.close()


def holds(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_serve_separates_secrets_and_ends_in_order(tmp_path: Path) -> None:
    (tmp_path / "github").mkdir()
    with serving(tmp_path) as running:
        ready = ("receiver ready", "worker ready", "publisher ready")
        running.until(lambda: all(word in running.log.read_text() for word in ready), "it never began")
        roles = running.roles()
        owners = {
            "AGENT_FIX_WEB_TOKEN": "receiver",
            "AGENT_FIX_WEBHOOK_SECRET": "receiver",
            "OPENAI_API_KEY": "worker",
            "GITHUB_TOKEN": "nobody",
            "AGENT_FIX_PRIVATE_KEY": "publisher",
        }
        for role, pid in roles.items():
            held = {name for name, value in running.secrets.items() if value.encode() in holds(pid)}
            assert held == {name for name, owner in owners.items() if owner == role}
            assert Path(f"/proc/{pid}/cwd").samefile(running.state)
        body = made.encode(made.label_added())
        hook = f"{running.address}/webhook"
        assert httpx.post(hook, content=body, headers=made.headers(body), timeout=TIMEOUT).status_code == 202
        os.kill(roles["receiver"], signal.SIGKILL)
        running.until(lambda: not lives(roles["receiver"]), "it was not killed")
        again = httpx.post(hook, content=body, headers=made.headers(body), timeout=TIMEOUT)  # waits for the next one
        assert (again.status_code, again.json()) == (202, {"status": "duplicate"})
        password = {"authorization": f"Bearer {running.secrets['AGENT_FIX_WEB_TOKEN']}"}
        assert httpx.get(running.address, headers=password, timeout=TIMEOUT).status_code == 200
        assert httpx.get(running.address, timeout=TIMEOUT).status_code == 401
        assert running.roles()["receiver"] != roles["receiver"]
        assert running.roles()["worker"] == roles["worker"]
        everybody = list(running.roles().values())
        assert running.end() == ExitCode.OK
        assert not any(map(lives, everybody))
        log = running.log.read_text()
        assert "the receiver was ended by SIGKILL; restarting it in 1 s" in log
        assert "Traceback" not in log
        assert not find_canary(running.secrets, tmp_path / "log", running.state)
        said = "\n".join(running.said)
        assert not any(value in said for value in running.secrets.values())
        assert running.fact("database").startswith("SQLite, ")


def test_the_roles_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """A warning is told once, by the role that it is for."""
    (tmp_path / "github").mkdir()
    key = tmp_path / "app.pem"
    key.write_text(app_key()[0])
    key.chmod(0o640)
    with serving(tmp_path, PRIVATE_KEY=str(key)) as running:
        running.until(lambda: len(running.roles()) == 3, "the roles never began")
        running.until(lambda: "publisher ready" in running.log.read_text(), "the publisher never began")
        assert running.log.read_text().count(f"{key} is readable by its group") == 1
        everybody = list(running.roles().values())
        running.process.kill()
        running.process.wait(TIMEOUT)
        running.until(lambda: not any(map(lives, everybody)), "they live on")


def test_a_state_directory_has_one_supervisor(tmp_path: Path) -> None:
    (tmp_path / "github").mkdir()
    with serving(tmp_path) as running:
        second = subprocess.run(
            PROGRAM, env=environment(running.state, "http://127.0.0.1:1"), capture_output=True, text=True, check=False
        )
        assert second.returncode == ExitCode.BUSY
        assert f"process {running.process.pid} on " in second.stderr
        assert running.process.poll() is None


def said_by(place: Path, given: dict[str, str], *words: str) -> tuple[int, str]:
    found = subprocess.run([*PROGRAM, *words], env=given, cwd=place, capture_output=True, text=True, check=False)
    return found.returncode, found.stderr


@pytest.mark.parametrize("words", [(), ("--role", "publisher")])
def test_missing_settings_are_listed_before_anything_starts(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, said = said_by(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, *words)
    assert code == ExitCode.USAGE
    assert re.findall(r"AGENT_FIX_\w+", said)[-1] == "AGENT_FIX_MODEL"
    assert "Traceback" not in said
    assert not list((tmp_path).rglob("*.db"))


def test_a_missing_database_is_a_clear_error(tmp_path: Path) -> None:
    url = "postgresql://user:hunter2hunter2@127.0.0.1:1/name?connect_timeout=3"
    code, said = said_by(tmp_path, environment(tmp_path, "http://127.0.0.1:1", DATABASE_URL=url))
    assert code == ExitCode.OUTPUT
    assert "The database cannot be used" in said
    assert "hunter2" not in said
    assert "Traceback" not in said


def test_a_port_in_use_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "github").mkdir()
    with serving(tmp_path) as running:
        port = running.address.rpartition(":")[2]
        code, said = said_by(tmp_path, environment(tmp_path / "other", "http://127.0.0.1:1", PORT=port))
        assert code == ExitCode.USAGE
        assert f"Port {port} of 127.0.0.1 is in use" in said


def test_a_role_drops_secrets_it_may_not_hold(tmp_path: Path) -> None:
    given = environment(tmp_path / "state", "http://127.0.0.1:1")
    (tmp_path / "state").mkdir()
    process = subprocess.Popen([*PROGRAM, "--role", "worker"], env=given, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "worker ready" in process.stderr.readline()
        held = holds(process.pid)
        for name in ("PRIVATE_KEY", "WEBHOOK_SECRET", "WEB_TOKEN", "APP_ID"):
            assert f"AGENT_FIX_{name}".encode() not in held
        assert given["GITHUB_TOKEN"].encode() not in held
        assert given["OPENAI_API_KEY"].encode() in held
    finally:
        process.terminate()
        assert process.wait(TIMEOUT) == ExitCode.OK
        if process.stderr is not None:
            process.stderr.close()
