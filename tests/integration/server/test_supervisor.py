"""The supervisor, over real processes that do next to nothing: kept alive, ended in order, dead when it is dead."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.errors import ExitCode
from app.server.supervisor import Backoff, RoleSpec, Supervisor

QUICK = Backoff(first_pause=0.01, longest_pause=0.04, grace=10.0)
PATH = {"PATH": os.environ["PATH"]}


def script(text: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", textwrap.dedent(text), *words)


def waiter(diary: Path, name: str, *, last_word: str = "sys.exit(0)") -> RoleSpec:
    """A role that writes down when it begins and when it is told to end."""
    text = f"""
        import os, signal, sys, time
        def write(word):
            with open(sys.argv[1], "a") as file:
                file.write(f"{name} {{word}} {{os.getpid()}}\\n")
        def told(*_):
            write("ends")
            {last_word}
        signal.signal(signal.SIGTERM, told)
        write("begins")
        while True:
            time.sleep(60)
        """
    return RoleSpec(name, script(text, str(diary)), PATH)


def lines(diary: Path) -> list[str]:
    return diary.read_text().splitlines() if diary.exists() else []


def words(diary: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in lines(diary)]


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def environment_of(pid: str) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0")
    return dict(pair.split("=", 1) for pair in pairs)


def works_in(pid: str, place: Path) -> bool:
    return Path(f"/proc/{pid}/cwd").samefile(place)


async def test_roles_are_ended_in_order_and_each_gets_its_own_environment(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    roles = [waiter(diary, name) for name in ("receiver", "worker", "publisher")]
    roles = [RoleSpec(spec.role, spec.command, {**PATH, "MINE": spec.role}) for spec in roles]
    supervisor = Supervisor(roles, tmp_path, QUICK)
    supervising = asyncio.create_task(supervisor.supervise())
    await until(lambda: len(lines(diary)) == 3)
    for line in lines(diary):
        role, _, pid = line.split()
        assert environment_of(pid) == {**PATH, "MINE": role}
        assert works_in(pid, tmp_path)
        assert os.getsid(int(pid)) == int(pid)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await supervising == ExitCode.OK
    assert sorted(words(diary)[3:]) == ["publisher ends", "receiver ends", "worker ends"]
    assert not any(alive(int(line.split()[2])) for line in lines(diary))


async def test_a_killed_role_is_restarted_and_the_others_continue(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    supervisor = Supervisor([waiter(diary, "receiver"), waiter(diary, "worker")], tmp_path, QUICK)
    supervising = asyncio.create_task(supervisor.supervise())
    await until(lambda: len(lines(diary)) == 2)
    for begun in (3, 4):
        last = next(line for line in reversed(lines(diary)) if line.startswith("worker"))
        os.kill(int(last.split()[2]), signal.SIGKILL)
        await until(lambda begun=begun: len(lines(diary)) == begun)  # type: ignore[misc]
    assert words(diary).count("receiver begins") == 1
    assert words(diary).count("worker begins") == 3
    supervisor.end()
    assert await supervising == ExitCode.OK


@pytest.mark.parametrize("code", [ExitCode.OUTPUT, ExitCode.SANDBOX])
async def test_a_role_that_exits_is_restarted(tmp_path: Path, code: ExitCode) -> None:
    diary = tmp_path / "diary"
    once = script(
        "import sys; open(sys.argv[1], 'a').write('x begins 0\\n'); sys.exit(int(sys.argv[2]))", str(diary), "0"
    )
    crash = (*once[:-1], str(int(code)))
    supervisor = Supervisor([RoleSpec("worker", once, PATH), RoleSpec("publisher", crash, PATH)], tmp_path, QUICK)
    supervising = asyncio.create_task(supervisor.supervise())
    await until(lambda: len(lines(diary)) >= 6)
    supervisor.end()
    assert await supervising == ExitCode.OK


@pytest.mark.parametrize("code", [ExitCode.USAGE, ExitCode.CONFIG])
async def test_a_misconfigured_role_ends_the_server_with_its_code(tmp_path: Path, code: ExitCode) -> None:
    diary = tmp_path / "diary"
    wrong = RoleSpec("publisher", script(f"raise SystemExit({int(code)})"), PATH)
    assert await Supervisor([waiter(diary, "receiver"), wrong], tmp_path, QUICK).supervise() == code
    assert not any(alive(int(line.split()[2])) for line in lines(diary))


async def test_a_role_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    start = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    supervisor = Supervisor([waiter(diary, "worker", last_word=start)], tmp_path, Backoff(grace=0.3))
    supervising = asyncio.create_task(supervisor.supervise())
    await until(lambda: len(lines(diary)) == 1)
    session = int(lines(diary)[0].split()[2])
    assert session in sessions()
    supervisor.end()
    assert await supervising == ExitCode.OK
    assert words(diary) == ["worker begins", "worker ends"]
    await until(lambda: session not in sessions())


def sessions() -> list[int]:
    """The sessions of everything that lives."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = place.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if state not in "ZX":
            found.append(int(session))
    return found


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    supervisor = Supervisor([waiter(diary, "worker", last_word="pass")], tmp_path, Backoff(grace=10_000.0))
    supervising = asyncio.create_task(supervisor.supervise())
    await until(lambda: len(lines(diary)) == 1)
    supervisor.end()
    await until(lambda: len(lines(diary)) == 2)
    supervisor.end()
    assert await supervising == ExitCode.OK
    assert not alive(int(lines(diary)[0].split()[2]))


PARENT = """
import asyncio, os, sys
from pathlib import Path
from app.server.supervisor import RoleSpec, Supervisor
child = "import os, time; open('diary', 'a').write(f'x begins {os.getpid()}\\\\n'); time.sleep(60)"
roles = [RoleSpec(role, (sys.executable, "-I", "-S", "-c", child), {}) for role in ("receiver", "worker")]
asyncio.run(Supervisor(roles, Path(sys.argv[1])).supervise())
"""


def supervising_process(place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PARENT, str(place)])


async def test_the_roles_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    parent = supervising_process(tmp_path)
    try:
        await until(lambda: len(lines(diary)) == 2)
        children = [int(line.split()[2]) for line in lines(diary)]
        assert all(map(alive, children))
    finally:
        parent.kill()
        parent.wait()
    await until(lambda: not any(map(alive, children)))


def test_pauses_double_up_to_a_limit_and_begin_anew_after_a_steady_while() -> None:
    backoff, pauses = Backoff(), [0.0]
    for _ in range(7):
        pauses.append(backoff.pause_after(pauses[-1], uptime=0.5))
    assert pauses[1:] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.pause_after(30.0, uptime=61.0) == 1.0
