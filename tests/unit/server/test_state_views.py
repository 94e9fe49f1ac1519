"""Each state as every view shows it: comment, notification, Action, reply, page, list, API and terminal."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
import pytest_asyncio
import sqlalchemy as sa

from app.cli.result_screen import local_condition
from app.core.job import FINAL, WAITING, JobResult, JobState
from app.core.state_words import GROUP_NAMES, NEXT_STEP, WORDS, Condition
from app.github.base import ReactionTarget
from app.jobs.tables import job_contexts, jobs
from app.publish import replies
from app.publish.effects import AddReaction, ChangeLabels
from app.publish.status_text import render_status, seen, step_summary
from app.publish.status_updater import notification, status_effects
from tests.support.pull_requests import verification
from tests.support.server_jobs import job, job_context
from tests.support.web_client import WebClient, web_client
from tests.unit.publish.test_status_text import view

TABLE = """
condition            name                  group    you  label              reaction
queued               queued                waiting  -    agent-in-progress  -
planning             planning              active   -    agent-in-progress  -
awaiting_approval    waiting for approval  waiting  yes  agent-needs-human  -
plan_waits           waiting for approval  waiting  yes  agent-needs-human  -
plan_made            planned               done     -    agent-done         rocket
working              working               active   -    agent-in-progress  -
verifying            verifying             active   -    agent-in-progress  -
publishing           publishing            active   -    agent-in-progress  -
paused               paused                waiting  yes  agent-needs-human  -
needs_input          has a question        waiting  yes  agent-needs-human  -
pr_opened            pull request opened   done     -    agent-done         rocket
pr_updated           pull request updated  done     -    agent-done         rocket
branch_made          branch made           done     -    agent-done         rocket
broken_draft         draft is broken       ended    -    agent-needs-human  confused
answered             answered              done     -    agent-done         rocket
already_works        already works         done     -    agent-done         rocket
reproduced           reproduced            done     -    agent-done         rocket
not_reproduced       not reproduced        done     -    -                  confused
verified             verified              done     -    agent-done         rocket
no_change            no change             done     -    -                  confused
verification_failed  verification failed   ended    -    agent-needs-human  confused
limit_reached        limit reached         ended    -    agent-needs-human  confused
stopped              stopped               ended    -    -                  -
no_access            no access             ended    -    agent-needs-human  confused
error                failed                ended    -    agent-needs-human  confused
"""


class Row(NamedTuple):
    """What people must be told about one condition."""

    condition: Condition
    name: str
    group: str
    you: str
    label: str
    reaction: str


def rows() -> dict[str, Row]:
    head, *lines = TABLE.strip().splitlines()
    at = [head.index(word) for word in head.split()]
    cells = [[line[begin:end].strip() for begin, end in zip(at, [*at[1:], None], strict=True)] for line in lines]
    return {each[0]: Row(*each) for each in cells}  # type: ignore[arg-type]  # the first is a condition, as tested


ROWS = rows()
ON_GITHUB = [row for row in ROWS.values() if row.condition not in {"plan_made", "branch_made"}]
"""What can become of a job that was asked for on GitHub, when it is told."""


def stored(condition: Condition) -> tuple[JobState, str]:
    """The state of the row, and its job's plan mode."""
    special: dict[Condition, JobState] = {
        "plan_waits": "answered",
        "plan_made": "answered",
        "branch_made": "pr_opened",
        "broken_draft": "pr_opened",
    }
    state = special.get(condition, condition)
    return state, "only" if condition in {"plan_waits", "plan_made"} else "auto"  # type: ignore[return-value]


def test_table_has_every_state() -> None:
    assert list(ROWS) == list(WORDS)
    assert set(get_args(JobState)) < set(ROWS)
    assert {row.group for row in ROWS.values()} == set(GROUP_NAMES)
    assert {name for name, row in ROWS.items() if row.you == "yes"} == set(NEXT_STEP) == {*WAITING, "plan_waits"}


