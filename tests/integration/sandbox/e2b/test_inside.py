"""What the project's code can do in a cloud machine, what of its work comes out, and what the doctor says of it."""

import os
from pathlib import Path

from app.config.settings import settings_from
from app.pipeline.wiring.sandboxes import make_provider
from app.sandbox.base import ENV, Sandbox, SandboxLimits, SandboxSpec, SetupPlan
from app.sandbox.changes import baseline, export, restore
from app.sandbox.e2b.provider import E2BProvider
from app.sandbox.setup.package_clients import PackageClients, ask_reachable, find_in_template, without_settings
from tests.support.e2b.server import LocalE2B
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, opened, shell

FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n", "run.sh": b"#!/bin/sh\n", "link": b"src"}
MODES = {"run.sh": "100755", "link": "120000"}
CANARY = "canary-4711-in-the-hosts-environment"


async def _denied(sandbox: Sandbox, *attempts: str) -> None:
    for attempt in attempts:
        done = await sandbox.exec(["/bin/bash", "-c", attempt])
        assert not done.ok, (attempt, done.output)


async def test_the_projects_code_has_no_rights(provider: E2BProvider) -> None:
    async with opened(provider, SandboxSpec("job-1", filler(FILES))) as sandbox:
        await _denied(
            sandbox,
            "ls /var/lib/agent-fix",
            "echo x >> /run/filled",
            "echo x >> /etc/passwd",
            "touch /env/x",
            "touch /opt/generous/x",
            "kill -9 1",
            "mount -t tmpfs none /mnt",
            "unshare --mount true",
            "setpriv --reuid=0 true",
            "exec 3<> /dev/tcp/203.0.113.1/80",
        )
        status = await shell(sandbox, "cat /proc/self/status")
        rights = {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}
        assert int(rights["CapEff"], 16) == int(rights["CapPrm"], 16) == int(rights["CapAmb"], 16) == 0
        assert rights["NoNewPrivs"] == "1"
        assert rights["Uid"].split() == ["1500"] * 4


async def test_commands_reach_no_network_even_if_the_machine_does(e2b: LocalE2B, provider: E2BProvider) -> None:
    port = e2b.account.api.rpartition(":")[2]
    reach = f"exec 3<> /dev/tcp/127.0.0.1/{port}"
    talk = "import socket; d = socket.create_server(('127.0.0.1', 0)); socket.create_connection(d.getsockname())"
    setup = SetupPlan((f"({reach}) 2> /dev/null && touch {ENV}/reached",), key="reaching", hosts=("index.example.com",))
    async with opened(provider, SandboxSpec("job-1", filler(FILES), setup)) as sandbox:
        next(iter(e2b.machines.values())).network["allowOut"] = ["index.example.com"]
        assert (await sandbox.exec(["ls", ENV])).output == b"reached\n", "so the machine can"
        await _denied(sandbox, reach)
        assert (await sandbox.exec(["python3", "-c", talk])).ok, "a loopback of its own"


async def test_a_command_is_held_to_its_memory(provider: E2BProvider) -> None:
    take = "print(len(b'x' * ({} * 1024**2)))"
    async with opened(
        provider, SandboxSpec("job-1", filler(FILES), limits=SandboxLimits(memory=100 * 1024**2))
    ) as sandbox:
        assert (await sandbox.exec(["python3", "-c", take.format(50)])).ok
        assert not (await sandbox.exec(["python3", "-c", take.format(200)])).ok
        assert (await sandbox.exec(["python3", "-c", take.format(50)])).ok


async def test_commands_see_nothing_of_the_machine(e2b: LocalE2B, provider: E2BProvider) -> None:
    async with opened(provider, SandboxSpec("job-1", filler(FILES))) as sandbox:
        script = "env; (cat /proc/*/environ /proc/*/cmdline || true) 2> /dev/null | tr '\\0' '\\n'"
        seen = await shell(sandbox, script)
        assert "setpriv" in seen
        for secret in (e2b.account.key, e2b.account.api, str(Path.cwd()), str(e2b.place)):
            assert secret not in seen


async def test_changes_are_exported_and_applied_to_another_sandbox(provider: E2BProvider) -> None:
    tree = MemoryTree(FILES, modes=MODES)
    base = baseline(tree)
    odd = "sp ace/ünï'\"$(id)\\.py"
    async with (
        opened(provider, SandboxSpec("job-1", filler(FILES, MODES))) as sandbox,
        opened(provider, SandboxSpec("job-2", filler(FILES, MODES))) as other,
    ):
        assert (await export(sandbox, base)).changes == ()
        await sandbox.exec(["/bin/sh", "-c", 'mkdir "sp ace"; printf "x\\0\\377" > "$1"; rm README.md', "sh", odd])
        await shell(sandbox, "echo b >> src/a.py; ln -sfn README.md link; chmod -x run.sh")
        patch = await export(sandbox, base)
        told = {change.path: (change.mode, change.content) for change in patch.changes}
        assert told == {
            "README.md": ("100644", None),
            "link": ("120000", b"README.md"),
            "run.sh": ("100644", b"#!/bin/sh\n"),
            odd: ("100644", b"x\0\xff"),
            "src/a.py": ("100644", b"a = 1\nb\n"),
        }
        await restore(other, base, patch)
        assert await export(other, base) == patch


async def test_the_doctor_proves_it_and_leaves_nothing(e2b: LocalE2B, provider: E2BProvider) -> None:
    checks = {check.name: check for check in await provider.check()}
    assert list(checks) == ["account", "network policy", "network", "account inside", "memory"]
    assert all(check.ok for check in checks.values()), checks
    assert e2b.machines == {}


async def test_the_doctor_says_why_not(e2b: LocalE2B, provider: E2BProvider, tmp_path: Path) -> None:
    (keyless,) = await make_provider("e2b", settings_from({}, tmp_path)).check()
    assert not keyless.ok
    assert "E2B_API_KEY" in keyless.repair
    e2b.faults.network = lambda told: {**told, "allowOut": ["0.0.0.0/0"]}
    account, start = await provider.check()
    assert account.ok
    assert not start.ok
    assert "not as requested" in start.detail


class TestIndexes:
    async def test_this_machines_package_mirror_is_not_passed_on(self) -> None:
        home = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PIP_INDEX_URL": "http://127.0.0.1:3141/simple"}
        asked = await ask_reachable(home, Path("/usr/bin/python3"))
        assert asked != PackageClients()
        assert not [host for host in asked.hosts if "127.0.0.1" in host]
        assert "PIP_INDEX_URL" not in dict(asked.environment)

    async def test_a_public_issue_needs_no_token_at_all(self) -> None:
        home = {**without_settings(dict(os.environ)), "PIP_INDEX_URL": "https://index.example.com/simple"}
        asked = await ask_reachable({**home, "PIP_CONFIG_FILE": os.devnull}, Path("/usr/bin/python3"))
        assert "https://index.example.com" in asked.hosts
        assert dict(asked.environment)["PIP_INDEX_URL"] == "https://index.example.com/simple"

    def test_nobodys_settings_are_taken_along(self) -> None:
        asked = without_settings({"PATH": "/bin", "HOME": "/root", "PIP_INDEX_URL": "x", "NPM_TOKEN": CANARY})
        assert CANARY not in asked.values()
        assert asked["HOME"] != "/root"
        assert find_in_template("cargo") is None
