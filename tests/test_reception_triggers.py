"""Who asks for what, and what becomes of it: every trigger on issues, pull requests, lines and reviews."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.front_desk import FrontDesk, front_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def test_a_label_begins_a_job(desk: FrontDesk) -> None:
    await desk.labels()
    job, commission = desk.job.job, desk.job.commission
    assert (commission.aim, commission.goal, commission.trigger, commission.login) == (
        "fix",
        "new_branch",
        "issue",
        "ada",
    )
    assert (job.task.repository, job.task.issue.title) == ("ada/sample", desk.issue.title)
    assert (job.task.base, job.task.base_ref) == (desk.repo.branches["main"], "main")
    assert job.branch == "agent-fix/issue-1-totals-are-a-cent-too-low"
    assert (job.model, job.sandbox, job.plan_mode, job.aim) == ("scripted/one", "bubblewrap", "auto", "fix")
    assert job.task.requester is not None
    assert job.task.requester.name == "Ada Lovelace"
    assert commission.author.name == "agent-fix-test[bot]"
    assert desk.reactions() == [("issue", 1, "eyes")]
    assert desk.job.row.state == "queued"
    assert not desk.job.ready
