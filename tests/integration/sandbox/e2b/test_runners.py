"""Another coding agent in a cloud machine: its programs, its one way out by the command's streams, and nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.errors import SandboxError, SetupError
from app.llm.base import Body
from app.sandbox.base import MODEL_PORT, MODEL_SOCKET, TOOLS, SandboxSpec, SetupPlan, with_forwarder
from app.sandbox.e2b.provider import E2BProvider
from tests.integration.sandbox.test_external_runner import FIX, FIXED, HAND_IN, RunnerHarness, ScriptedTexts
from tests.support.e2b.server import LocalE2B
from tests.support.sandboxes import filler, opened, shell

FILES = {"README.md": b"hello\n"}
ASK = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", {MODEL_PORT})) as line:
    line.sendall(sys.argv[1].encode())
    line.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: line.recv(65536), b"")).decode())
"""
TOOLS_SETUP = SetupPlan(
    (f"mkdir {TOOLS}/bin; printf '#!/bin/sh\\necho made\\n' > {TOOLS}/bin/tool; chmod +x {TOOLS}/bin/tool; ls -A",),
    key="tools",
)


@asynccontextmanager
async def answering(path: Path) -> AsyncIterator[Path]:
    """What a gateway is to a tunnel: it answers in capitals."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    try:
        yield path
    finally:
        server.close()
        await asyncio.to_thread(path.unlink)


def ask(word: str) -> list[str]:
    return with_forwarder(["python3", "-c", ASK, word])


class TestTheWayOut:
    async def test_the_model_socket_is_open_during_commands_only(
        self, e2b: LocalE2B, provider: E2BProvider, tmp_path: Path
    ) -> None:
        way = tmp_path / "way.sock"
        async with opened(provider, SandboxSpec("job-1", filler(FILES), model_socket=way)) as sandbox:
            assert not (await sandbox.exec(ask("early"))).ok
            async with answering(way):
                done = await asyncio.gather(*(sandbox.exec(ask(f"word {number}")) for number in range(3)))
                assert [one.output for one in done] == [f"WORD {number}\n".encode() for number in range(3)]
                large = await sandbox.exec(ask("x" * 100_000))
                assert large.output == b"X" * 100_000 + b"\n"
            assert not (await sandbox.exec(ask("late"))).ok
            (machine,) = e2b.machines.values()
            knock = f"import socket; socket.socket(socket.AF_UNIX).connect({MODEL_SOCKET!r})"
            assert b"ConnectionRefusedError" in (await sandbox.exec(["python3", "-c", knock])).output
            assert machine.network["allowOut"] == []
            assert e2b.said("PUT /sandboxes/") == []

    async def test_the_model_socket_leads_to_the_gateway_only(self, provider: E2BProvider, tmp_path: Path) -> None:
        async with (
            answering(tmp_path / "way.sock") as way,
            opened(provider, SandboxSpec("job-1", filler(FILES), model_socket=way)) as sandbox,
        ):
            outside = "import socket; socket.create_connection(('203.0.113.1', 80), 2)"
            assert not (await sandbox.exec(with_forwarder(["python3", "-c", outside]))).ok
            assert not (await sandbox.exec(with_forwarder(["cat", "/var/lib/agent-fix/tunnel.py"]))).ok

    async def test_stopping_in_the_middle_leaves_nothing(
        self, e2b: LocalE2B, provider: E2BProvider, tmp_path: Path
    ) -> None:
        async with answering(tmp_path / "way.sock") as way:
            sandbox = await provider.open(SandboxSpec("job-1", filler(FILES), model_socket=way))
            begun = asyncio.Event()
            command = with_forwarder(["/bin/sh", "-c", "echo begun; exec sleep 300"])
            running = asyncio.create_task(sandbox.exec(command, timeout=300, on_output=lambda _: begun.set()))
            await begun.wait()
            await sandbox.close()
            assert (await running).exit_code == 137
            async with opened(provider, SandboxSpec("job-1", filler(FILES), model_socket=way)) as again:
                assert (await again.exec(ask("again"))).output == b"AGAIN\n"

    async def test_a_lost_machine_is_reported(self, e2b: LocalE2B, provider: E2BProvider, tmp_path: Path) -> None:
        async with answering(tmp_path / "way.sock") as way:
            sandbox = await provider.open(SandboxSpec("job-1", filler(FILES), model_socket=way))
            begun = asyncio.Event()
            command = with_forwarder(["/bin/sh", "-c", "echo begun; exec sleep 300"])
            running = asyncio.create_task(sandbox.exec(command, timeout=300, on_output=lambda _: begun.set()))
            await begun.wait()
            (machine,) = e2b.machines.values()
            machine.state = "gone"
            e2b.machines.clear()
            e2b.end_processes(machine)
            with pytest.raises(SandboxError):
                await running
            await sandbox.destroy()


class TestTools:
    async def test_setups_are_made_separately_and_mounted_read_only(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        said = bytearray()
        spec = SandboxSpec("job-1", filler(FILES), SetupPlan(("echo made > made",), key="s"))
        with_tools = SandboxSpec("job-2", filler(FILES), spec.setup, tools=TOOLS_SETUP)
        sandbox = await provider.open(with_tools, on_output=said.extend)
        assert all(line.startswith(b"$ ") for line in said.splitlines()), (
            "nothing of the project is there while they are made"
        )
        assert await shell(sandbox, f"{TOOLS}/bin/tool; cat made README.md") == "made\nmade\nhello\n"
        assert not (await sandbox.exec(["touch", f"{TOOLS}/x"])).ok
        assert not (await sandbox.exec(["sh", "-c", f"echo x >> {TOOLS}/bin/tool"])).ok
        await sandbox.destroy()
        async with opened(provider, spec) as without:
            assert not (await without.exec([f"{TOOLS}/bin/tool"])).ok

    async def test_each_step_is_kept(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        for number in range(3):
            setup = SetupPlan(("echo x",), key=f"setup {number % 2}")
            async with opened(
                provider, SandboxSpec(f"job-{number}", filler(FILES), setup, tools=TOOLS_SETUP)
            ) as sandbox:
                assert await shell(sandbox, f"{TOOLS}/bin/tool") == "made\n"
        begun = [body["templateID"] for body in e2b.said("POST /v2/sandboxes")]
        tools, first, _ = e2b.snapshots
        assert begun == ["base", tools, first]

    async def test_package_hosts_are_open_during_setup_only(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        tools = SetupPlan(("true",), key="t", hosts=("https://tools.example.com",))
        setup = SetupPlan(("true",), key="s", hosts=("https://index.example.com",))
        async with opened(provider, SandboxSpec("job-1", filler(FILES), setup, tools=tools)):
            sent = [one["allowOut"] for one in e2b.said("PUT /sandboxes/")]
        assert sent == [["tools.example.com"], [], ["index.example.com"], []]

    async def test_a_failure_is_reported_and_leaves_no_machine(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        tools = SetupPlan(("echo no such version; exit 1",), key="t", hosts=("https://tools.example.com",))
        with pytest.raises(SetupError, match="no such version"):
            await provider.open(SandboxSpec("job-1", filler(FILES), tools=tools))
        assert e2b.machines == {}


@pytest.fixture
async def case_runner(provider: E2BProvider, tmp_path: Path) -> RunnerHarness:
    (tmp_path / "s").mkdir()
    return RunnerHarness(tmp_path / "s", provider)


class TestARunner:
    async def test_an_agent_without_network_fixes_and_every_call_is_recorded(
        self, case_runner: RunnerHarness, e2b: LocalE2B
    ) -> None:
        ending = await case_runner.work(ScriptedTexts(["ls", FIX, HAND_IN, "exit"]))
        assert (ending.exit_status, ending.turns) == ("submitted", 4)
        assert case_runner.patch == {"app.py": FIXED}
        assert case_runner.ledger.spent() == 4 * 110
        assert [one["allowOut"] for one in e2b.said("PUT /sandboxes/")] == []

    async def test_large_requests_and_answers_go_through(self, case_runner: RunnerHarness) -> None:
        long = f"# {'x' * 90_000}\n"
        model = ScriptedTexts([long, long, long, FIX, HAND_IN, "exit"])
        ending = await case_runner.work(model)
        assert ending.exit_status == "submitted"
        assert _size(model.bodies[-1]) > 3 * 90_000

    async def test_a_lost_machine_is_replaced_with_the_saved_files(
        self, case_runner: RunnerHarness, e2b: LocalE2B
    ) -> None:
        class LosingTexts(ScriptedTexts):
            async def complete(self, *arguments: object) -> dict[str, object]:
                if len(self.bodies) == 1:
                    for machine in list(e2b.machines.values()):
                        machine.state = "gone"
                        e2b.end_processes(machine)
                    e2b.machines.clear()
                return await super().complete(*arguments)  # type: ignore[arg-type]

        with pytest.raises(SandboxError):
            await case_runner.work(LosingTexts([FIX, "true", "true"]))
        case_runner.journal = case_runner.journal.resumed()
        ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
        assert ending.exit_status == "submitted"
        assert case_runner.patch == {"app.py": FIXED}


def _size(body: Body) -> int:
    return len(json.dumps(body))
