"""One lifecycle that every sandbox passes, whatever it is made of.

To let another kind join: add it to PROVIDERS, with `isolated` telling whether it keeps the host out.
"""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

from app.core.errors import LostSandboxError, SandboxError, SetupError
from app.sandbox.base import (
    BASE_LISTING,
    ENV,
    HOME,
    WORKSPACE,
    Sandbox,
    SandboxLimits,
    SandboxProvider,
    SandboxSpec,
    SetupPlan,
)
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.changes import baseline, export
from app.sandbox.e2b.provider import E2BProvider
from app.sandbox.unsandboxed import UnsandboxedProvider
from tests.support.containers.engines import provided, shared
from tests.support.e2b.server import local_e2b
from tests.support.memory_tree import MemoryTree
from tests.support.process_tree import descendants
from tests.support.sandboxes import filler, opened, shell


@contextmanager
def at_e2b(directory: Path) -> Iterator[SandboxProvider]:
    """The real SDK against a local server; its machines are directories below `jobs`."""
    if os.geteuid():
        pytest.skip("a machine of the local E2B has two accounts, which only root can make")
    (directory / "jobs").mkdir()
    with local_e2b(directory / "jobs") as server:
        yield E2BProvider(server.account, scope=str(directory), caches=directory / "caches")


PROVIDERS: dict[str, Callable[[Path], AbstractContextManager[SandboxProvider]]] = {
    "bubblewrap": lambda directory: nullcontext(BubblewrapProvider(directory / "jobs", caches=directory / "caches")),
    "docker": partial(provided, "docker"),
    "e2b": at_e2b,
    "podman": partial(provided, "podman"),
    "none": lambda directory: nullcontext(UnsandboxedProvider(directory / "jobs")),
}
FILES = {"README.md": b"hello\n", "src/a.py": b"a = 1\n"}
SMALL = SandboxLimits(output=4096, cpus=1)
LARGE = SandboxLimits(output=1_000_000)


SLOW = [
    pytest.param("docker", marks=pytest.mark.xdist_group("docker")),
    pytest.param("podman", marks=[pytest.mark.xdist_group("podman"), pytest.mark.full]),
]
"""The slow ones. Those that take long to start have all their tests in one process."""


@pytest.fixture(params=[*sorted(PROVIDERS.keys() - {"docker", "podman"}), *SLOW])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SandboxProvider]:
    with PROVIDERS[str(request.param)](tmp_path) as made:
        yield made


@pytest.fixture
async def sandbox(provider: SandboxProvider) -> AsyncIterator[Sandbox]:
    spec = SandboxSpec("job-1", filler(FILES), limits=SMALL)
    if provider.name in {"docker", "podman"}:
        yield await shared(provider.name, spec)
        return
    async with opened(provider, spec) as opening:
        yield opening


