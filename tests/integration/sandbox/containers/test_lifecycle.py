"""The lifecycle of containers: stopped, found again, lost, swept, and never used half made."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from app.core.errors import SandboxError, SetupError
from app.sandbox.base import ENV, MODEL_PORT, TOOLS, SandboxSpec, SetupPlan, with_forwarder
from app.sandbox.container.provider import UNUSED_SECONDS, ContainerProvider
from tests.support.containers.engines import LocalEngine, containers
from tests.support.containers.engines import provider as another
from tests.support.sandboxes import filler, opened, shell
from tests.unit.sandbox.test_egress_proxy import Recorder, far_server

pytestmark = pytest.mark.xdist_group("docker")
FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n"}
SPEC = SandboxSpec("job-1.work", filler(FILES))
FETCH = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:{port}/simple").read().decode())
"""
ASK = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", {MODEL_PORT})) as line:
    line.sendall(sys.argv[1].encode())
    line.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: line.recv(65536), b"")).decode())
"""


class TestLosing:
    async def test_a_removed_sandbox_is_an_error_and_then_replaced(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        sandbox = await provider.open(SPEC)
        await shell(sandbox, "rm -r src; echo changed > README.md")
        begun = asyncio.Event()
        running = asyncio.create_task(
            sandbox.exec(["/bin/sh", "-c", "echo begun; exec sleep 300"], timeout=300, on_output=lambda _: begun.set())
        )
        await begun.wait()
        (name,) = containers(docker)
        await asyncio.to_thread(docker.report, "rm", "--force", name)
        with pytest.raises(SandboxError):
            await running
        with pytest.raises(SandboxError, match=r"(?i)no such container"):
            await sandbox.exec(["/bin/true"])
        await sandbox.close()
        await sandbox.destroy()
        async with opened(provider, SPEC) as again:
            assert await shell(again, "cat README.md; ls") == "hello\nREADME.md\nsrc\n"

    async def test_a_sandbox_that_never_became_ready_is_replaced(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        await (await provider.open(SPEC)).close()
        (name,) = containers(docker)
        await asyncio.to_thread(docker.report, "start", name)
        await asyncio.to_thread(docker.report, "exec", name, "rm", "/var/lib/agent-fix/ready", "/workspace/README.md")
        async with opened(provider, SPEC) as again:
            assert await shell(again, "ls") == "README.md\nsrc\n"

    async def test_containers_of_a_dead_process_are_ended(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        await provider.open(SPEC)
        (name,) = containers(docker)
        beat = "touch /workspace/beat; while :; do echo x >> /workspace/beat; done"
        await asyncio.to_thread(docker.report, "exec", "--detach", name, "sh", "-c", beat)
        async with opened(provider, SPEC) as again:
            assert await shell(again, "stat -c %s beat || true") == await shell(again, "stat -c %s beat || true")

    @pytest.mark.full
    async def test_a_foreign_container_of_that_name_is_not_used(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        await (await provider.open(SPEC)).close()
        (name,) = containers(docker)
        await asyncio.to_thread(docker.report, "rm", "--force", name)
        words = ("--name", name, "--label", "agent-fix=x", "--privileged", "--entrypoint", "sleep", "agent-fix-tests:1")
        await asyncio.to_thread(docker.report, "create", "--network", "none", *words, "60")
        async with opened(provider, SPEC):
            assert '"Privileged": false' in await asyncio.to_thread(docker.report, "inspect", name)


class TestSetup:
    SETUP = SetupPlan(
        (
            f"echo made | tee -a {ENV}/made modules",
            "echo left > /tmp/left; ln -s /etc/passwd odd; echo x > /dev/shm/x; mkdir ~/left; echo x > ~/left/x",
        ),
        key="kept",
    )

    async def test_a_layer_is_made_once_and_sandboxes_cannot_change_it(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        said = bytearray()
        for number in range(2):
            spec = SandboxSpec(f"job-{number}", filler(FILES), self.SETUP)
            sandbox = await provider.open(spec, on_output=said.extend)
            assert await shell(sandbox, f"cat {ENV}/made modules; ls /tmp") == "made\nmade\n"
            assert await shell(sandbox, f"(echo x >> {ENV}/made || echo x >> modules || rm -r {ENV}) 2>&1 || id -un")
            assert await shell(sandbox, f"cat {ENV}/made; ls /workspace") == "made\nREADME.md\nmodules\nodd\nsrc\n"
            await sandbox.destroy()
        assert said.count(b"\nmade\n") == 1
        assert containers(docker) == []

    async def test_setup_reaches_named_hosts_through_the_proxy_only(self, provider: ContainerProvider) -> None:
        index = Recorder()
        async with far_server(index) as port, far_server(other := Recorder()) as closed:
            fetch = FETCH.format(port=port)
            commands = (
                f"unset no_proxy NO_PROXY; python3 -c '{fetch}' > {ENV}/fetched",
                f"unset no_proxy NO_PROXY; ! python3 -c '{FETCH.format(port=closed)}' 2> {ENV}/refused",
            )
            setup = SetupPlan(commands, key="fetch", hosts=(f"http://127.0.0.1:{port}",))
            async with opened(provider, SandboxSpec("job-1", filler(FILES), setup)) as sandbox:
                assert await shell(sandbox, f"cat {ENV}/fetched") == "ok\n"
                assert "403" in await shell(sandbox, f"cat {ENV}/refused")
                assert not (await sandbox.exec(["python3", "-c", fetch])).ok
        assert (index.connections, other.connections) == (1, 0)

    async def test_certificates_of_this_machines_clients_are_copied_in_for_it(
        self, provider: ContainerProvider, tmp_path: Path
    ) -> None:
        own = tmp_path / "own.pem"
        own.write_text("own\n")
        script = f'cat "$PIP_CERT" > {ENV}/own; [ -z "$SSL_CERT_FILE" ] || [ -s "$SSL_CERT_FILE" ]'
        setup = SetupPlan((script,), key="certificates", environment=(("PIP_CERT", str(own)), ("OTHER", str(own))))
        async with opened(provider, SandboxSpec("job-1", filler(FILES), setup)) as sandbox:
            left = 'echo "[${PIP_CERT-}$(ls -d "$OTHER" /run/agent-fix* 2> /dev/null)]"'
            assert await shell(sandbox, f"cat {ENV}/own; {left}") == "own\n[]\n"

    async def test_a_failure_leaves_no_container(self, docker: LocalEngine, provider: ContainerProvider) -> None:
        with pytest.raises(SetupError):
            await provider.open(SandboxSpec("fails", filler(FILES), SetupPlan(("exit 9",), key="fails")))
        assert containers(docker) == []

    @pytest.mark.full
    async def test_an_incomplete_setup_is_noted_and_stored_for_this_job_only(self, provider: ContainerProvider) -> None:
        setup = SetupPlan(("true", "echo no; exit 3"), key="some", groups=(("true",), ("echo no; exit 3",)))
        said = bytearray()
        first = await provider.open(SandboxSpec("job-1.work", filler(FILES), setup), on_output=said.extend)
        await first.close()
        for key in ("job-1.work", "job-1.base", "job-2.work"):
            sandbox = await provider.open(SandboxSpec(key, filler(FILES), setup), on_output=said.extend)
            assert "exit code 3" in sandbox.left_out[0]
            await sandbox.destroy()
        assert first.left_out == sandbox.left_out
        assert said.count(b"no") == 2

    async def test_unused_ones_go(self, docker: LocalEngine, provider: ContainerProvider, tmp_path: Path) -> None:
        async with opened(provider, SandboxSpec("job-1", filler(FILES), SetupPlan(("true",), key="old"))):
            pass
        assert await provider.sweep(lambda _: False) == 0
        (mark,) = (path for path in (tmp_path / "caches/docker/set-ups").iterdir() if path.suffix != ".lock")
        mark.unlink()
        assert await provider.sweep(lambda _: False) == 0, "one whose mark was lost gets another"
        old = time.time() - UNUSED_SECONDS - 1
        os.utime(mark, (old, old))
        assert await provider.sweep(lambda _: False) == 1
        assert "agent-fix-setup" not in await asyncio.to_thread(docker.report, "images")


async def test_another_agents_programs_and_its_way_out(provider: ContainerProvider, tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    script = (
        f"mkdir {TOOLS}/bin; printf '#!/bin/sh\\necho made\\n' > {TOOLS}/bin/tool; chmod +x {TOOLS}/bin/tool; ls -A"
    )
    way, said = tmp_path / "way.sock", bytearray()
    spec = SandboxSpec("job-1", filler(FILES), tools=SetupPlan((script,), key="tools"), model_socket=way)
    sandbox = await provider.open(spec, on_output=said.extend)
    assert all(line.startswith(b"$ ") for line in said.splitlines()), "nothing of the project is there meanwhile"
    assert await shell(sandbox, f"{TOOLS}/bin/tool") == "made\n"
    assert not (await sandbox.exec(["sh", "-c", f"echo x >> {TOOLS}/bin/tool"])).ok
    assert not (await sandbox.exec(with_forwarder(["python3", "-c", ASK, "early"]))).ok
    server = await asyncio.start_unix_server(answer, way)
    for size in (1, 100_000):
        done = await sandbox.exec(with_forwarder(["python3", "-c", ASK, "x" * size]))
        assert done.output == b"X" * size + b"\n"
    await sandbox.close()
    async with opened(provider, spec) as again:
        assert (await again.exec(with_forwarder(["python3", "-c", ASK, "again"]))).output == b"AGAIN\n"
        server.close()
        await asyncio.to_thread(way.unlink)
        assert not (await again.exec(with_forwarder(["python3", "-c", ASK, "late"]))).ok


@pytest.mark.full
async def test_only_ours_of_jobs_that_have_ended_are_swept(
    docker: LocalEngine, provider: ContainerProvider, tmp_path: Path
) -> None:
    others = another(docker, tmp_path / "others")
    live = await provider.open(SandboxSpec("living.work", filler(FILES)))
    stranger = await others.open(SandboxSpec("ended.work", filler(FILES)))
    await (await provider.open(SandboxSpec("ended.work", filler(FILES)))).close()
    assert await provider.sweep(lambda key: key.partition(".")[0] == "ended") == 1
    assert await shell(live, "cat README.md") + await shell(stranger, "cat README.md") == "hello\nhello\n"
    await live.destroy()
    await stranger.destroy()
    assert containers(docker) == []
