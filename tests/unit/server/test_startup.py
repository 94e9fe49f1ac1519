"""What a server does before its roles begin: it takes its place, opens its port, and says what it is."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.settings import Settings, settings_from
from app.core.errors import AgentFixError, ExitCode, OutputError
from app.server.supervisor import LOCK, address_of, as_text, database_name, listen, on_sqlite, only_supervisor, summary

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
TOKEN, SECRET, PASSWORD = "a-token-for-the-web", "a secret of webhooks", "hunter2hunter2"


def settings(place: Path, **changes: str) -> Settings:
    ours = {"APP_ID": "77", "WEBHOOK_SECRET": SECRET, "WEB_TOKEN": TOKEN, "MODEL": "openai/x", **changes}
    return settings_from({f"AGENT_FIX_{name}": value for name, value in ours.items()}, place)


def test_a_state_directory_has_one_supervisor_and_says_which(tmp_path: Path) -> None:
    place = tmp_path / "state"
    with only_supervisor(settings(place)):
        who = (place / LOCK).read_text().strip()
        assert who.startswith("process ")
        with pytest.raises(AgentFixError) as error, only_supervisor(settings(place)):
            pass
        assert error.value.code == ExitCode.BUSY
        assert who in error.value.message
    with only_supervisor(settings(place)):
        pass


def test_a_lock_that_a_killed_process_left_does_not_block(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("process 1 on elsewhere since yesterday\n")
    command = [sys.executable, "-c", HOLDER, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AgentFixError) as error, only_supervisor(settings(tmp_path)):
            pass
        assert "process 1 on elsewhere" in error.value.message
        holder.kill()
        holder.wait(30)
    with only_supervisor(settings(tmp_path)):
        assert "elsewhere" not in (tmp_path / LOCK).read_text()


def test_postgres_admits_several(tmp_path: Path) -> None:
    shared = settings(tmp_path, DATABASE_URL="postgresql://u:p@h/d")
    with only_supervisor(shared), only_supervisor(shared):
        assert not on_sqlite(shared)


def test_a_state_directory_that_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError) as error, only_supervisor(settings(tmp_path / "file" / "state")):
        pass
    assert "cannot be written: Not a directory." in error.value.message


def test_a_port_is_opened_or_the_reason_is_shown() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(AgentFixError) as error:
            listen("127.0.0.1", port)
        assert f"Port {port} of 127.0.0.1 is in use by another program." in error.value.message
    for host in ("192.0.2.1", "no such host"):
        with pytest.raises(AgentFixError) as error:
            listen(host, 0)
        assert "cannot be used" in error.value.message


@pytest.mark.skipif(not socket.has_ipv6, reason="NOT TESTED: this machine has no IPv6")
def test_an_ipv6_address_is_written_in_brackets() -> None:
    try:
        listener = listen("::1", 0)
    except AgentFixError:
        pytest.skip("NOT TESTED: this machine has no IPv6 loopback")
    with listener:
        assert address_of(listener).startswith("http://[::1]:")


def test_the_summary_says_everything_but_secrets(tmp_path: Path) -> None:
    url = f"postgresql://somebody:{PASSWORD}@db.example:5432/agent"
    public = settings(tmp_path, DATABASE_URL=url, PUBLIC_URL="https://agent-fix.example")
    facts = summary(public, "http://127.0.0.1:8080", ("receiver", "worker"))
    text = as_text(facts)
    assert facts["webhooks"] == "https://agent-fix.example/webhook"
    assert facts["database"] == "Postgres, agent on db.example"
    assert (facts["GitHub"], facts["roles"]) == ("https://github.com, App 77", "receiver, worker")
    assert not any(secret in text for secret in (TOKEN, SECRET, PASSWORD, "somebody"))
    assert len({line.index(value) for line, value in zip(text.splitlines(), facts.values(), strict=True)}) == 1
    local = summary(settings(tmp_path, WEB_TOKEN=""), "http://127.0.0.1:8080", ("receiver",))
    assert local["dashboard"].startswith("off")
    assert local["webhooks"] == "http://127.0.0.1:8080/webhook"


def test_a_sqlite_database_is_named_by_its_file(tmp_path: Path) -> None:
    assert database_name(settings(tmp_path)) == f"SQLite, {tmp_path}/agent-fix.db"
    assert database_name(settings(tmp_path, DATABASE_URL="sqlite:////var/lib/x.db")) == "SQLite, /var/lib/x.db"
