"""What a command in a container can do, and that a container with other settings than requested is refused."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.sandbox.base import Sandbox, SandboxLimits, SandboxSpec
from app.sandbox.changes import baseline, export, restore
from app.sandbox.container.provider import KEY, PERIOD, RESERVE, SCOPE, ContainerProvider, ContainerSpec
from tests.support.containers.engines import LocalEngine
from tests.support.memory_tree import MemoryTree
from tests.support.sandboxes import filler, opened, shell

FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n", "run.sh": b"#!/bin/sh\n", "link": b"src"}
MODES = {"run.sh": "100755", "link": "120000"}
HOP = """
import os, sys, time
end = time.time() + 60
while time.time() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    with open("/workspace/beat", "a") as beat:
        beat.write("x")
"""
"""A process that is never the same for longer than a moment."""
IMMORTAL = """
import os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for _ in range(8):
    subprocess.Popen([sys.executable, "-c", sys.argv[1], ""], start_new_session=True)
"""


async def _denied(sandbox: Sandbox, *attempts: str) -> None:
    for attempt in attempts:
        done = await sandbox.exec(["/bin/bash", "-c", attempt])
        assert not done.ok, (attempt, done.output)


@pytest.mark.xdist_group("docker")
class TestInside:
    async def test_the_projects_code_has_no_rights_and_sees_nothing_of_the_host(
        self, docker: LocalEngine, provider: ContainerProvider
    ) -> None:
        async with opened(provider, SandboxSpec("job-1", filler(FILES))) as sandbox:
            await _denied(
                sandbox,
                "ls /var/lib/agent-fix",
                "echo x >> /run/filled",
                "echo x >> /etc/passwd",
                "touch /env/x",
                "kill -9 1",
                "mount -t tmpfs none /mnt",
                "unshare --user true",
                "unshare --mount true",
                "setpriv --reuid=0 true",
                "exec 3<> /dev/tcp/203.0.113.1/80",
                "ls /run/docker.sock /var/run/docker.sock",
                "cat /proc/1/environ",
                "echo 0 > /proc/self/oom_score_adj && echo -1000 > /proc/self/oom_score_adj",
            )
            seen = await shell(sandbox, "env; cat /etc/hosts /etc/resolv.conf; tr '\\0' '\\n' < /proc/self/environ")
            assert os.uname().nodename not in seen.split()
            assert not [name for name in ("HTTP_PROXY", "DOCKER", str(Path.home())) if name in seen]
            status = await shell(sandbox, "cat /proc/self/status")
            rights = {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}
            assert {rights[name].strip("0") for name in ("CapEff", "CapPrm", "CapAmb", "CapBnd", "CapInh")} == {""}
            assert (rights["NoNewPrivs"], rights["Seccomp"]) == ("1", "2")
            assert int(rights["Seccomp_filters"]) == 2, "the engine's, and ours on top of it"

    @pytest.mark.parametrize("program", [(HOP,), (IMMORTAL, HOP)])
    async def test_no_process_outruns_its_end(self, provider: ContainerProvider, program: tuple[str, ...]) -> None:
        script = 'touch beat; python3 -c "$@"; while ! [ -s beat ]; do :; done; exec sleep 60'
        async with opened(provider, SandboxSpec("job-1", filler(FILES), limits=SandboxLimits(processes=64))) as sandbox:
            done = await sandbox.exec(["/bin/bash", "-c", script, "sh", *program], timeout=2.0)
            assert (done.exit_code, done.timed_out) == (137, True)
            assert await shell(sandbox, "wc -c < beat") != "0\n"
            assert await shell(sandbox, "stat -c %s beat") == await shell(sandbox, "stat -c %s beat")
            mine = "for at in /proc/[0-9]*; do [ -O $at ] && cat $at/comm; done; true"
            assert set((await shell(sandbox, mine)).split()) <= {"bash", "cat"}

    async def test_memory_and_processes_of_all_commands_together_are_bounded(self, provider: ContainerProvider) -> None:
        limits = SandboxLimits(memory=96 * 1024**2, processes=32)
        async with opened(provider, SandboxSpec("job-1", filler(FILES), limits=limits)) as sandbox:
            hog = await sandbox.exec(["python3", "-c", "held = b'x' * (256 * 1024 ** 2); print('held')"])
            assert (hog.exit_code, hog.output) == (137, b"")
            bomb = await sandbox.exec(["/bin/bash", "-c", "b() { b | b & }; b; sleep 1"], timeout=2)
            assert b"Resource temporarily unavailable" in bomb.output
            assert await shell(sandbox, "cat README.md") == "hello\n"

    @pytest.mark.full
    async def test_changes_are_exported_and_applied_to_another_sandbox(self, provider: ContainerProvider) -> None:
        base = baseline(MemoryTree(FILES, modes=MODES))
        odd = "sp ace/ünï'\"$(id)\\.py"
        async with (
            opened(provider, SandboxSpec("job-1", filler(FILES, MODES))) as sandbox,
            opened(provider, SandboxSpec("job-2", filler(FILES, MODES))) as other,
        ):
            assert (await export(sandbox, base)).changes == ()
            script = 'mkdir "sp ace"; printf "x\\0\\377" > "$1"; rm README.md; chmod -x run.sh'
            await sandbox.exec(["/bin/sh", "-c", script, "sh", odd])
            patch = await export(sandbox, base)
            assert {change.path for change in patch.changes} == {"README.md", "run.sh", odd}
            await restore(other, base, patch)
            there = await export(other, base)
            assert there.changes == patch.changes, (there, patch)
            assert there == patch


WANTED = ContainerSpec("name", "scope", "key", "image", SandboxLimits(memory=1000, processes=10), quota=True)
AS_ASKED: dict[str, Any] = {
    "Config": {"Labels": {SCOPE: "scope", KEY: "key"}},
    "Mounts": [],
    "HostConfig": {
        "NetworkMode": "none",
        "CapAdd": ["CHOWN", "CAP_KILL"],
        "Binds": None,
        "Privileged": False,
        "PidMode": "",
        "Memory": 1000,
        "CpuQuota": 4 * PERIOD,
        "PidsLimit": 10 + RESERVE,
        "SecurityOpt": ["no-new-privileges:true"],
    },
}


def test_a_container_that_matches_its_request_passes() -> None:
    assert WANTED.difference(AS_ASKED) == ""
    assert WANTED.difference({**AS_ASKED, "Mounts": [{"Type": "volume", "Source": "/var/lib/x"}]}) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"NetworkMode": "bridge"}, "network"),
        ({"NetworkMode": "host"}, "network"),
        ({"Privileged": True}, "privileged"),
        ({"CapAdd": ["SYS_ADMIN"]}, "SYS_ADMIN"),
        ({"Binds": ["/:/host"]}, "files of this machine"),
        ({"Devices": [{"PathOnHost": "/dev/kvm"}]}, "devices"),
        ({"PidMode": "host"}, "processes of this machine"),
        ({"Memory": 0}, "no limit of memory"),
        ({"CpuQuota": 0}, "no limit of processors"),
        ({"PidsLimit": None}, "no limit of processes"),
        ({"SecurityOpt": None}, "new privileges"),
    ],
)
def test_any_other_is(change: dict[str, Any], said: str) -> None:
    assert said in WANTED.difference({**AS_ASKED, "HostConfig": {**AS_ASKED["HostConfig"], **change}})


def test_defaults_of_an_engine_that_show_files_or_give_rights_are_seen() -> None:
    assert "/etc" in WANTED.difference({**AS_ASKED, "Mounts": [{"Type": "bind", "Source": "/etc"}]})
    assert "NET_RAW" in WANTED.difference({**AS_ASKED, "EffectiveCaps": ["CAP_KILL", "CAP_NET_RAW"]})
    assert "labels" in replace(WANTED, key="other").difference(AS_ASKED)