class TestOpening:
    async def test_the_tree_is_the_work_directory(self, sandbox: Sandbox) -> None:
        assert sandbox.key == "job-1"
        assert await shell(sandbox, "cat README.md src/a.py") == "hello\na = 1\n"
        assert await shell(sandbox, f"cat {WORKSPACE}/README.md") == "hello\n"

    async def test_the_same_key_is_the_same_tree_as_it_was_left(self, provider: SandboxProvider) -> None:
        calls: list[Path] = []

        def fill(directory: Path) -> None:
            calls.append(directory)
            filler(FILES)(directory)

        first = await provider.open(SandboxSpec("again", fill))
        await shell(first, f"echo changed > README.md; echo t > /tmp/t; echo h > {HOME}/h")
        await first.close()
        async with opened(provider, SandboxSpec("again", fill)) as second:
            assert await shell(second, f"cat README.md /tmp/t {HOME}/h") == "changed\nt\nh\n"
        assert len(calls) == 1

    async def test_two_keys_do_not_see_each_other(self, provider: SandboxProvider) -> None:
        async with (
            opened(provider, SandboxSpec("one", filler(FILES))) as one,
            opened(provider, SandboxSpec("two", filler(FILES))) as two,
        ):
            await shell(one, "echo changed > README.md; echo x > /tmp/x")
            assert await shell(two, "cat README.md; ls /tmp") == "hello\n"

    async def test_a_fill_that_failed_is_done_again_from_nothing(self, provider: SandboxProvider) -> None:
        def interrupted(directory: Path) -> None:
            (directory / "half").write_text("half")
            raise KeyError("the disk fell out")

        with pytest.raises(KeyError):
            await provider.open(SandboxSpec("retried", interrupted))
        async with opened(provider, SandboxSpec("retried", filler(FILES))) as sandbox:
            assert await shell(sandbox, "ls") == "README.md\nsrc\n"

    async def test_after_destroy_the_key_is_new(self, provider: SandboxProvider, tmp_path: Path) -> None:
        first = await provider.open(SandboxSpec("gone", filler(FILES)))
        await shell(first, "echo changed > README.md; mkdir -p closed/inner; echo x > closed/inner/x; chmod 0 closed")
        await first.destroy()
        await first.destroy()
        assert not (tmp_path / "jobs" / "gone").exists()
        assert [path.name for path in (tmp_path / "jobs").iterdir()] == []
        async with opened(provider, SandboxSpec("gone", filler(FILES))) as second:
            assert await shell(second, "cat README.md; ls") == "hello\nREADME.md\nsrc\n"

    async def test_the_listing_names_every_file(self, sandbox: Sandbox) -> None:
        listed = await shell(sandbox, f"tr '\\0' '\\n' < {BASE_LISTING}")
        assert sorted(line.split(" ")[-1] for line in listed.splitlines()) == ["README.md", "src/a.py"]

    @pytest.mark.parametrize("key", ["", "../up", "a/b", ".hidden", "-x", "x" * 200, "new\nline"])
    async def test_a_key_is_a_plain_name(self, provider: SandboxProvider, key: str) -> None:
        with pytest.raises(SandboxError, match="key"):
            await provider.open(SandboxSpec(key, filler(FILES)))


