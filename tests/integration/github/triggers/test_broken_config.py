"""A broken configuration gets one comment with line and key, and no older one is used instead (R35)."""

import pytest

from tests.support.event_harness import EventHarness
from tests.unit.config.test_repository_config import BROKEN

TEXTS = [entry for entry in BROKEN if isinstance(entry[0], bytes)][:40]


def test_forty_broken_configurations_are_listed() -> None:
    assert len(TEXTS) == 40


@pytest.mark.parametrize(("text", "line", "key", "words"), TEXTS, ids=lambda value: str(value)[:40])
async def test_each_problem_is_reported_once_with_line_and_key(
    harness: EventHarness, text: bytes, line: int, key: str, words: str
) -> None:
    harness.world.push_as_human(harness.repo, "main", {".github/agent-fix.yml": text})
    await harness.labels()
    await harness.says("/agent fix it")
    assert harness.jobs() == []
    assert f".github/agent-fix.yml:{line}: {key}: " in harness.answer


async def test_the_last_good_one_is_not_used_silently(harness: EventHarness) -> None:
    harness.configure("budget: {usd: 1}\n")
    await harness.labels()
    harness.stores.queue.end(harness.job.job.id, "stopped", "")
    harness.configure("budget: {usd: many}\n")
    await harness.says("/agent fix it")
    assert len(harness.jobs()) == 1
    harness.configure("budget: {usd: 2}\n")
    await harness.says("/agent fix it")
    assert harness.jobs()[1].job.budget.usd == 2_000_000


async def test_another_fault_is_another_comment(harness: EventHarness) -> None:
    for text in ("tset: make\n", "test: [1]\n"):
        harness.configure(text)
        await harness.says("/agent fix it")
        await harness.says("/agent fix it")
    assert len(harness.answers()) == 2


async def test_a_stop_and_the_state_need_no_configuration(harness: EventHarness) -> None:
    await harness.labels()
    harness.configure("tset: make\n")
    await harness.says("/agent status")
    await harness.says("/agent stop")
    assert harness.job.row.state == "stopped"
    assert "is queued" in harness.answer


async def test_strangers_are_not_told_of_a_broken_file(harness: EventHarness) -> None:
    harness.configure("tset: make\n")
    await harness.says("/agent fix it", by=harness.person("stranger", "read"))
    assert harness.answers() == []