@pytest.mark.parametrize("row", ON_GITHUB, ids=lambda row: row.condition)
def test_github_shows_it(row: Row) -> None:
    """Comment, notification, the Action's summary, the reply to `/agent status`, label and reaction."""
    state, mode = stored(row.condition)
    of, words = job("j1", plan_mode=mode), WORDS[row.condition]
    verdict = "broken" if row.condition == "broken_draft" else "proved"
    result = JobResult(exit_status=state, verification=verification(verdict=verdict))
    where = job_context(aim="plan" if mode == "only" else "fix", trigger="issue")
    shown = view(state, of=of, where=where, result=result)
    assert render_status(shown).startswith(f"### {words.headline}\n")
    assert notification(shown, "webhook").title.startswith(f"{words.headline}: ")
    assert step_summary(of, state, "", result).startswith(f"## {words.headline}\n")
    assert replies.status("j1", seen(of, state, result)) == f"Job `j1` {words.sentence}.\n"
    effects = list(status_effects(shown, "queued" if state != "queued" else "working"))
    (label,) = (each for each in effects if isinstance(each, ChangeLabels))
    assert ", ".join(label.add) == row.label.strip("-")
    target = ReactionTarget(kind="issue", id=of.task.issue.number or 0)
    reactions = [each.content for each in effects if isinstance(each, AddReaction) and each.target == target]
    assert reactions == ([] if row.reaction == "-" else [row.reaction])
    assert list(status_effects(replace(shown), state))[1:] == [], "nothing is told twice"


LINK = 'class="title" href="/jobs/seed13"'


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[WebClient]:
    async with web_client(tmp_path) as found:
        yield found


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.condition)
async def test_pages_and_api_show_it(here: WebClient, row: Row) -> None:
    await set_to(here, row.condition)
    answer = (await here.client.get("/api/jobs/seed13")).json()
    assert (answer["status"], answer["group"], answer["needs_you"]) == (row.name, row.group, row.you == "yes")
    kind = WORDS[row.condition].kind
    assert f'class="badge {kind}">{row.name}</span>' in await here.page("/jobs/seed13")
    for query in (f"state={row.group}", f"state={row.condition}"):
        assert LINK in await here.page(f"/?{query}")
    for group in set(GROUP_NAMES) - {row.group}:
        assert LINK not in await here.page(f"/?state={group}")
        listed = (await here.client.get(f"/api/jobs?state={group}")).json()["jobs"]
        assert "seed13" not in {each["id"] for each in listed}
    if row.you == "yes":
        first = (await here.page("/")).split('class="title"')[1:6]
        assert any("/jobs/seed13" in each for each in first), "it comes before all that nobody has to decide about"
        assert NEXT_STEP[row.condition].partition("`")[0] in await here.page("/jobs/seed13")


async def set_to(here: WebClient, condition: Condition) -> None:
    """Make the seeded job look like this."""
    state, mode = stored(condition)
    mine = jobs.c.id == "seed13"
    with here.engine.begin() as db:
        found = db.execute(jobs.select().where(mine)).mappings().one()
        context = db.execute(job_contexts.select().where(job_contexts.c.job == "seed13")).mappings().one()["context"]
        result = {**found["result"], "url": "" if condition == "branch_made" else "https://github.com/x/y/pull/1"}
        verdict = "broken" if condition == "broken_draft" else "proved"
        of = {**found["job"], "plan_mode": mode}
        values = {"state": state, "job": of, "result": result, "verdict": verdict, "reason": "Because."}
        db.execute(jobs.update().where(mine).values(values))
        aim = "plan" if condition == "plan_waits" else "fix"
        changed = {"context": {**context, "aim": aim}}
        db.execute(job_contexts.update().where(job_contexts.c.job == "seed13").values(changed))
        assert db.execute(sa.select(jobs.c.state).where(mine)).scalar_one() == state


@pytest.mark.parametrize("state", get_args(JobState))
def test_terminal_shows_it(state: JobState) -> None:
    assert local_condition(job("j1"), state) == ("branch_made" if state in {"pr_opened", "pr_updated"} else state)
    assert local_condition(job("j1", plan_mode="only"), "answered") == "plan_made"
    assert state not in FINAL or WORDS[local_condition(job("j1"), state)].group != "active"
