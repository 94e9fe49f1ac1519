"""The lifecycle of machines at E2B: paused, found again, lost, swept, and never used half made."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import SandboxError, SetupError
from app.sandbox.base import ENV, SandboxSpec, SetupPlan
from app.sandbox.e2b.cloud import LIFETIME
from app.sandbox.e2b.provider import E2BProvider
from tests.support.e2b.server import LocalE2B
from tests.support.sandboxes import filler, opened, shell

FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n"}
SPEC = SandboxSpec("job-1.work", filler(FILES))


class TestParking:
    async def test_a_closed_sandbox_is_paused_and_resumed(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        first = await provider.open(SPEC)
        await shell(first, "echo changed > README.md")
        await first.close()
        assert [machine.state for machine in e2b.machines.values()] == ["paused"]
        async with opened(provider, SPEC) as second:
            assert await shell(second, "cat README.md") == "changed\n"
            assert [machine.state for machine in e2b.machines.values()] == ["running"]
        assert e2b.machines == {}

    async def test_a_failed_pause_is_tolerated(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        sandbox = await provider.open(SPEC)
        e2b.faults.status["POST /sandboxes/"] = 500
        await sandbox.close()
        e2b.faults.status.clear()
        assert len(e2b.machines) == 1

    async def test_a_machine_has_a_lifetime_and_our_tag(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        async with opened(provider, SPEC):
            (machine,) = e2b.machines.values()
            assert machine.alive == LIFETIME
            assert machine.metadata["agent-fix-key"] == SPEC.key
            assert len(machine.metadata["agent-fix"]) == 32

    async def test_a_machines_lifetime_is_extended_during_a_command(self, e2b: LocalE2B, tmp_path: Path) -> None:
        provider = E2BProvider(e2b.account, scope="tests", caches=tmp_path, seconds=5, renewal=0.02)
        async with opened(provider, SPEC) as sandbox:
            running = asyncio.create_task(sandbox.exec(["/bin/sh", "-c", "until [ -e done ]; do sleep 0.05; done"]))
            (machine,) = e2b.machines.values()
            while len(e2b.said(f"POST /sandboxes/{machine.id}/timeout")) < 3:  # noqa: ASYNC110 - it is in another thread
                await asyncio.sleep(0.01)
            (machine.root / "workspace/done").touch()
            assert (await running).ok
            assert machine.alive == LIFETIME


class TestLosing:
    async def test_a_machine_that_goes_away_is_an_error(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        sandbox = await provider.open(SPEC)
        begun = asyncio.Event()
        running = asyncio.create_task(
            sandbox.exec(["/bin/sh", "-c", "echo begun; exec sleep 300"], timeout=300, on_output=lambda _: begun.set())
        )
        await begun.wait()
        await _in_server(e2b, next(iter(e2b.machines)))
        with pytest.raises(SandboxError):
            await running
        with pytest.raises(SandboxError, match="gone"):
            await sandbox.exec(["/bin/true"])
        await sandbox.close()
        await sandbox.destroy()

    async def test_the_same_key_is_a_fresh_tree_then(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        sandbox = await provider.open(SPEC)
        await shell(sandbox, "rm -r src; echo changed > README.md")
        await _in_server(e2b, next(iter(e2b.machines)))
        async with opened(provider, SPEC) as again:
            assert await shell(again, "cat README.md; ls") == "hello\nREADME.md\nsrc\n"

    async def test_a_sandbox_that_never_became_ready_is_replaced(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        await provider.open(SPEC)
        (old,) = e2b.machines.values()
        (old.root / "var/lib/agent-fix/ready").unlink()
        (old.root / "workspace/README.md").unlink()
        async with opened(provider, SPEC) as again:
            assert await shell(again, "ls") == "README.md\nsrc\n"
            assert old.id not in e2b.machines

    async def test_a_machine_with_an_interrupted_setup_is_replaced_and_closed(
        self, e2b: LocalE2B, provider: E2BProvider
    ) -> None:
        await provider.open(SPEC)
        (old,) = e2b.machines.values()
        (old.root / "var/lib/agent-fix/ready").unlink()
        old.network["allowOut"] = ["index.example.com"]
        async with opened(provider, SPEC):
            assert [machine.network["allowOut"] for machine in e2b.machines.values()] == [[]]

    async def test_a_running_instance_is_refused(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        await provider.open(SPEC)
        next(iter(e2b.machines.values())).network["allowOut"] = ["index.example.com"]
        with pytest.raises(SandboxError, match="not as requested"):
            await provider.open(SPEC)
        assert e2b.machines == {}

    async def test_an_upload_that_fails_leaves_nothing(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        e2b.faults.status["POST /files"] = 500
        with pytest.raises(SandboxError, match="sending files"):
            await provider.open(SPEC)
        assert e2b.machines == {}


class TestFaults:
    @pytest.mark.parametrize(
        "fault",
        ["GET /v2/sandboxes", "POST /v2/sandboxes", "GET /sandboxes/", "POST /files", "POST /process.Process/Start"],
    )
    async def test_a_machine_that_does_not_answer_is_given_up(self, e2b: LocalE2B, tmp_path: Path, fault: str) -> None:
        impatient = E2BProvider(e2b.account, scope="tests", caches=tmp_path, seconds=0.3, upload_seconds=0.3)
        e2b.faults.hang.add(fault)
        with pytest.raises(SandboxError, match="did not answer within"):
            await impatient.open(SPEC)
        assert e2b.machines == {}

    async def test_a_server_error_is_reported(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        e2b.faults.status["POST /v2/sandboxes"] = 500
        with pytest.raises(SandboxError, match=r"making a sandbox.*out of order"):
            await provider.open(SPEC)

    async def test_a_key_that_is_refused(self, e2b: LocalE2B, tmp_path: Path) -> None:
        e2b.faults.status["GET /v2/sandboxes"] = 401
        with pytest.raises(SandboxError, match="rejected the key"):
            await E2BProvider(e2b.account, scope="tests", caches=tmp_path).open(SPEC)


class TestPolicy:
    @pytest.mark.parametrize(
        "lie",
        [{"allowOut": ["0.0.0.0/0"]}, {"denyOut": []}, {"allowPublicTraffic": True}, {"allowOut": ["a.example.com"]}],
    )
    async def test_another_than_was_sent_ends_it_before_anything_enters(
        self, e2b: LocalE2B, provider: E2BProvider, lie: dict[str, Any]
    ) -> None:
        e2b.faults.network = lambda told: {**told, **lie}
        with pytest.raises(SandboxError, match="not as requested"):
            await provider.open(SPEC)
        assert e2b.machines == {}
        assert e2b.said("POST /files") == e2b.said("POST /process.Process") == []

    async def test_the_network_opens_for_named_hosts_during_setup_only(
        self, e2b: LocalE2B, provider: E2BProvider
    ) -> None:
        setup = SetupPlan(("true", "true"), key="hosts", hosts=("https://index.example.com",))
        async with opened(provider, SandboxSpec("hosts", filler(FILES), setup)):
            sent = e2b.said("PUT /sandboxes/")
        assert [one["allowOut"] for one in sent] == [["index.example.com"], []]
        assert [one["denyOut"] for one in sent] == [["0.0.0.0/0"]] * 2
        orders = [what.split("/")[-1] for what, _ in e2b.requests]
        first, second = (place for place, name in enumerate(orders) if name == "network")
        assert orders[first + 2 : second] == ["Start", "Start"]

    async def test_a_set_up_that_fails_leaves_no_open_machine(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        setup = SetupPlan(("exit 9",), key="fails", hosts=("https://index.example.com",))
        with pytest.raises(SetupError):
            await provider.open(SandboxSpec("fails", filler(FILES), setup))
        assert e2b.machines == {}

    async def test_a_set_up_from_this_machine_is_refused(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        setup = SetupPlan(("true",), key="local", hosts=("http://127.0.0.1:3141",))
        with pytest.raises(SetupError, match="cloud sandbox cannot reach it"):
            await provider.open(SandboxSpec("local", filler(FILES), setup))
        assert e2b.machines == {}


class TestKeptSetup:
    SETUP = SetupPlan(
        (f"echo made | tee -a {ENV}/made modules", "echo left > /tmp/left; ln -s /etc/passwd odd"),
        key="kept",
    )

    async def test_a_layer_is_made_once_and_sandboxes_cannot_change_it(
        self, e2b: LocalE2B, provider: E2BProvider
    ) -> None:
        for number in range(2):
            async with opened(provider, SandboxSpec(f"job-{number}", filler(FILES), self.SETUP)) as sandbox:
                assert await shell(sandbox, f"cat {ENV}/made modules; ls /tmp") == "made\nmade\n"
                assert await shell(
                    sandbox, f"(echo x >> {ENV}/made || echo x >> modules || rm -r {ENV}) 2>&1 || id -un"
                )
                assert await shell(sandbox, f"cat {ENV}/made; ls /workspace") == "made\nREADME.md\nmodules\nodd\nsrc\n"
        assert len(e2b.snapshots) == 1
        assert len([what for what, _ in e2b.requests if what.startswith("POST") and what.endswith("/snapshots")]) == 1

    async def test_a_lost_snapshot_is_made_again(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        async with opened(provider, SandboxSpec("job-1", filler(FILES), self.SETUP)):
            e2b.snapshots.clear()
        async with opened(provider, SandboxSpec("job-2", filler(FILES), self.SETUP)) as sandbox:
            assert await shell(sandbox, f"cat {ENV}/made") == "made\n"
        assert len(e2b.snapshots) == 1

    async def test_an_incomplete_setup_is_noted_and_not_stored(self, e2b: LocalE2B, provider: E2BProvider) -> None:
        setup = SetupPlan(("true", "echo no; exit 3"), key="some", groups=(("true",), ("echo no; exit 3",)))
        for _ in range(2):
            sandbox = await provider.open(SandboxSpec("job-1", filler(FILES), setup))
            assert "exit code 3" in sandbox.left_out[0]
            await sandbox.close()
        await sandbox.destroy()
        assert e2b.snapshots == {}


class TestSweeping:
    async def test_only_ours_of_jobs_that_have_ended(
        self, e2b: LocalE2B, provider: E2BProvider, tmp_path: Path
    ) -> None:
        others = E2BProvider(e2b.account, scope="others", caches=tmp_path / "others")
        live = await provider.open(SandboxSpec("living.work", filler(FILES)))
        stranger = await others.open(SandboxSpec("ended.work", filler(FILES)))
        ended = await provider.open(SandboxSpec("ended.work", filler(FILES)))
        await ended.close()
        assert await provider.sweep(lambda key: key.partition(".")[0] == "ended") == 1
        assert await shell(live, "cat README.md") + await shell(stranger, "cat README.md") == "hello\nhello\n"
        assert len(e2b.machines) == 2
        await live.destroy()
        await stranger.destroy()


async def _in_server(e2b: LocalE2B, sandbox_id: str) -> None:
    """E2B takes the machine away."""
    machine = e2b.machines[sandbox_id]
    machine.state = "gone"
    del e2b.machines[sandbox_id]
    e2b.end_processes(machine)


async def test_a_template_of_ones_own_and_what_is_kept_of_it(e2b: LocalE2B, tmp_path: Path) -> None:
    e2b.templates.add("my-team/own")
    setup = SetupPlan(("echo made > made",), key="same")
    for template, name in (("", "base"), ("my-team/own", "my-team/own")):
        own = E2BProvider(e2b.account, scope="tests", caches=tmp_path / "caches", template=template, seconds=5)
        async with opened(own, SandboxSpec("job-1", filler({"a": b"a"}), setup)) as sandbox:
            assert await shell(sandbox, "cat /etc/template; python -c 'print(1)'") == f"{name}1\n"
    assert [body["templateID"] for body in e2b.said("POST /v2/sandboxes")] == ["base", "my-team/own"]
    assert len(e2b.snapshots) == 2, "a set-up made in one template is no set-up for the other"


async def test_a_template_that_is_not_there_is_named(e2b: LocalE2B, tmp_path: Path) -> None:
    own = E2BProvider(e2b.account, scope="tests", caches=tmp_path / "caches", template="my-team/none", seconds=5)
    with pytest.raises(SandboxError, match="has no template 'my-team/none'") as caught:
        await own.open(SandboxSpec("job-1", filler({"a": b"a"})))
    assert "AGENT_FIX_E2B_TEMPLATE" in caught.value.hint
