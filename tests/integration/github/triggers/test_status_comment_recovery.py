"""A job is restored from an issue's last status comment: running elsewhere, lost, or with a plan to approve."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config.settings import settings_from
from app.core.job import JobState
from app.github.base import GIVEN, CommentState, with_marker
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.models import IssueComment
from app.jobs.context import JobAim
from app.jobs.store import RecoveredJobs
from app.publish.status_text import render_status
from app.server.context import ServerContext
from app.server.publisher import defaults_of
from app.triggers.events import read
from app.triggers.github_clients import GitHubClients
from app.triggers.handlers.base import status_address
from app.triggers.status_comment_recovery import ENDED_WITHOUT_REPORT, RecoveredStatus, StatusCommentRecovery, rounds_in
from tests.support.server_jobs import job, job_context
from tests.unit.publish.test_read_status import comment
from tests.unit.publish.test_status_text import view
from tests.unit.server.test_issue_sweep import REPO, Site

JOB = "j1abcdef"
ADDRESS = "https://github.example/ada/sample/issues/1#issuecomment-5"
ADA = {"id": 1, "login": "ada", "type": "User"}
BOT = {"id": 9, "login": "robot", "type": "User"}
STAMP = "2026-11-20T10:00:00Z"
REPOSITORY = {"id": 7, "name": "sample", "owner": {"login": "ada"}, "default_branch": "main", "private": True}


class RecoveryHarness:
    """A fresh state directory, as each workflow has one, and an issue with these comments."""

    def __init__(self, place: Path, run: dict[str, Any] | None, *comments: dict[str, Any]) -> None:
        settings = settings_from({"AGENT_FIX_STATE_DIR": str(place), "AGENT_FIX_MODEL": "openai/m"})
        self.server_context = ServerContext(settings)
        self.server_context.prepare()
        answers: dict[str, Any] = {
            REPO: {**REPOSITORY, "archived": False},
            f"{REPO}/issues/1/comments": list(comments),
            f"{REPO}/git/ref/heads/main": {"ref": "refs/heads/main", "object": {"sha": "a" * 40}},
            "/user": BOT,
            "/users/robot": BOT,
            **({f"{REPO}/actions/runs/4711": run} if run else {}),
        }
        self.site = Site(answers)
        self.clients = GitHubClients(
            TokenConnection(GitHubHost("http://api.example", "http://site.example"), "t0ken", transport=self.site)
        )
        recalled = RecoveredJobs(self.server_context.engine, self.server_context.clock)
        self.recollecting = StatusCommentRecovery(
            self.clients, self.server_context, defaults_of(settings), recalled, run=4712
        )

    async def recollect(self, text: str = "/agent approve") -> RecoveredStatus | None:
        issue = {"number": 1, "title": "t", "body": "b", "user": ADA, "labels": []}
        said = {"id": 8, "user": ADA, "body": text, "created_at": STAMP}
        payload = {"action": "created", "issue": issue, "comment": said, "repository": REPOSITORY, "sender": ADA}
        event = read("issue_comment", {**payload, "installation": {"id": GIVEN}})
        assert not isinstance(event, str)
        assert event.kind == "commented"
        return await self.recollecting.recover(event)


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
async def test_a_workflows_job_is_followed_in_its_run(
    tmp_path: Path, run: dict[str, Any] | None, elsewhere: bool, state: JobState, told: str
) -> None:
    fake_github = RecoveryHarness(tmp_path, run, by(BOT, comment("working")))
    found = await fake_github.recollect()
    assert found is not None
    assert found.elsewhere == elsewhere
    each = fake_github.server_context.job_queries.get(JOB)
    assert each is not None
    assert (each.row.state, each.posted_state) == (state, told)
    assert (each.row.reason == ENDED_WITHOUT_REPORT) == (state == "error")
    active = fake_github.server_context.job_queries.active(7, 1)
    assert (active is not None) == elsewhere


async def test_a_plan_that_waits_can_be_approved(tmp_path: Path) -> None:
    fake_github = RecoveryHarness(tmp_path, None, by(BOT, comment("awaiting_approval")))
    assert await fake_github.recollect() is not None
    each = fake_github.server_context.job_queries.get(JOB)
    assert each is not None
    assert (each.row.state, each.job_context.aim) == ("answered", "plan")
    assert (each.row.result or {})["plan"]["steps"][0] == "Round half up."
    assert status_address(JOB, fake_github.server_context) == ADDRESS, "so its editor is asked about"
    assert each.posted_state == "answered", "nothing is said about it again"


@pytest.mark.parametrize(("text", "aim"), [("/agent continue", "fix"), ("/agent retry", "ci")])
async def test_a_paused_job_is_only_started_again_as_it_was(tmp_path: Path, text: str, aim: JobAim) -> None:
    """What else its kind needs, such as what it merges, is not known any more."""
    posted = with_marker("### ⏸️ Paused", JOB, CommentState(state="paused", aim="ci"))
    fake_github = RecoveryHarness(tmp_path, None, by(BOT, posted))
    assert await fake_github.recollect(text) is not None
    each = fake_github.server_context.job_queries.get(JOB)
    assert each is not None
    assert each.job_context.aim == aim


@pytest.mark.parametrize("aim", ["plan", "conflicts", "ci", "fix_checks"])
async def test_an_ended_job_is_recalled_to_be_started_again_as_it_was(tmp_path: Path, aim: JobAim) -> None:
    failed = view("error", of=job(JOB), where=job_context(aim=aim))
    posted = with_marker(render_status(failed), JOB, failed.comment_state)
    fake_github = RecoveryHarness(tmp_path, None, by(BOT, posted))
    assert await fake_github.recollect("/agent status") is None
    assert await fake_github.recollect("/agent retry") is not None
    each = fake_github.server_context.job_queries.get(JOB)
    assert each is not None
    assert (each.row.state, each.job_context.aim) == ("error", aim)
    assert fake_github.server_context.job_queries.active(7, 1) is None
    assert each.job.task.request == ""


@pytest.mark.parametrize(
    "comments",
    [
        (),
        (by(ADA, comment("awaiting_approval")),),
        (by(BOT, comment("awaiting_approval")), by(BOT, comment("pr_opened"))),
        (by(BOT, with_marker("### ⏸️ Paused", "j1abcdef/end", CommentState(state="paused"))),),
    ],
)
async def test_nothing_else_is_recalled(tmp_path: Path, comments: tuple[dict[str, Any], ...]) -> None:
    """A copy by somebody else is theirs, and the newest of ours counts."""
    fake_github = RecoveryHarness(tmp_path, None, *comments)
    assert await fake_github.recollect() is None
    assert fake_github.server_context.job_store().newest(1) == ()


@pytest.mark.parametrize(
    ("editor", "permission", "recalled"),
    [(ADA, "write", True), (ADA, "read", False), (BOT, "write", False), (None, "write", False)],
    ids=["a maintainer", "a stranger", "another workflow", "nobody"],
)
async def test_a_comment_with_words_below_counts_if_a_maintainer_added_them(
    tmp_path: Path, editor: dict[str, Any] | None, permission: str, recalled: bool
) -> None:
    """All workflows post from one account, perhaps what a stranger wrote."""
    text = comment("awaiting_approval") + "\n\nThanks for the report."
    fake_github = RecoveryHarness(tmp_path, None, by(BOT, text))
    who = editor and {"login": editor["login"], "databaseId": editor["id"]}
    node = {"__typename": "IssueComment", "body": text, "lastEditedAt": STAMP if who else None, "editor": who}
    fake_github.site.answers |= {
        "/graphql": {"data": {"node": node}},
        "/user/1": ADA,
        "/user/9": BOT,
        f"{REPO}/collaborators/ada/permission": {"permission": permission, "user": ADA},
        f"{REPO}/collaborators/robot/permission": {"permission": "write", "user": BOT},
    }
    assert (await fake_github.recollect() is not None) == recalled


async def test_another_run_is_cancelled_where_that_is_allowed(tmp_path: Path) -> None:
    fake_github = RecoveryHarness(tmp_path, {"id": 4711, "status": "in_progress"}, by(BOT, comment("working")))
    readers = fake_github.clients.for_repository(GIVEN, RepositoryId(7, "ada", "sample"))
    assert not await fake_github.recollecting.cancel(readers, 4711)
    fake_github.site.answers[f"{REPO}/actions/runs/4711/cancel"] = {}
    assert await fake_github.recollecting.cancel(readers, 4711)
    assert fake_github.site.asked[-1] == httpx.URL(f"http://api.example{REPO}/actions/runs/4711/cancel")


def said(author: int, body: str) -> IssueComment:
    return IssueComment(
        id=1,
        author=author,
        author_name="x",
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
        ([said(9, f"{comment('pr_updated')}\n\nThanks."), said(9, comment("paused"))], 2),
        ([said(1, "/agent fix it"), said(9, comment("pr_updated")), said(9, comment("pr_updated"))], 1),
        ([said(1, "Nice."), said(9, comment("pr_updated"))], 1),
        ([said(5, "/agent fix it"), said(9, comment("pr_updated"))], 1),
        ([said(1, comment("pr_updated")), said(9, "A word.")], 0),
    ],
    ids=[
        "silence",
        "one",
        "two",
        "one was edited",
        "one was asked for",
        "chatter asks nothing",
        "a stranger's words",
        "not ours",
    ],
)
def test_rounds_of_following_up_are_counted_from_the_conversation(
    conversation: list[IssueComment], rounds: int
) -> None:
    assert rounds_in(conversation, bot_id=9, authorised={1}) == rounds
