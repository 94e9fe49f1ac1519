"""E2B's own cloud, on request: AGENT_FIX_E2B_LIVE=1 and E2B_API_KEY. A machine costs a few cents."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.sandbox.base import ENV, SandboxSpec, SetupPlan
from app.sandbox.e2b.cloud import E2BAccount
from app.sandbox.e2b.provider import E2BProvider
from tests.support.sandboxes import filler, opened, shell

pytestmark = pytest.mark.skipif(
    not (os.environ.get("AGENT_FIX_E2B_LIVE") and os.environ.get("E2B_API_KEY")),
    reason="NOT TESTED: E2B's own cloud, which needs E2B_API_KEY and AGENT_FIX_E2B_LIVE=1",
)
FILES = {"README.md": b"hello\n"}


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[E2BProvider]:
    provider = E2BProvider(E2BAccount.from_environment(os.environ), scope=str(tmp_path), caches=tmp_path)
    yield provider
    await provider.sweep(lambda _: True)


async def test_the_doctor_finds_nothing(live: E2BProvider) -> None:
    checks = await live.check()
    assert all(check.ok for check in checks), checks


async def test_a_setup_is_stored_and_reused(live: E2BProvider) -> None:
    setup = SetupPlan((f"python3 -m venv {ENV}", "echo made > made"), key="live")
    first = await live.open(SandboxSpec("live.work", filler(FILES), setup))
    await shell(first, "cat made; echo changed > README.md")
    await first.close()
    async with opened(live, SandboxSpec("live.work", filler(FILES), setup)) as again:
        assert await shell(again, "cat README.md; command -v python3") == f"changed\n{ENV}/bin/python3\n"
    async with opened(live, SandboxSpec("live.base", filler(FILES), setup)) as other:
        assert await shell(other, "cat README.md made") == "hello\nmade\n"
