"""Background work never holds up an exit, and one who stops waiting does not stop it for the others."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.model.background import background

ROOT = str(Path(__file__).parent.parent)


def test_an_exit_does_not_wait() -> None:
    code = """
        import asyncio, sys, threading
        sys.path.insert(0, sys.argv[1])
        from app.model.background import background
        async def main():
            work = asyncio.wrap_future(background(threading.Event().wait, "endless"))
            await asyncio.wait([work], timeout=0)
        asyncio.run(main())
        print("gone")
    """
    assert _python(code).stdout == "gone\n"


def test_a_failure_is_told_and_nobody_hangs() -> None:
    code = """
        import asyncio, sys
        sys.path.insert(0, sys.argv[1])
        from app.model.background import background
        async def main():
            await asyncio.wrap_future(background(lambda: 1 / 0, "division"))
        asyncio.run(main())
    """
    done = _python(code)
    assert "ZeroDivisionError" in done.stderr
    assert "RuntimeError: division failed" in done.stderr
    assert done.returncode == 1


async def test_one_who_stops_waiting_stops_nobody_else() -> None:
    go = threading.Event()
    future = background(lambda: go.wait(60), "gate")
    first, second = (asyncio.ensure_future(asyncio.wrap_future(future)) for _ in range(2))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    assert await second is True


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
