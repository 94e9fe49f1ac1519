"""The spare process: started before there is a job, given one as if just started for it, and never left over."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import Settings, settings_from
from app.core.errors import ExitCode
from app.jobs.process_owner import this_process
from app.jobs.queue import JobClaim
from app.server.standby import SOCKET, dismiss_spare, reached, spare_is_ready, start_spare
from app.server.standby_handover import start_in_spare
from app.server.standby_process import wait_for_job
from app.server.wiring.context import ServerContext
from app.server.worker import JobProcessHandle

NO_JOB = "j-of-nobody"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A recorded model needs no library; the path is longer than that of a socket may be."""
    state = tmp_path / ("a-very-long-name-" * 6) / "state"
    found = settings_from({"PATH": os.environ["PATH"], "AGENT_FIX_MODEL": "recorded/none"}, state)
    ServerContext(found).prepare()
    return found


@pytest.fixture
def spare(settings: Settings) -> Iterator[int]:
    """The id of one that was started."""
    pid = start_spare(settings.state, settings.environment)
    yield pid
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        """It has ended, and was seen to."""


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def otherwise(claim: JobClaim) -> JobProcessHandle:
    raise AssertionError(f"a new process was started for {claim.job}")


def claim(owner: str = "") -> JobClaim:
    return JobClaim(NO_JOB, 1, owner or this_process(), resumed=False)


async def test_it_is_given_a_job_and_says_how_that_ended(settings: Settings, spare: int) -> None:
    assert await spare_is_ready(settings.state)
    process = await start_in_spare(settings, otherwise)(claim())
    code = await process.wait()
    assert code in {ExitCode.BUSY, ExitCode.INTERNAL}, "there is no such job: whichever of its looks is first"
    assert process.returncode == code
    assert ended(spare) == code
    assert not (settings.state / SOCKET).exists()
    process.kill()  # and it is nobody else who has its number by now


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_it_is_ended_like_a_child(settings: Settings, spare: int, number: signal.Signals) -> None:
    """Stopped meanwhile, so that it cannot end by itself before it is told to."""
    assert await spare_is_ready(settings.state)
    os.kill(spare, signal.SIGSTOP)
    await asyncio.to_thread(os.waitpid, spare, os.WUNTRACED)
    process = await start_in_spare(settings, otherwise)(claim())
    process.terminate() if number == signal.SIGTERM else process.kill()
    os.kill(spare, signal.SIGCONT)
    assert await process.wait() == -signal.SIGKILL, "it said nothing"
    assert ended(spare) == -number


async def test_without_a_word_it_ends(settings: Settings, spare: int) -> None:
    dismiss_spare(settings.state)
    assert ended(spare) == 0
    assert not (settings.state / SOCKET).exists()


async def test_it_dies_with_whoever_gave_it_the_job(settings: Settings, spare: int) -> None:
    with reached(settings.state / SOCKET) as connection:
        connection.send(b"[")  # not even whole
    assert ended(spare) != 0


def test_one_who_comes_and_says_nothing_keeps_nobody(tmp_path: Path) -> None:
    """Nobody is connected to any more by then: a job that comes later gets a process of its own."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with reached(tmp_path / "s"):
            assert wait_for_job(listener, hearing=0.01) is None
    with pytest.raises(ConnectionRefusedError), reached(tmp_path / "s"):
        """Nobody listens."""


async def test_a_job_of_another_process_is_not_worked_on(settings: Settings, spare: int) -> None:
    process = await start_in_spare(settings, otherwise)(claim("elsewhere:1:2-3"))
    assert await process.wait() == -signal.SIGKILL
    assert ended(spare) == 0


async def test_where_none_is_there_a_process_is_started(settings: Settings) -> None:
    asked: list[str] = []

    async def start(of: JobClaim) -> JobProcessHandle:
        asked.append(of.job)
        raise ProcessLookupError

    with pytest.raises(ProcessLookupError):
        await start_in_spare(settings, start)(claim())
    assert asked == [NO_JOB]
    assert not await spare_is_ready(settings.state)
    dismiss_spare(settings.state)