class TestCommands:
    async def test_exit_code_and_output_woven_in_order(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/sh", "-c", "echo one; echo two >&2; echo three; exit 7"])
        assert (done.exit_code, done.output, done.stderr, done.ok) == (7, b"one\ntwo\nthree\n", b"", False)

    async def test_stderr_apart(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/sh", "-c", "echo one; echo two >&2"], separate_stderr=True)
        assert (done.output, done.stderr, done.ok) == (b"one\n", b"two\n", True)

    async def test_standard_input_of_any_size_and_none(self, sandbox: Sandbox) -> None:
        large = os.urandom(3_000_000)
        done = await sandbox.exec(["/usr/bin/sha256sum"], stdin=large)
        assert done.output.split()[0].decode() == hashlib.sha256(large).hexdigest()
        assert (await sandbox.exec(["/bin/cat"])).output == b""
        assert (await sandbox.exec(["/bin/true"], stdin=large)).ok  # one that does not read it

    async def test_a_directory_to_work_in(self, sandbox: Sandbox) -> None:
        assert (await sandbox.exec(["/bin/ls"], cwd=f"{WORKSPACE}/src")).output == b"a.py\n"
        assert (await sandbox.exec(["/bin/ls"], cwd="/nowhere")).exit_code in {125, 127}

    async def test_variables(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/sh", "-c", 'echo "$GREETING"'], env={"GREETING": "hello = $(id) 'x'\n"})
        assert done.output == b"hello = $(id) 'x'\n\n"

    async def test_arguments_arrive_as_they_are(self, sandbox: Sandbox) -> None:
        odd = ["a b", "", "$(id)", "*", "'\"", "ünïcode", "-n", "new\nline"]
        done = await sandbox.exec(["/usr/bin/printf", "[%s]", *odd])
        assert done.output.decode() == "".join(f"[{word}]" for word in odd)

    @pytest.mark.parametrize(
        "argv", [["/bin/echo", "nul\0byte"], ["/bin/echo", "\ud800"], ["/bin/echo", "x" * 3_000_000], []]
    )
    async def test_impossible_arguments_are_a_failed_command(self, sandbox: Sandbox, argv: list[str]) -> None:
        assert (await sandbox.exec(argv)).exit_code == 126
        assert (await sandbox.exec(["/bin/true"])).ok

    async def test_a_command_that_does_not_exist(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["no-such-program"])
        assert done.exit_code == 127
        assert b"no-such-program" in done.output

    async def test_a_killed_command_is_128_and_the_signal(self, sandbox: Sandbox) -> None:
        assert (await sandbox.exec(["/bin/sh", "-c", "kill -9 $$"])).exit_code == 137

    async def test_output_is_seen_as_it_comes(self, sandbox: Sandbox) -> None:
        seen = bytearray()
        done = await sandbox.exec(["/bin/sh", "-c", "echo out; echo err >&2"], on_output=seen.extend)
        assert bytes(seen) == done.output == b"out\nerr\n"

    async def test_a_listener_that_fails_ends_the_command(self, sandbox: Sandbox) -> None:
        def fail(_: bytes) -> None:
            raise KeyError("listener")

        with pytest.raises(KeyError):
            await sandbox.exec(["/bin/sh", "-c", "echo x; exec sleep 300"], timeout=300, on_output=fail)

    async def test_commands_side_by_side(self, sandbox: Sandbox) -> None:
        done = await asyncio.gather(*(sandbox.exec(["/bin/echo", str(number)]) for number in range(8)))
        assert [one.output for one in done] == [f"{number}\n".encode() for number in range(8)]

    async def test_tools_find_home_and_temporary_directory(self, sandbox: Sandbox) -> None:
        await shell(sandbox, 'cd "$HOME" && touch here && cd "$TMPDIR" && touch there')
        assert await shell(sandbox, f"ls {HOME} /tmp") != ""


class TestLimits:
    async def test_head_and_tail_of_long_output_stay(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/sh", "-c", "echo first; seq 100000; echo last"])
        whole = len("first\nlast\n") + len("".join(f"{number}\n" for number in range(1, 100_001)))
        assert len(done.output) == SMALL.output
        assert done.dropped == whole - SMALL.output
        assert done.output.startswith(b"first\n1\n")
        assert done.output.endswith(b"100000\nlast\n")

    async def test_a_command_has_as_many_processors_as_it_may(
        self, provider: SandboxProvider, sandbox: Sandbox
    ) -> None:
        if provider.name == "none":
            pytest.skip("without a sandbox there are no limits")
        assert await shell(sandbox, "nproc") == "1\n"

    async def test_200_megabytes_are_drained(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/usr/bin/head", "-c", "200000000", "/dev/zero"])
        assert done.ok
        assert done.dropped == 200_000_000 - SMALL.output

    async def test_endless_output_is_ended_and_reported(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/cat", "/dev/zero"], timeout=120)
        assert done.exit_code == 137
        assert not done.timed_out
        assert b"1 GiB of output" in done.output

    async def test_the_time_limit_ends_everything_it_started(self, provider: SandboxProvider, sandbox: Sandbox) -> None:
        beat = "while :; do echo x >> beat; done"
        script = f"touch beat; setsid sh -c '{beat}' & (setsid sh -c 'exec sleep 300' &) ; echo begun; exec sleep 300"
        done = await sandbox.exec(["/bin/sh", "-c", script], timeout=0.5)
        assert done.timed_out
        assert not done.ok
        assert done.exit_code == 137
        assert done.output == b"begun\n"
        assert await shell(sandbox, "stat -c %s beat") == await shell(sandbox, "stat -c %s beat")

    async def test_processes_left_by_a_command_are_ended(self, sandbox: Sandbox) -> None:
        beat = "while :; do echo x >> beat; done"
        script = f"touch beat; setsid sh -c '{beat}' > /dev/null 2>&1 & exit 3"
        assert (await sandbox.exec(["/bin/sh", "-c", script])).exit_code == 3
        assert await shell(sandbox, "stat -c %s beat") == await shell(sandbox, "stat -c %s beat")

    async def test_a_daemon_holding_the_output_open_does_not_block(self, sandbox: Sandbox) -> None:
        done = await sandbox.exec(["/bin/sh", "-c", "setsid sleep 300 & exit 0"], timeout=60)
        assert done.ok
        assert done.seconds < 60

    async def test_cancelling_ends_everything_it_started(self, sandbox: Sandbox) -> None:
        begun = asyncio.Event()
        beat = "touch beat; setsid sh -c 'while :; do echo x >> beat; done' & echo begun; exec sleep 300"
        running = asyncio.create_task(
            sandbox.exec(["/bin/sh", "-c", beat], timeout=300, on_output=lambda _: begun.set())
        )
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await shell(sandbox, "stat -c %s beat") == await shell(sandbox, "stat -c %s beat")

    async def test_closing_ends_what_runs_and_refuses_more(self, sandbox: Sandbox) -> None:
        begun = asyncio.Event()
        running = asyncio.create_task(
            sandbox.exec(["/bin/sh", "-c", "echo begun; exec sleep 300"], timeout=300, on_output=lambda _: begun.set())
        )
        await begun.wait()
        await sandbox.close()
        assert (await running).exit_code == 137
        with pytest.raises(SandboxError, match="closed"):
            await sandbox.exec(["/bin/true"])


ODD = (
    "sp ace/ in /front",
    "-rf",
    "quo'te\"s`",
    "$(id) ${HOME} %s",
    "back\\slash\\n",
    "new\nline",
    "tab\tand \x7f",
    "*?[a-z]{b,c}",
    "~",
    "#!",
    "ünï-e\u0301-日本-\U0001f40d",
    "caf\udce9",  # no UTF-8
    "x" * 255,
    f"{'deep/' * 200}down",
    "CON",
    "trailing. ",
)
READ_ODD = "find . -type f -exec sha256sum -z -- {} +"
MAKE_ODD = 'for name; do printf %s "$name" > "./$name.made"; cat "./$name.made"; done'


class TestFiles:
    async def test_odd_names_arrive_and_are_made(self, provider: SandboxProvider) -> None:
        contents = {name: os.fsencode(name) * 3 for name in ODD}
        async with opened(provider, SandboxSpec("odd", filler(contents), limits=LARGE)) as sandbox:
            done = await sandbox.exec(["/bin/bash", "-c", READ_ODD])
            assert _by_name(done.output) == {os.fsencode(name): _digest(text) for name, text in contents.items()}
            names = [name[:200] for name in ODD if "\udce9" not in name]
            made = await sandbox.exec(["/bin/sh", "-euc", MAKE_ODD, "sh", *names])
            assert made.ok, made
            assert made.output.decode() == "".join(names)

    @pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.full)])
    async def test_many_files_arrive_and_one_change_is_found(self, provider: SandboxProvider, count: int) -> None:
        files = {f"{number % 97}/{number}.txt": b"%d\n" % number for number in range(count)}
        base = baseline(MemoryTree(files))
        async with opened(provider, SandboxSpec("many", filler(files), limits=LARGE)) as sandbox:
            assert await shell(sandbox, "find . -type f | wc -l; cat 7/7.txt", timeout=120) == f"{count}\n7\n"
            await shell(sandbox, "echo x >> 7/7.txt; rm 8/8.txt; echo new > new")
            patch = await export(sandbox, base)
            told = {change.path: change.content for change in patch.changes}
            assert told == {"7/7.txt": b"7\nx\n", "8/8.txt": None, "new": b"new\n"}

    @pytest.mark.parametrize("megabytes", [5, pytest.param(50, marks=pytest.mark.full)])
    async def test_a_large_file_goes_in_and_comes_out(self, provider: SandboxProvider, megabytes: int) -> None:
        content = os.urandom(1_000_000) * megabytes
        async with opened(provider, SandboxSpec("large", filler({"large": content}), limits=LARGE)) as sandbox:
            assert (await shell(sandbox, "sha256sum large")).split()[0] == _digest(content)
            seen = hashlib.sha256()
            done = await sandbox.exec(["/bin/cat", "large"], timeout=300, on_output=seen.update)
            assert (seen.hexdigest(), done.dropped) == (_digest(content), len(content) - LARGE.output)
            entered = await sandbox.exec(["/usr/bin/sha256sum"], timeout=300, stdin=content)
            assert entered.output.split()[0].decode() == _digest(content)


class TestLosing:
    async def test_a_sandbox_lost_during_a_command_is_an_error(self, provider: SandboxProvider) -> None:
        sandbox = await provider.open(SandboxSpec("lost", filler(FILES)))
        before, begun = descendants(os.getpid()), asyncio.Event()
        running = asyncio.create_task(
            sandbox.exec(["/bin/sh", "-c", "echo begun; exec sleep 300"], timeout=300, on_output=lambda _: begun.set())
        )
        await begun.wait()
        for pid in set(descendants(os.getpid())).difference(before):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            done = await running
        except SandboxError:
            pass
        else:
            assert not done.ok
            assert done.output.startswith(b"begun\n")
        await sandbox.close()
        async with opened(provider, SandboxSpec("lost", filler(FILES))) as again:
            assert await shell(again, "cat README.md src/a.py") == "hello\na = 1\n"

    async def test_a_signal_to_all_processes_of_a_service_gives_no_result(self, tmp_path: Path) -> None:
        """As systemd does without `KillMode=mixed`."""
        provider = BubblewrapProvider(tmp_path / "jobs", caches=tmp_path / "caches")
        async with opened(provider, SandboxSpec("lost", filler(FILES))) as sandbox:
            before, begun = descendants(os.getpid()), asyncio.Event()
            running = asyncio.create_task(
                sandbox.exec(["sh", "-c", "echo begun; exec sleep 300"], on_output=lambda _: begun.set())
            )
            await begun.wait()
            for pid in descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if pid not in before else 0)
            with pytest.raises(LostSandboxError, match="ended by a signal"):
                await running


class TestSetup:
    async def test_installed_programs_come_first_on_the_path(self, provider: SandboxProvider) -> None:
        script = f"mkdir -p {ENV}/bin && printf '#!/bin/sh\\necho made\\n' > {ENV}/bin/tool && chmod +x {ENV}/bin/tool"
        setup = SetupPlan((script, "mkdir modules && cp README.md modules/m"), key="k")
        async with opened(provider, SandboxSpec("set-up", filler(FILES), setup)) as sandbox:
            assert await shell(sandbox, "tool; cat modules/m") == "made\nhello\n"

    async def test_commands_may_write_to_it_and_the_next_sandbox_has_it_as_it_was(
        self, provider: SandboxProvider
    ) -> None:
        setup = SetupPlan(("mkdir modules && echo made > modules/m",), key="written")
        write = "echo x > modules/m; mkdir modules/.cache; touch modules/.cache/c; mv modules/m modules/n; ls modules"
        for key in ("first", "second"):
            async with opened(provider, SandboxSpec(key, filler(FILES), setup)) as sandbox:
                assert await shell(sandbox, "ls -A modules; cat modules/m") == "m\nmade\n"
                assert await shell(sandbox, write) == "n\n"

    async def test_setup_variables_hold_in_every_command(self, provider: SandboxProvider) -> None:
        setup = SetupPlan((f"echo $WHERE > {ENV}/where",), key="v", environment=(("WHERE", f"{ENV}/x"),))
        async with opened(provider, SandboxSpec("variables", filler(FILES), setup)) as sandbox:
            assert await shell(sandbox, f'[ "$WHERE" = "$(cat {ENV}/where)" ] && echo same') == "same\n"

    async def test_a_failure_says_command_code_and_output(self, provider: SandboxProvider) -> None:
        setup = SetupPlan(("echo working", "echo broken pipe dream; exit 9"), key="f")
        said = bytearray()
        with pytest.raises(SetupError, match="exit code 9") as caught:
            await provider.open(SandboxSpec("fails", filler(FILES), setup), on_output=said.extend)
        assert "broken pipe dream" in caught.value.message
        assert b"working" in said

    async def test_package_clients_know_that_they_are_offline_afterwards(self, provider: SandboxProvider) -> None:
        setup = SetupPlan((f'echo "[$PIP_NO_INDEX]" > {ENV}/during',), key="o")
        async with opened(provider, SandboxSpec("offline", filler(FILES), setup)) as sandbox:
            assert await shell(sandbox, f'cat {ENV}/during; echo "[$PIP_NO_INDEX]"') == "[]\n[1]\n"


async def test_every_check_has_a_name_and_a_repair_where_it_fails(provider: SandboxProvider) -> None:
    checks = await provider.check()
    assert checks
    assert all(check.name and check.detail for check in checks)
    assert all(check.ok or check.repair for check in checks)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _by_name(listed: bytes) -> dict[bytes, str]:
    """What `sha256sum -z` says."""
    rows = (row.split(b"  ", 1) for row in listed.split(b"\0") if row)
    return {name.removeprefix(b"./"): digest.decode() for digest, name in rows}
