"""srt: what it is told, by which program; and what its walls hold here, tried with the real one."""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import SandboxError, SetupError
from app.sandbox.base import WORKSPACE, Sandbox, SandboxLimits, SandboxSpec, SetupPlan
from app.sandbox.command import SandboxCommand
from app.sandbox.srt.checks import judge_essential, judge_reach
from app.sandbox.srt.install import INSTALL, PACKAGE, find_srt
from app.sandbox.srt.policy import Platform, SrtPrograms, SrtReach, script, settings, surroundings_of_srt
from app.sandbox.srt.provider import SrtProvider
from tests.support.sandbox_runtime import at_srt
from tests.support.sandboxes import filler, opened, shell

REACH = SrtReach(
    readable=["/usr", "/job/filled"],
    writable=["/job/tree"],
    writable_exceptions=["/job/tree/modules"],
    hidden=["/state"],
)
PROGRAMS = SrtPrograms(bwrap="/b/bwrap", socat="/b/socat", search="/b/true")
FILES = {"README.md": b"hello\n"}


class TestPolicy:
    @pytest.mark.parametrize("platform", ["linux", "darwin"])
    def test_nothing_is_reachable_and_nothing_weakened(self, platform: Platform) -> None:
        told: dict[str, Any] = settings(platform, REACH, PROGRAMS)
        assert told["network"] == {
            "allowedDomains": [],
            "deniedDomains": [],
            "strictAllowlist": True,
            "allowUnixSockets": [],
            "allowAllUnixSockets": False,
            "allowLocalBinding": False,
        }
        weaker = ("enableWeakerNestedSandbox", "enableWeakerNetworkIsolation", "allowAppleEvents")
        assert [told[name] for name in weaker] == [False] * 3
        assert told["filesystem"]["allowWrite"] == ["/job/tree"]
        assert "/job/tree/modules" in told["filesystem"]["denyWrite"]

    def test_linux_hides_all_that_is_not_named(self) -> None:
        told: dict[str, Any] = settings("linux", REACH, PROGRAMS)
        assert told["filesystem"]["denyRead"] == ["/", "/tmp/claude/*"]
        assert told["filesystem"]["allowRead"] == ["/usr", "/job/filled"]
        assert (told["bwrapPath"], told["socatPath"], told["ripgrep"]) == (
            "/b/bwrap",
            "/b/socat",
            {"command": "/b/true"},
        )

    def test_a_mac_hides_its_users_and_our_state(self) -> None:
        told: dict[str, Any] = settings("darwin", REACH, SrtPrograms())
        hidden = told["filesystem"]["denyRead"]
        assert {"/Users", "/Volumes", "/Library/Keychains", "/private/tmp", "/state"} <= set(hidden)
        assert "/" not in hidden
        assert "bwrapPath" not in told

    @pytest.mark.parametrize(("platform", "shared"), [("linux", "/tmp/claude"), ("darwin", "/private/tmp/claude")])
    def test_the_directory_that_srt_opens_to_everybody_is_closed(self, platform: Platform, shared: str) -> None:
        told: dict[str, Any] = settings(platform, REACH, PROGRAMS)
        assert f"{shared}/*" in told["filesystem"]["denyRead"]
        assert shared in told["filesystem"]["denyWrite"]

    def test_a_set_up_reaches_our_proxy_and_no_other(self) -> None:
        told: dict[str, Any] = settings("darwin", SrtReach([], [], port=4711), SrtPrograms())
        assert (told["network"]["httpProxyPort"], told["network"]["socksProxyPort"]) == (4711, 4711)
        assert told["network"]["allowedDomains"] == []

    def test_srt_itself_gets_nothing_of_the_commands_environment(self) -> None:
        assert surroundings_of_srt("/usr/bin", Path("/t"), {"MARK": "m"}) == {
            "PATH": "/usr/bin",
            "HOME": "/nonexistent",
            "TMPDIR": "/t",
            "LANG": "C.UTF-8",
            "MARK": "m",
        }


