"""Background work never holds up an exit, and one who stops waiting does not stop it for the others."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.llm.ledger import run_or_undo
from app.llm.litellm import background

ROOT = str(Path(__file__).parents[3])


def test_exit_does_not_wait_for_background_work() -> None:
    code = """
        import asyncio, sys, threading
        sys.path.insert(0, sys.argv[1])
        from app.llm.litellm import background
        async def main():
            work = asyncio.wrap_future(background(threading.Event().wait, "endless"))
            await asyncio.wait([work], timeout=0)
        asyncio.run(main())
        print("gone")
    """
    assert _python(code).stdout == "gone\n"


def test_background_failure_is_raised_without_hanging() -> None:
    code = """
        import asyncio, sys
        sys.path.insert(0, sys.argv[1])
        from app.llm.litellm import background
        async def main():
            await asyncio.wrap_future(background(lambda: 1 / 0, "division"))
        asyncio.run(main())
    """
    done = _python(code)
    assert "ZeroDivisionError" in done.stderr
    assert "RuntimeError: division failed" in done.stderr
    assert done.returncode == 1


async def test_cancelled_waiter_does_not_cancel_others() -> None:
    go = threading.Event()
    future = background(lambda: go.wait(60), "gate")
    first, second = (asyncio.ensure_future(asyncio.wrap_future(future)) for _ in range(2))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    assert await second is True


@pytest.mark.parametrize("times", [1, 2])
async def test_result_for_a_cancelled_caller_is_undone(times: int) -> None:
    begun, go = threading.Event(), threading.Event()
    kept = ["nothing"]

    def work() -> str:
        begun.set()
        assert go.wait(60)
        kept.append("done")
        return "done"

    asked = asyncio.ensure_future(run_or_undo(work, kept.remove))
    await asyncio.to_thread(begun.wait, 60)
    for _ in range(times):
        asked.cancel()
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    await asyncio.gather(*others)
    assert kept == ["nothing"]


async def test_failure_after_a_cancellation_is_ignored() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        assert go.wait(60)
        raise ValueError("late")

    undone: list[str] = []
    asked = asyncio.ensure_future(run_or_undo(work, undone.append))
    await asyncio.to_thread(begun.wait, 60)
    asked.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert undone == []


def _python(code: str) -> subprocess.CompletedProcess[str]:
    lines = [line[8:] for line in code.splitlines()]
    return subprocess.run(
        [sys.executable, "-I", "-c", "\n".join(lines), ROOT],
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
