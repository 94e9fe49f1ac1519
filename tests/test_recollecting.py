"""What an issue's last status comment says becomes a job again: living elsewhere, gone, or a plan to be approved."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.bootstrap.premises import Premises
from app.bootstrap.publishing import books_of, defaults_of
from app.forge.base import GIVEN
from app.forge.facts import CommentFacts
from app.forge.github.connection import Bearer, Host, RepositoryId
from app.forge.markers import marked
from app.job import JobState
from app.jobs.recalled import Recalled
from app.payload import read
from app.reception.doors import Doors
from app.reception.plans import status_address
from app.reception.recollecting import GONE, Recollecting, Recollection, rounds_in
from app.settings import settings_from
from tests.test_sweep import REPO, Site
from tests.test_told import comment

JOB = "j1abcdef"
ADDRESS = "https://github.example/ada/sample/issues/1#issuecomment-5"
ADA = {"id": 1, "login": "ada", "type": "User"}
BOT = {"id": 9, "login": "robot", "type": "User"}
STAMP = "2026-11-20T10:00:00Z"
REPOSITORY = {"id": 7, "name": "sample", "owner": {"login": "ada"}, "default_branch": "main", "private": True}


class Ground:
    """A fresh state directory, as each workflow has one, and an issue with these comments."""

    def __init__(self, place: Path, run: dict[str, Any] | None, *comments: dict[str, Any]) -> None:
        settings = settings_from({"AGENT_FIX_STATE_DIR": str(place), "AGENT_FIX_MODEL": "openai/m"})
        self.premises = Premises(settings)
        self.premises.prepare()
        answers: dict[str, Any] = {
            REPO: {**REPOSITORY, "archived": False},
            f"{REPO}/issues/1/comments": list(comments),
            f"{REPO}/git/ref/heads/main": {"ref": "refs/heads/main", "object": {"sha": "a" * 40}},
            "/user": BOT,
            "/users/robot": BOT,
            **({f"{REPO}/actions/runs/4711": run} if run else {}),
        }
        self.site = Site(answers)
        self.doors = Doors(Bearer(Host("http://api.example", "http://site.example"), "t0ken", transport=self.site))
        recalled = Recalled(self.premises.engine, self.premises.clock)
        self.recollecting = Recollecting(self.doors, books_of(self.premises), defaults_of(settings), recalled, run=4712)

    async def recollect(self) -> Recollection | None:
        issue = {"number": 1, "title": "t", "body": "b", "user": ADA, "labels": []}
        said = {"id": 8, "user": ADA, "body": "/agent approve", "created_at": STAMP}
        payload = {"action": "created", "issue": issue, "comment": said, "repository": REPOSITORY, "sender": ADA}
        event = read("issue_comment", {**payload, "installation": {"id": GIVEN}}).event
        assert event is not None
        assert event.kind == "commented"
        return await self.recollecting.recollect(event)


def by(user: dict[str, Any], text: str) -> dict[str, Any]:
    return {"id": 5, "user": user, "body": text, "created_at": STAMP, "updated_at": STAMP, "html_url": ADDRESS}


@pytest.mark.parametrize(
    ("run", "elsewhere", "state", "told"),
    [
        ({"id": 4711, "status": "in_progress"}, True, "working", "working"),
        ({"id": 4711, "status": "completed"}, False, "error", ""),
        (None, False, "error", ""),
    ],
)
async def test_work_is_where_its_run_is(
    tmp_path: Path, run: dict[str, Any] | None, elsewhere: bool, state: JobState, told: str
) -> None:
    ground = Ground(tmp_path, run, by(BOT, comment("working")))
    found = await ground.recollect()
    assert found is not None
    assert found.elsewhere == elsewhere
    each = ground.premises.roster.get(JOB)
    assert each is not None
    assert (each.row.state, each.told) == (state, told)
    assert (each.row.reason == GONE) == (state == "error")
    living = ground.premises.roster.living(7, 1)
    assert (living is not None) == elsewhere


async def test_a_plan_that_waits_can_be_approved(tmp_path: Path) -> None:
    ground = Ground(tmp_path, None, by(BOT, comment("awaiting_approval")))
    assert await ground.recollect() is not None
    each = ground.premises.roster.get(JOB)
    assert each is not None
    assert (each.row.state, each.commission.aim) == ("answered", "plan")
    assert (each.row.result or {})["plan"]["steps"][0] == "Round half up."
    assert status_address(JOB, books_of(ground.premises)) == ADDRESS, "so its editor is asked about"
    assert each.told == "answered", "nothing is said about it again"


@pytest.mark.parametrize(
    "comments",
    [
        (),
        (by(ADA, comment("awaiting_approval")),),
        (by(BOT, comment("awaiting_approval")), by(BOT, comment("pr_opened"))),
        (by(BOT, marked("### ⏸️ Paused", "j1/end")),),
    ],
)
async def test_nothing_else_is_recalled(tmp_path: Path, comments: tuple[dict[str, Any], ...]) -> None:
    """A copy by somebody else is theirs, and the newest of ours counts."""
    ground = Ground(tmp_path, None, *comments)
    assert await ground.recollect() is None
    assert ground.premises.store().newest(1) == ()


async def test_another_run_is_cancelled_where_that_is_allowed(tmp_path: Path) -> None:
    ground = Ground(tmp_path, {"id": 4711, "status": "in_progress"}, by(BOT, comment("working")))
    readers = ground.doors.to(GIVEN, RepositoryId(7, "ada", "sample"))
    assert not await ground.recollecting.cancel(readers, 4711)
    ground.site.answers[f"{REPO}/actions/runs/4711/cancel"] = {}
    assert await ground.recollecting.cancel(readers, 4711)
    assert ground.site.asked[-1] == httpx.URL(f"http://api.example{REPO}/actions/runs/4711/cancel")


def said(author: int, body: str) -> CommentFacts:
    return CommentFacts(
        id=1,
        author=author,
        author_name="x",
        bot=False,
        body=body,
        created_at=datetime(2026, 11, 22, tzinfo=UTC),
        url="",
    )


@pytest.mark.parametrize(
    ("conversation", "rounds"),
    [
        ([], 0),
        ([said(9, comment("pr_updated"))], 1),
        ([said(9, comment("pr_updated")), said(9, comment("paused"))], 2),
        ([said(1, "/agent fix it"), said(9, comment("pr_updated")), said(9, comment("pr_updated"))], 1),
        ([said(1, "Nice."), said(9, comment("pr_updated"))], 1),
        ([said(5, "/agent fix it"), said(9, comment("pr_updated"))], 1),
        ([said(1, comment("pr_updated")), said(9, "A word.")], 0),
    ],
    ids=["silence", "one", "two", "one was asked for", "chatter asks nothing", "a stranger's words", "not ours"],
)
def test_rounds_of_following_up_are_counted_from_the_conversation(
    conversation: list[CommentFacts], rounds: int
) -> None:
    assert rounds_in(conversation, us=9, heeded={1}) == rounds