class TestScript:
    """What srt executes, executed by a shell without srt."""

    def executed(
        self, tmp_path: Path, command: SandboxCommand, platform: Platform = "darwin", *, proxied: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        program = tmp_path / "command.sh"
        program.write_bytes(script(platform, command, SandboxLimits(), tmp_path / "begun", proxied=proxied))
        environment = {"PATH": "/usr/bin:/bin", "FOREIGN": "x", "HTTP_PROXY": "http://localhost:1"}
        return subprocess.run(["/bin/sh", str(program)], env=environment, capture_output=True, text=True, check=False)

    @pytest.mark.parametrize("platform", ["linux", "darwin"])
    def test_only_its_own_environment(self, tmp_path: Path, platform: Platform) -> None:
        command = SandboxCommand(["/usr/bin/env"], env={"A": "$(id) 'x'", "PATH": "/usr/bin"}, cwd=str(tmp_path))
        done = self.executed(tmp_path, command, platform)
        assert done.stdout == "A=$(id) 'x'\nPATH=/usr/bin\n"
        assert (tmp_path / "begun").exists()

    def test_a_set_up_is_told_the_proxy(self, tmp_path: Path) -> None:
        done = self.executed(tmp_path, SandboxCommand(["/usr/bin/env"], cwd=str(tmp_path)), proxied=True)
        assert "HTTP_PROXY=http://localhost:1\n" in done.stdout
        assert "NO_PROXY=127.0.0.1,localhost\n" in done.stdout
        assert "FOREIGN" not in done.stdout

    def test_a_signal_is_told_as_shells_tell_it_and_nothing_else(self, tmp_path: Path) -> None:
        done = self.executed(tmp_path, SandboxCommand(["/bin/sh", "-c", "echo e >&2; kill -9 $$"], cwd=str(tmp_path)))
        assert (done.returncode, done.stdout, done.stderr) == (137, "", "e\n")

    def test_a_missing_directory_and_a_missing_program_are_said(self, tmp_path: Path) -> None:
        assert self.executed(tmp_path, SandboxCommand(["/bin/ls"], cwd="/nowhere")).returncode == 127
        done = self.executed(tmp_path, SandboxCommand(["no-such"], cwd=str(tmp_path), env={"A": "b"}))
        assert (done.returncode, "no-such" in done.stderr) == (127, True)


class TestFinding:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """A PATH with all that is needed but srt."""
        for name in ("node", "socat", "gfind"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        return tmp_path

    def install(self, place: Path, name: str = PACKAGE, version: str = "0.0.80") -> None:
        program = place / "lib" / "dist" / "cli.js"
        program.parent.mkdir(parents=True)
        program.write_text("")
        program.chmod(0o755)
        (place / "lib" / "package.json").write_text(json.dumps({"name": name, "version": version}))
        (place / "srt").symlink_to(program)

    def test_it_is_found_with_its_helper_for_system_calls(self, place: Path) -> None:
        self.install(place)
        found = find_srt({"PATH": str(place)}, "linux")
        assert found.version == "0.0.80"
        assert found.command == (str(place / "node"), str(place / "lib" / "dist" / "cli.js"))
        assert found.readable == (str(place / "lib" / "vendor" / "seccomp"), str(place / "socat"))

    def test_a_mac_needs_another_find(self, place: Path) -> None:
        self.install(place)
        assert find_srt({"PATH": str(place)}, "darwin").stand_ins == {"/usr/bin/find": str(place / "gfind")}
        (place / "gfind").unlink()
        with pytest.raises(SandboxError, match="gfind") as caught:
            find_srt({"PATH": str(place)}, "darwin")
        assert caught.value.hint == "brew install findutils"

    @pytest.mark.parametrize("missing", ["node", "socat", "srt"])
    def test_what_is_missing_is_said_with_its_repair(self, place: Path, missing: str) -> None:
        self.install(place)
        (place / missing).unlink()
        with pytest.raises(SandboxError, match=missing) as caught:
            find_srt({"PATH": str(place)}, "linux")
        assert "nstall" in caught.value.hint

    def test_another_program_of_that_name_is_not_used(self, place: Path) -> None:
        self.install(place, name="subtitles")
        with pytest.raises(SandboxError, match="not the one") as caught:
            find_srt({"PATH": str(place)}, "linux")
        assert caught.value.hint == INSTALL

    @pytest.mark.parametrize("version", ["0.0.77", "", "x"])
    def test_an_old_one_is_not_used(self, place: Path, version: str) -> None:
        self.install(place, version=version)
        with pytest.raises(SandboxError, match=r"older than 0\.0\.78"):
            find_srt({"PATH": str(place)}, "linux")

    def test_other_systems_have_other_sandboxes(self, place: Path) -> None:
        with pytest.raises(SandboxError, match="Linux and macOS"):
            find_srt({"PATH": str(place)}, "win32")


GOOD = "User: 1000\nCapInh: 0\nCapPrm: 0\nCapEff: 0\nCapAmb: 0\nNoNewPrivs: 1\nSeccomp: 2\nTree: writable\nDone: yes\n"
FACTS: dict[str, Any] = {
    "uid": 501,
    "status": {},
    "reached": ["udp"],
    "read": [],
    "processes": [],
    "environment": ["HOME", "AGENT_FIX_COMMAND"],
}


class TestJudging:
    def failed(self, text: str, heard: list[str] | None = None, left: list[str] | None = None) -> list[str]:
        return [one.name for one in judge_essential(text, heard or [], left or []) if not one.ok]

    def test_all_is_well(self) -> None:
        assert self.failed(GOOD) == []
        assert self.failed("User: 501\nTree: writable\nDone: yes\n") == []  # a Mac tells nothing of capabilities

    @pytest.mark.parametrize(
        ("line", "instead", "property_"),
        [
            ("User: 1000", "User: 0", "identity"),
            ("User: 1000\n", "", "identity"),
            ("CapEff: 0", "CapEff: 1ff", "capabilities"),
            ("CapPrm: 0\n", "", "capabilities"),
            ("NoNewPrivs: 1", "NoNewPrivs: 0", "no new privileges"),
            ("Seccomp: 2", "Seccomp: 0", "system call filter"),
            ("Tree: writable\n", "", "work tree"),
            ("Done: yes\n", "", "network"),
            ("Done: yes", "Done: yes\nReached: host tcp", "network"),
            ("Done: yes", "Done: yes\nRead: /etc/shadow", "host files"),
        ],
    )
    def test_each_property_is_seen_to_fail(self, line: str, instead: str, property_: str) -> None:
        assert self.failed(GOOD.replace(line, instead)) == [property_]

    def test_what_happened_outside_counts(self) -> None:
        assert self.failed(GOOD, heard=["host tcp"]) == ["network"]
        assert self.failed(GOOD, left=["/usr"]) == ["writing outside"]

    @pytest.mark.parametrize(
        ("change", "property_"),
        [
            ({"uid": 0}, "identity"),
            ({"reached": ["tcp"]}, "network"),
            ({"read": ["/root"]}, "host files"),
            ({"processes": [4]}, "processes"),
            ({"environment": ["OPENAI_API_KEY"]}, "environment"),
            ({"status": {"CapEff": "1"}}, "capabilities"),
        ],
    )
    def test_the_doctor_sees_each_fail(self, change: dict[str, Any], property_: str) -> None:
        assert [one.name for one in judge_reach(FACTS, [], []) if not one.ok] == []
        failed = [one for one in judge_reach(FACTS | change, [], []) if not one.ok]
        assert property_ in [one.name for one in failed]
        assert all(one.repair for one in failed)

    def test_the_doctor_believes_what_was_heard_and_left(self) -> None:
        assert [one.name for one in judge_reach(FACTS, ["host udp"], ["/usr"]) if not one.ok] == [
            "network",
            "writing outside",
        ]


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[SrtProvider]:
    with at_srt(tmp_path) as made:
        yield made


@pytest.fixture
async def sandbox(provider: SrtProvider) -> AsyncIterator[Sandbox]:
    async with opened(provider, SandboxSpec("job", filler(FILES))) as opening:
        yield opening


async def test_every_property_holds_and_nothing_of_the_doctor_stays(tmp_path: Path) -> None:
    """Also where the state is in the home directory, as it usually is."""
    with at_srt(tmp_path) as provider:
        found = await provider.check()
        assert [check for check in found if not check.ok] == []
        names = {check.name for check in found}
        assert list((tmp_path / "jobs").iterdir()) == []
    assert {"identity", "network", "host files", "writing outside", "time limit"} <= names


@pytest.fixture
def pretended() -> Iterator[SrtProvider]:
    """With a program that calls itself srt and only executes what it is given."""
    with tempfile.TemporaryDirectory(prefix="agent-fix-srt-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        TestFinding().install(place)
        for name, line in (("node", 'shift 4; exec "$@"'), ("socat", "")):
            (place / name).write_text(f"#!/bin/sh\n{line}\n")
            (place / name).chmod(0o755)
        yield SrtProvider(place / "jobs", environment={"PATH": f"{place}:/usr/bin:/bin"})


async def test_walls_are_tried_and_not_believed(pretended: SrtProvider) -> None:
    with pytest.raises(SandboxError, match=r"does not hold what it promises.*network.*host files") as caught:
        await pretended.open(SandboxSpec("job", filler(FILES)))
    assert "doctor" in caught.value.hint
    assert {"network", "host files", "processes"} <= {one.name for one in await pretended.check() if not one.ok}


class TestWalls:
    async def test_another_job_is_out_of_sight(self, provider: SrtProvider, tmp_path: Path) -> None:
        """Its path comes by stdin: as an argument it could be mapped to the job's own."""
        other = (tmp_path / "jobs").resolve() / "one" / "tree" / "README.md"
        script = "read -r file; (cat $file || echo unseen; echo x > $file) 2> /dev/null; true"
        async with (
            opened(provider, SandboxSpec("one", filler(FILES))) as one,
            opened(provider, SandboxSpec("two", filler(FILES))) as two,
        ):
            await shell(one, "chmod 666 README.md")
            done = [await each.exec(["/bin/sh", "-c", script], stdin=f"{other}\n".encode()) for each in (two, one)]
            assert [each.output for each in done] == [b"unseen\n", b"hello\n"]
            assert await shell(one, "cat README.md") == "x\n"

    async def test_no_unix_socket_can_be_made(self, sandbox: Sandbox) -> None:
        script = "import socket; socket.socket(socket.AF_UNIX)"
        done = await sandbox.exec(["/usr/bin/python3", "-I", "-c", script])
        assert b"Operation not permitted" in done.output or b"PermissionError" in done.output

    async def test_neither_srts_own_proxy_nor_the_loopback_leads_out(self, sandbox: Sandbox) -> None:
        heard = asyncio.Event()
        server = await asyncio.start_server(lambda _reader, _writer: heard.set(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ask = "exec 3<> /dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:%s HTTP/1.1\\r\\n\\r\\n' $1 >&3; head -1 <&3"
        async with server:
            done = await sandbox.exec(
                ["/bin/bash", "-c", f"(exec 4<> /dev/tcp/127.0.0.1/$1); {ask}", "bash", str(port)]
            )
        assert b" 200 " not in done.output
        assert not heard.is_set()

    async def test_variables_act_inside_only(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """NODE_OPTIONS of a command would otherwise be obeyed by srt's own Node, outside."""
        await shell(sandbox, 'echo \'require("fs").writeFileSync(process.env.HOME + "/caught", "")\' > evil.js')
        done = await sandbox.exec(
            ["/bin/sh", "-c", "echo $NODE_OPTIONS"], env={"NODE_OPTIONS": f"--require {WORKSPACE}/evil.js"}
        )
        assert done.output.decode().endswith("/tree/evil.js\n")
        assert not (tmp_path / "jobs" / "job" / "home" / "caught").exists()

    async def test_files_that_srt_would_guard_are_the_repositorys(self, sandbox: Sandbox) -> None:
        await shell(
            sandbox, "mkdir .vscode && echo x > .vscode/settings.json && echo y > .gitmodules && echo z > .bashrc"
        )
        assert await shell(sandbox, "ls -A") == ".bashrc\n.gitmodules\n.vscode\nREADME.md\n"


class TestSetUp:
    async def test_its_result_is_read_only_afterwards(self, provider: SrtProvider) -> None:
        setup = SetupPlan(("touch /env/made; mkdir modules; touch modules/m",), key="k", directories=("modules",))
        async with opened(provider, SandboxSpec("set-up", filler(FILES), setup)) as sandbox:
            said = await shell(sandbox, "ls /env modules; touch /env/x modules/x 2> /dev/null || echo closed")
            assert "made" in said
            assert said.endswith("closed\n")

    async def test_a_listed_host_is_reached_and_no_other(self, provider: SrtProvider) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\npackage")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = f"http://localhost:{server.sockets[0].getsockname()[1]}"
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read())"
        get = f'NO_PROXY= no_proxy= /usr/bin/python3 -c "{fetch}"'
        async with server:
            setup = SetupPlan((f"{get} {address}/x > /env/got",), key="k", hosts=(address,))
            async with opened(provider, SandboxSpec("reached", filler(FILES), setup)) as sandbox:
                assert await shell(sandbox, "cat /env/got") == "b'package'\n"
            refused = SetupPlan((f"{get} http://elsewhere.invalid/x",), key="r", hosts=(address,))
            with pytest.raises(SetupError, match=r"refused: elsewhere\.invalid"):
                await provider.open(SandboxSpec("refused", filler(FILES), refused))

    async def test_another_agent_is_refused(self, provider: SrtProvider, tmp_path: Path) -> None:
        with pytest.raises(SandboxError, match="no way to its model"):
            await provider.open(SandboxSpec("agent", filler(FILES), model_socket=tmp_path / "socket"))
        assert not (tmp_path / "jobs" / "agent").exists()
