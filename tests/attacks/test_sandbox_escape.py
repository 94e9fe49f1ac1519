"""A hostile command in the default sandbox: what it may try, and that it gets nothing.

Each test is an attack with its own means, so that none relies on what the doctor believes.
"""

import asyncio
import base64
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from app.core.errors import SandboxError
from app.sandbox.base import WORKSPACE, Sandbox, SandboxCommand, SandboxLimits, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.cgroup import make_cgroup
from app.sandbox.bubblewrap.command import BubblewrapCommand, Mount, options, within
from app.sandbox.bubblewrap.layers import ensure_layer
from app.sandbox.bubblewrap.provider import BubblewrapProvider, end_orphans
from app.sandbox.host_directories import HostDirectory
from tests.support.process_tree import descendants
from tests.support.sandboxes import filler, opened, shell

CANARY = "canary-7b1f93ac2e"
LIMITS = SandboxLimits(memory=128 * 1024**2, processes=64, file_size=4 * 1024**2, output=1024**2)
FILES = {"README.md": b"hello\n"}
PRELOADED = b"""
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) void loaded(void) {
    FILE *log = fopen("/workspace/log", "a");
    if (log) { fprintf(log, "%d\\n", getuid()); fclose(log); }
}
"""


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BubblewrapProvider:
    monkeypatch.setenv("AGENT_FIX_TEST_SECRET", CANARY)
    (tmp_path / "secret").write_text(CANARY)
    return BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches", environment=dict(os.environ))


@pytest.fixture
async def sandbox(provider: BubblewrapProvider) -> AsyncIterator[Sandbox]:
    async with opened(provider, SandboxSpec("hostile", filler(FILES), limits=LIMITS)) as opening:
        yield opening


async def python(sandbox: Sandbox, script: str, *, timeout: float = 30.0) -> str:
    done = await sandbox.exec(["python3", "-I", "-c", script], timeout=timeout)
    return done.output.decode(errors="replace").strip()


def encodings(secret: str) -> list[bytes]:
    raw = secret.encode()
    return [raw, raw[::-1], raw.hex().encode(), *(base64.b64encode(b"x" * shift + raw)[4:-4] for shift in range(3))]


class TestSecrets:
    async def test_no_readable_process_or_variable_holds_the_callers_environment(self, sandbox: Sandbox) -> None:
        script = "env; for p in /proc/[0-9]* /proc/self; do cat $p/environ $p/cmdline; done 2>/dev/null; true"
        done = await sandbox.exec(["/bin/sh", "-c", script])
        assert b"PATH=" in done.output
        assert not [code for code in encodings(CANARY) if code in done.output]
        assert b"AGENT_FIX" not in done.output

    async def test_only_known_variables(self, sandbox: Sandbox) -> None:
        names = json.loads(await python(sandbox, "import os, json; print(json.dumps(sorted(os.environ)))"))
        offline = {name for name in names if name.startswith(("PIP_", "npm_", "CARGO_", "UV_", "GO"))}
        assert set(names) - offline == {"HOME", "LANG", "PATH", "TMPDIR", "PWD"} & set(names) | {
            "HOME",
            "LANG",
            "PATH",
            "TMPDIR",
        }

    async def test_the_host_file_system_is_not_there(self, sandbox: Sandbox, tmp_path: Path) -> None:
        places = [
            str(tmp_path),
            "/proc/1/root/etc/shadow",
            f"/proc/self/root{tmp_path}/secret",
            "/etc/shadow",
            "/boot",
            "/srv",
        ]
        places += [
            "/var/run/docker.sock",
            "/run/docker.sock",
            "/run/secrets",
            "/mnt",
            "/media",
            "/sys/kernel",
            "/root/.ssh",
        ]
        done = await sandbox.exec(
            ["/bin/sh", "-c", 'for p; do cat "$p" || ls "$p"; done 2>/dev/null; true', "sh", *places]
        )
        assert done.output == b""

    async def test_nothing_of_ours_is_found_by_searching(self, sandbox: Sandbox) -> None:
        found = await shell(
            sandbox, "find / -xdev \\( -name jobs -o -name '*.sqlite' -o -name secret \\) 2>/dev/null | head; true"
        )
        assert "pytest" not in found

    async def test_the_command_line_of_process_1_names_no_host_directory(
        self, sandbox: Sandbox, tmp_path: Path
    ) -> None:
        line = await shell(sandbox, "tr '\\0' ' ' < /proc/1/cmdline")
        assert line.startswith("bwrap ")
        assert str(tmp_path) not in line
        assert str(Path(__file__).parents[2]) not in line

    async def test_no_descriptor_is_inherited(self, sandbox: Sandbox) -> None:
        assert await python(sandbox, "import os; print(sorted(os.listdir('/proc/self/fd')))") == "['0', '1', '2', '3']"

    async def test_writing_into_the_pipes_of_process_1_changes_no_result(self, sandbox: Sandbox) -> None:
        """Whoever could write to its status pipe could name another process to be watched, or another exit code."""
        bystander = await asyncio.create_subprocess_exec("/bin/sleep", "300")
        lie = json.dumps({"child-pid": bystander.pid, "exit-code": 0})
        script = f"for f in /proc/1/fd/*; do (echo '{lie}' > $f; echo nonsense > $f) 2>/dev/null; done; exec sleep 300"
        done = await sandbox.exec(["/bin/sh", "-c", script], timeout=1)
        assert (done.timed_out, done.exit_code) == (True, 137)
        assert (await sandbox.exec(["/bin/sh", "-c", "exit 5"])).exit_code == 5
        assert bystander.returncode is None
        bystander.kill()
        await bystander.wait()

    async def test_a_link_to_the_outside_shows_the_inside(self, sandbox: Sandbox, tmp_path: Path) -> None:
        (tmp_path / "jobs" / "hostile" / "tree" / "out").symlink_to(tmp_path / "secret")
        assert CANARY not in (await sandbox.exec(["/bin/cat", "out"])).output.decode()


