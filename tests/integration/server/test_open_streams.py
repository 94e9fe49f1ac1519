"""An open event stream ends once its reader's key, session or rights are gone, over a real socket."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from app.jobs.accounts import ApiKeys, WebSessions
from app.server.web.sign_in import RIGHTS_LAST
from tests.integration.server.browser.dashboard import dashboard
from tests.support.clock import SettableClock
from tests.support.signed_in import github_people

JOB = "seed21"
"""In the first repository, and working: its stream would go on."""
SECONDS = 60


async def stream_until_ended(browser: httpx.AsyncClient, path: str, end: Callable[[], object]) -> httpx.Response:
    """Open a stream, call `end` after its first line, and read on until the server closes it."""
    async with asyncio.timeout(SECONDS), browser.stream("GET", path) as stream:
        assert stream.status_code == 200
        lines = stream.aiter_lines()
        await anext(lines)
        end()
        rest = [line async for line in lines]
    assert "event: end" not in rest
    return await browser.get(path)


async def test_a_stream_ends_with_its_key(tmp_path: Path) -> None:
    with dashboard(tmp_path) as here:
        keys = ApiKeys(here.receiving.engine, here.receiving.clock)
        key = keys.create("ci", ["read"])
        async with httpx.AsyncClient(base_url=here.address, headers={"authorization": f"Bearer {key}"}) as program:
            answer = await stream_until_ended(program, f"/api/jobs/{JOB}/events", lambda: keys.delete("ci"))
            assert answer.status_code == 401


@pytest.mark.parametrize(("lost", "status"), [("session", 401), ("rights", 404)])
async def test_a_stream_ends_with_its_session_or_rights(tmp_path: Path, lost: str, status: int) -> None:
    github = github_people(tmp_path)
    with dashboard(tmp_path, sign_in=github.client()) as here:
        github.world.sign_in.callbacks = {f"{here.address}/sign-in/done"}
        clock = here.receiving.clock
        assert isinstance(clock, SettableClock)
        async with httpx.AsyncClient(base_url=here.address) as browser:
            await github.sign_in(browser, "reader")

            def end() -> None:
                if lost == "session":
                    WebSessions(here.receiving.engine, clock).delete(browser.cookies["agent-fix-session"])
                else:
                    del github.repo.collaborators[github.people["reader"].id]
                    clock.now += RIGHTS_LAST

            assert (await stream_until_ended(browser, f"/jobs/{JOB}/events", end)).status_code == status
