"""A broken configuration gets one comment with line and key, and nothing is begun by an older one (R35)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.front_desk import FrontDesk, front_desk
from tests.test_config import BROKEN

TEXTS = [entry for entry in BROKEN if isinstance(entry[0], bytes)][:40]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


def test_there_are_forty() -> None:
    assert len(TEXTS) == 40


@pytest.mark.parametrize(("text", "line", "key", "words"), TEXTS, ids=lambda value: str(value)[:40])
async def test_each_is_told_once_with_line_and_key(
    desk: FrontDesk, text: bytes, line: int, key: str, words: str
) -> None:
    desk.world.push_as_human(desk.repo, "main", {".github/agent-fix.yml": text})
    await desk.labels()
    await desk.says("/agent fix it")
    assert desk.jobs() == []
    assert f".github/agent-fix.yml:{line}: {key}: " in desk.answer


async def test_the_last_good_one_is_not_used_silently(desk: FrontDesk) -> None:
    desk.configure("budget: {usd: 1}\n")
    await desk.labels()
    desk.books.queue.end(desk.job.job.id, "stopped", "")
    desk.configure("budget: {usd: many}\n")
    await desk.says("/agent fix it")
    assert len(desk.jobs()) == 1
    desk.configure("budget: {usd: 2}\n")
    await desk.says("/agent fix it")
    assert desk.jobs()[1].job.budget.usd == 2_000_000


async def test_another_fault_is_another_comment(desk: FrontDesk) -> None:
    for text in ("tset: make\n", "test: [1]\n"):
        desk.configure(text)
        await desk.says("/agent fix it")
        await desk.says("/agent fix it")
    assert len(desk.answers()) == 2


async def test_a_stop_and_the_state_need_no_configuration(desk: FrontDesk) -> None:
    await desk.labels()
    desk.configure("tset: make\n")
    await desk.says("/agent status")
    await desk.says("/agent stop")
    assert desk.job.row.state == "stopped"
    assert "waits for its turn" in desk.answer


async def test_strangers_are_not_told_of_a_broken_file(desk: FrontDesk) -> None:
    desk.configure("tset: make\n")
    await desk.says("/agent fix it", by=desk.person("stranger", "read"))
    assert desk.answers() == []