class TestPrivileges:
    async def test_an_ordinary_user_without_capabilities(self, sandbox: Sandbox) -> None:
        status = await shell(sandbox, "cat /proc/self/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert "0" not in fields["Uid"].split()
        assert "0" not in fields["Gid"].split()
        assert all(int(fields[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
        assert fields["NoNewPrivs"] == "1"
        assert fields["Seccomp"] == "2"
        assert fields.get("Groups", "").split() in ([], [fields["Gid"].split()[0]]) or os.geteuid() != 0

    @pytest.mark.parametrize("how", ["unshare -U true", "unshare -m true", "unshare -n true", "unshare -rUm true"])
    async def test_no_new_namespace_by_the_tool(self, sandbox: Sandbox, how: str) -> None:
        assert not (await sandbox.exec(["/bin/sh", "-c", how])).ok

    async def test_no_new_namespace_by_system_calls(self, sandbox: Sandbox) -> None:
        script = """
import ctypes, os, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
clone, clone3 = {"x86_64": (56, 435), "aarch64": (220, 435)}[platform.machine()]
def child_of(answer):
    if answer == 0: os._exit(0)
    return "made" if answer > 0 else os.strerror(ctypes.get_errno())
print(child_of(libc.syscall(clone, ctypes.c_long(0x10000000 | 17), 0, 0, 0, 0)))
arguments = ctypes.create_string_buffer(struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0))
print(child_of(libc.syscall(clone3, arguments, ctypes.c_long(64))))
print(libc.unshare(0x20000000))
"""
        assert (await python(sandbox, script)).splitlines() == [
            "Operation not permitted",
            "Function not implemented",
            "-1",
        ]

    @pytest.mark.parametrize(
        "script",
        [
            "mount -t tmpfs none /workspace",
            "mount --bind /workspace /tmp",
            "mount -o remount,rw /usr",
            "umount /usr",
            "chroot / true",
            "nsenter -t 1 -m true",
            "mknod device b 8 0",
            "su -c true",
            "sudo -n true",
            "ip link add d type dummy",
            "hostname other",
            "date -s 2001-01-01",
            "dmesg",
            "insmod x",
            "keyctl show",
            "setcap cap_net_raw+ep /workspace/x",
        ],
    )
    async def test_operations_reserved_for_root_fail(self, sandbox: Sandbox, script: str) -> None:
        assert not (await sandbox.exec(["/bin/sh", "-c", script])).ok

    async def test_a_setuid_program_of_ones_own_gives_nothing(self, sandbox: Sandbox) -> None:
        await shell(sandbox, "cp /bin/id me; chmod 6755 me")
        assert "uid=0" not in await shell(sandbox, "./me")

    async def test_a_key_ring_is_out_of_reach(self, sandbox: Sandbox) -> None:
        script = """
import ctypes, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
add = {"x86_64": 248, "aarch64": 217}[platform.machine()]
print(libc.syscall(add, b"user", b"name", b"secret", 6, ctypes.c_long(-3)), errno.errorcode[ctypes.get_errno()])
"""
        assert await python(sandbox, script) == "-1 EPERM"

    async def test_no_terminal_to_type_into(self, sandbox: Sandbox) -> None:
        assert not (await sandbox.exec(["/bin/sh", "-c", "echo x > /dev/tty"])).ok
        script = "import fcntl, os; m, s = os.openpty(); fcntl.ioctl(s, 0x5412, b'x')"
        assert "PermissionError" in await python(sandbox, script)

    @pytest.mark.parametrize(
        "family", ["AF_PACKET", "AF_VSOCK", "AF_ALG", "AF_BLUETOOTH", "AF_NETLINK, socket.SOCK_RAW, 9"]
    )
    async def test_odd_socket_families_do_not_exist(self, sandbox: Sandbox, family: str) -> None:
        parts = family if "," in family else f"{family}, socket.SOCK_DGRAM"
        told = await python(sandbox, f"import socket; socket.socket(socket.{parts})")
        assert "Address family not supported" in told or "AttributeError" in told

    async def test_loader_variables_reach_no_privileged_process(self, sandbox: Sandbox) -> None:
        """As root the sandbox begins with a program that still is root: a preloaded library would be too."""
        await sandbox.exec(["/usr/bin/tee", "f.c"], stdin=PRELOADED)
        if not (
            await sandbox.exec(["/bin/sh", "-c", "gcc -shared -fPIC -o f.so f.c && touch log && chmod 666 log"])
        ).ok:
            pytest.skip("no compiler")
        await sandbox.exec(["/bin/true"], env={"LD_PRELOAD": f"{WORKSPACE}/f.so"})
        assert set((await shell(sandbox, "cat log")).split()) == set((await shell(sandbox, "id -u")).split())

    async def test_processes_of_the_host_cannot_be_signalled(self, sandbox: Sandbox) -> None:
        told = await python(sandbox, f"import os; os.kill({os.getpid()}, 0)")
        assert "ProcessLookupError" in told


class TestFiles:
    @pytest.mark.parametrize(
        "place",
        [
            "/",
            "/usr",
            "/usr/bin",
            "/usr/local",
            "/etc",
            "/etc/ssl",
            "/dev",
            "/proc/sys/kernel",
            "/run",
            "/var",
            "/home",
        ],
    )
    async def test_nothing_else_is_writable(self, sandbox: Sandbox, place: str) -> None:
        assert not (await sandbox.exec(["/bin/sh", "-c", f"touch {place}/probe"])).ok
        assert not (await sandbox.exec(["/bin/sh", "-c", f"[ -w {place} ]"])).ok

    async def test_programs_and_toolchains_stay_what_they_are(self, sandbox: Sandbox) -> None:
        script = (
            'for p in python3 sh ls; do at=$(readlink -f $(command -v $p)); : >> "$at" && echo "$at"; done 2>&-; true'
        )
        assert await shell(sandbox, script) == ""

    async def test_shared_memory_is_bounded_and_gone_afterwards(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["/bin/sh", "-c", "echo x > /dev/shm/x"])
        assert await shell(sandbox, "ls /dev/shm") == ""

    async def test_a_listing_of_the_beginning_cannot_be_changed(self, sandbox: Sandbox) -> None:
        assert not (await sandbox.exec(["/bin/sh", "-c", "echo x > /run/filled"])).ok
        assert not (await sandbox.exec(["/bin/sh", "-c", "rm -f /run/filled"])).ok

    async def test_removing_a_tree_of_three_thousand_levels_and_links(
        self, provider: BubblewrapProvider, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").write_text("kept")
        sandbox = await provider.open(SandboxSpec("deep", filler(FILES)))
        await python(sandbox, "import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]")
        await shell(sandbox, f"ln -s {kept} link; mkdir -p a/b; touch a/b/c; chmod 0 a/b a")
        await sandbox.destroy()
        assert not (tmp_path / "jobs" / "deep").exists()
        assert (kept / "file").read_text() == "kept"


class TestSetupDirectories:
    """Mount points lie in a tree that the agent writes: a link in their place must not lead a mount out."""

    SETUP = SetupPlan(("mkdir -p packages/a/deps && echo dep > packages/a/deps/d",), key="nested")

    async def test_changes_by_a_command_stay_in_its_sandbox(self, provider: BubblewrapProvider, tmp_path: Path) -> None:
        files = {"packages/a/package.json": b"{}"}
        spoil = """
            echo x > packages/a/deps/d; echo x > packages/a/deps/new; mkdir packages/a/deps/.vite; touch /env/x
            chmod 0 packages/a/deps/.vite; ls packages/a/deps /env; cat packages/a/deps/d
            rm packages/a/deps/d; ln -s /etc packages/a/deps/d; ln packages/a/deps/new packages/a/deps/.linked
        """
        for key in ("first", "second"):
            async with opened(provider, SandboxSpec(key, filler(files), self.SETUP)) as sandbox:
                assert await shell(sandbox, "ls -A packages/a/deps /env; cat packages/a/deps/d") == (
                    "/env:\n\npackages/a/deps:\nd\ndep\n"
                )
                assert await shell(sandbox, spoil) == "/env:\nx\n\npackages/a/deps:\nd\nnew\nx\n"
                assert await shell(sandbox, "ls -A packages/a/deps /env") == (
                    "/env:\n\npackages/a/deps:\n.linked\n.vite\nd\nnew\n"
                )
                assert list((tmp_path / "jobs" / key / "changes").iterdir()) == []
        (layer,) = (path for path in (tmp_path / "caches" / "setup").iterdir() if path.is_dir())
        assert (layer / "tree" / "packages/a/deps/d").read_text() == "dep\n"

    async def test_two_commands_at_once_work_on_one_tree(self, provider: BubblewrapProvider) -> None:
        files = {"packages/a/package.json": b"{}"}
        wait = "until [ -e ~/{other} ]; do sleep 0.01; done; sleep 0.1; ls packages/a/deps"
        async with opened(provider, SandboxSpec("both", filler(files), self.SETUP)) as sandbox:
            seen = await asyncio.gather(
                shell(sandbox, f"touch packages/a/deps/one ~/one; {wait.format(other='two')}"),
                shell(sandbox, f"touch packages/a/deps/two ~/two; {wait.format(other='one')}"),
            )
            assert await shell(sandbox, "ls packages/a/deps") == "d\none\ntwo\n"
        assert list(seen) == ["d\none\ntwo\n"] * 2

    async def test_files_written_by_commands_count_against_the_disk_limit(self, provider: BubblewrapProvider) -> None:
        limits = SandboxLimits(disk=8 * 1024**2)
        spec = SandboxSpec("large", filler({"packages/a/package.json": b"{}"}), self.SETUP, limits)
        async with opened(provider, spec) as sandbox:
            done = await sandbox.exec(["/bin/sh", "-c", "cat /dev/zero > packages/a/deps/large"], timeout=60)
        assert not done.ok
        assert b"take more than 8 MiB" in done.output

    async def test_without_overlays_a_sandbox_has_its_own_copy(
        self, provider: BubblewrapProvider, tmp_path: Path
    ) -> None:
        spec = SandboxSpec("built", filler({"packages/a/package.json": b"{}"}), self.SETUP)
        async with opened(provider, spec):
            machine = replace(await provider.survey(), overlays=False)
        layer = await ensure_layer(machine, spec, tmp_path / "caches", environment={})
        assert layer is not None
        for key in ("first", "second"):
            host_directory = HostDirectory(tmp_path / "copied", key, machine.owner)
            host_directory.prepare(spec.fill)
            layer.copy_to(host_directory)
            mounts = [Mount(host_directory.tree, WORKSPACE, writable=True), layer.mount]
            command = BubblewrapCommand(machine, mounts.copy, spec.limits, {}, host_directory.path / "changes")
            said = await command.exec(["/bin/sh", "-c", "cd packages/a/deps; cat d; echo x > d; touch new; cat d; ls"])
            assert said.output == b"dep\nx\nd\nnew\n"
            assert not (await command.exec(["/bin/sh", "-c", "touch /env/x"])).ok
            await command.close()
            host_directory.remove()

    async def test_a_link_above_the_mount_point_is_not_followed(
        self, provider: BubblewrapProvider, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        (outside / "a").mkdir(parents=True)
        files = {"packages/a/package.json": b"{}"}
        async with opened(provider, SandboxSpec("link", filler(files), self.SETUP)) as sandbox:
            for target in (f"/oldroot{outside}", str(outside), "/etc", "/proc/1/root"):
                await shell(sandbox, f"rm -rf old; mv packages old || mv -T packages old2; ln -sfn {target} packages")
                assert (await sandbox.exec(["/bin/true"])).ok
        assert sorted(path.name for path in outside.rglob("*")) == ["a"]

    async def test_a_link_in_the_base_commit_is_not_followed(
        self, provider: BubblewrapProvider, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        setup = SetupPlan(("rm -rf modules; mkdir modules; touch modules/m",), key="base-link")
        files = {"modules": str(outside).encode()}
        async with opened(provider, SandboxSpec("base", filler(files, {"modules": "120000"}), setup)) as sandbox:
            assert await shell(sandbox, "readlink modules") == f"{outside}\n"
        assert list(outside.iterdir()) == []

    async def test_set_up_commands_cannot_have_a_host_directory_moved(
        self, provider: BubblewrapProvider, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        (outside / "a" / "deps").mkdir(parents=True)
        setup = SetupPlan((f"rm -rf packages; ln -s {outside} packages",), key="mover")
        async with opened(provider, SandboxSpec("mover", filler({"packages/a/p": b""}), setup)) as sandbox:
            assert (await sandbox.exec(["/bin/true"])).ok
        assert (outside / "a" / "deps").is_dir()


class TestNetwork:
    @pytest.fixture
    def host(self) -> Iterator[dict[str, socket.socket]]:
        sockets = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "tcp6": socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
            "abstract": socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        }
        if socket.has_ipv6:
            try:
                sockets["tcp6"].bind(("::1", 0))
                sockets["tcp6"].listen()
            except OSError:
                pass  # this machine has no IPv6 loopback: then there is nothing to reach
        sockets["udp"].bind(("127.0.0.1", 0))
        sockets["abstract"].bind(f"\0agent-fix-{os.getpid()}")
        sockets["abstract"].listen()
        for one in sockets.values():
            one.setblocking(False)
        yield sockets
        for one in sockets.values():
            one.close()

    async def test_nothing_arrives_on_the_hosts_loopback(
        self, sandbox: Sandbox, host: dict[str, socket.socket]
    ) -> None:
        ports = {name: host[name].getsockname()[1] for name in ("tcp", "tcp6", "udp")}
        script = f"""
import socket
def attempt(what):
    try: what(); print("done")
    except OSError as error: print(error.errno)
attempt(lambda: socket.create_connection(("127.0.0.1", {ports["tcp"]}), 1))
attempt(lambda: socket.create_connection(("::1", {ports["tcp6"]}), 1))
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0agent-fix-{os.getpid()}"))
for _ in range(3): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {ports["udp"]}))
"""
        assert "done" not in await python(sandbox, script)
        for name in ("tcp", "abstract"):
            with pytest.raises(BlockingIOError):
                host[name].accept()
        with pytest.raises(BlockingIOError):
            host["udp"].recv(1)

    @pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1", "192.0.2.1", "255.255.255.255", "2001:db8::1"])
    async def test_no_address_is_reached(self, sandbox: Sandbox, address: str) -> None:
        script = f"import socket; socket.create_connection(({address!r}, 53), 2)"
        assert "OSError" in await python(sandbox, script) or "Error" in await python(sandbox, script)

    async def test_only_loopback_exists_and_no_name_resolves(self, sandbox: Sandbox) -> None:
        assert await python(sandbox, "import socket; print(socket.if_nameindex())") == "[(1, 'lo')]"
        assert "gaierror" in await python(sandbox, "import socket; socket.getaddrinfo('name.invalid', 80)")


class TestResources:
    async def test_a_fork_bomb_is_bounded_and_over(self, sandbox: Sandbox) -> None:
        bomb = "b() { b | b & }; b; sleep 300"
        done = await sandbox.exec(["/bin/bash", "-c", bomb], timeout=2)
        assert not done.ok
        grouped = make_cgroup(LIMITS)
        told = b"[the command reached the sandbox's limit of 64 processes]" in done.output
        assert told is (grouped is not None and grouped.remove())
        assert await shell(sandbox, "echo alive") == "alive\n"

    async def test_memory_is_bounded(self, sandbox: Sandbox) -> None:
        told = await python(sandbox, f"x = b'x' * {LIMITS.memory * 2}; print('held')")
        assert "held" not in told

    async def test_a_file_is_bounded(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["/bin/sh", "-c", "head -c 100000000 /dev/zero > large"])
        assert await shell(sandbox, "stat -c %s large") == f"{LIMITS.file_size}\n"

    async def test_no_core_dump_is_left(self, sandbox: Sandbox) -> None:
        await sandbox.exec(["/bin/sh", "-c", "ulimit -c unlimited 2>/dev/null; kill -SEGV $$"])
        assert await shell(sandbox, "ls") == "README.md\n"

    async def test_a_double_fork_does_not_outlive_the_command(self, sandbox: Sandbox, tmp_path: Path) -> None:
        mark = f"agent-fix-{os.getpid()}-outlives"
        script = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3): os.close(descriptor)
        os.execv("/bin/sleep", [{mark!r}, "300"])
    os._exit(0)
"""
        await python(sandbox, script)
        assert not _running(mark)


def _running(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


async def test_commands_ended_at_any_moment_of_their_start_leave_nothing(sandbox: Sandbox) -> None:
    """From before bwrap has made a process to after the command began, in steps of half a millisecond."""
    mark = f"agent-fix-{os.getpid()}-early"
    for step in range(60):
        await sandbox.exec(["/bin/sh", "-c", f"exec sleep 300 # {mark}"], timeout=step * 0.0005)
    assert _running(mark) == []


HASTY = """
import asyncio, sys
from pathlib import Path
from app.sandbox.base import SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.bubblewrap.provider import end_orphans

async def main():
    provider = BubblewrapProvider(Path(sys.argv[1]), caches=Path(sys.argv[2]))
    sandbox = await provider.open(SandboxSpec("hasty", lambda directory: None))
    print("begun", flush=True)
    while True:
        argv = ["/bin/sh", "-c", "exec sleep 300 # " + sys.argv[3]]
        await asyncio.gather(*(sandbox.exec(argv, timeout=0.02) for _ in range(3)))

asyncio.run(main())
"""


async def test_leftovers_of_a_killed_caller_are_ended_by_the_next(tmp_path: Path) -> None:
    """kill -9 at any moment, also before bwrap has tied its process 1 to itself."""
    mark = f"agent-fix-{os.getpid()}-hasty"
    places = (str(tmp_path / "jobs"), str(tmp_path / "caches"))
    for _ in range(6):
        caller = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HASTY, *places, mark),
            stdout=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert caller.stdout is not None
        assert await caller.stdout.readline() == b"begun\n"
        monitors, others = await asyncio.to_thread(_frozen, caller.pid)
        caller.kill()
        await caller.wait()
        for monitor in monitors:
            await _ended(monitor)
        await BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches").survey()
        for other in others:
            await _ended(other)
        for watch in (*monitors, *others):
            os.close(watch)
    assert _running(mark) == []


def _frozen(caller: int) -> tuple[list[int], list[int]]:
    """Stop a process in whatever it does; descriptors of its bwraps and of what is below those."""
    os.kill(caller, signal.SIGSTOP)
    children = Path(f"/proc/{caller}/task/{caller}/children")
    for _ in range(100_000):
        # A child that is no bwrap yet would become one that does not know that its caller is gone.
        if all(Path(f"/proc/{pid}/comm").read_text() == "bwrap\n" for pid in children.read_text().split()):
            break
        os.sched_yield()
    direct = {int(pid) for pid in children.read_text().split()}
    below = set(descendants(caller)) - direct
    return [os.pidfd_open(pid) for pid in direct], [os.pidfd_open(pid) for pid in below]


async def test_an_orphan_is_ended_and_a_running_sandbox_is_not(
    provider: BubblewrapProvider, sandbox: Sandbox, tmp_path: Path
) -> None:
    machine = await provider.survey()
    begun = asyncio.Event()
    running = asyncio.create_task(
        sandbox.exec(["/bin/sh", "-c", "echo; exec sleep 300"], timeout=300, on_output=lambda _: begun.set())
    )
    await begun.wait()
    reading, writing = os.pipe()
    words = [word for word in options(machine, [Mount(tmp_path, WORKSPACE)], {}) if word != "--die-with-parent"]
    told, telling = os.pipe()
    arguments = ["--json-status-fd", str(telling), "--block-fd", str(reading), "--sync-fd", str(writing), *words]
    listed = os.memfd_create("arguments")
    os.write(listed, b"".join(os.fsencode(word) + b"\0" for word in arguments))
    os.lseek(listed, 0, os.SEEK_SET)
    tail = within(machine, LIMITS, SandboxCommand(["/bin/true"]), variables={}, grouped=True)
    orphaning = await asyncio.create_subprocess_exec(
        *("bwrap", "--args", str(listed), "--", *tail),
        executable=machine.programs.bwrap,
        pass_fds=(listed, reading, writing, telling),
        env={},
    )
    line = await asyncio.to_thread(os.fdopen(told).readline)
    watch = os.pidfd_open(json.loads(line)["child-pid"])
    orphaning.kill()
    await orphaning.wait()
    assert end_orphans(machine) >= 1
    await _ended(watch)
    for descriptor in (reading, writing, telling, listed, watch):
        os.close(descriptor)
    assert not running.done()
    running.cancel()


LONELY = """
import asyncio, os, sys
from pathlib import Path
from app.sandbox.base import SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.bubblewrap.provider import end_orphans

async def main():
    provider = BubblewrapProvider(Path(sys.argv[1]), caches=Path(sys.argv[2]))
    sandbox = await provider.open(SandboxSpec("lonely", lambda directory: None))
    say = lambda chunk: print(chunk.decode(), end="", flush=True)
    await sandbox.exec(["/bin/sh", "-c", "setsid sleep 301 & echo begun; exec sleep 301"], timeout=300, on_output=say)

asyncio.run(main())
"""


async def test_killing_the_caller_kills_what_it_started(tmp_path: Path) -> None:
    """kill -9 of our own process in the middle of a command: nothing goes on running."""
    caller = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        LONELY,
        str(tmp_path / "jobs"),
        str(tmp_path / "caches"),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert caller.stdout is not None
    assert await caller.stdout.readline() == b"begun\n"
    inside = descendants(caller.pid)
    assert len(inside) >= 3
    watches = [os.pidfd_open(pid) for pid in inside]
    caller.kill()
    await caller.wait()
    for watch in watches:
        await _ended(watch)
        os.close(watch)


async def _ended(watch: int) -> None:
    """A descriptor of a process can be read when it has ended."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(watch, ended.set)
    try:
        async with asyncio.timeout(20):
            await ended.wait()
    finally:
        loop.remove_reader(watch)


async def test_a_sandbox_that_cannot_start_is_an_error_and_never_the_host(tmp_path: Path) -> None:
    """The private tree is gone: bwrap cannot bind it. No command may run anywhere."""
    provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
    sandbox = await provider.open(SandboxSpec("lost", filler(FILES)))
    (tmp_path / "jobs" / "lost").rename(tmp_path / "elsewhere")
    marker = tmp_path / "marker"
    with pytest.raises(SandboxError, match="could not be started") as caught:
        await sandbox.exec(["/usr/bin/touch", str(marker)])
    assert "doctor" in caught.value.hint
    assert not marker.exists()
