"""The sweep: which issues are taken, in which order, up to which caps; and what it asks GitHub for that."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from app.cli import main, parser
from app.cli.sweep import swept_table
from app.config.settings import settings_from
from app.core.errors import ExitCode
from app.core.job import JobState
from app.github.base import GIVEN, CommentState, with_marker
from app.github.connection import GitHubHost, RepositoryId, TokenConnection
from app.github.models import GitHubIssue
from app.publish.status_text import render_status
from app.server.issue_sweep import AT_WORK, IssueSweep, SweepCandidate, SweepDecision, SweepLimits, priority, sweep
from app.triggers.github_clients import GitHubClients
from app.triggers.rules import LABEL
from tests.support.server_jobs import job
from tests.unit.publish.test_status_text import view

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
REPO = "/repos/ada/sample"


def issue(number: int, *labels: str, **changes: Any) -> GitHubIssue:
    values: dict[str, Any] = {
        "number": number,
        "title": f"Issue {number}",
        "body": "",
        "author": 1,
        "open": True,
        "locked": False,
        "labels": (LABEL, *labels),
        "assignees": (),
        "pull_request": False,
        "updated_at": NOW,
    }
    return GitHubIssue(**(values | changes))


def candidate(number: int, *labels: str, **changes: Any) -> SweepCandidate:
    return SweepCandidate(issue(number, *labels), **({"asker_may": True} | changes))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (candidate(1), ""),
        (SweepCandidate(issue(1, pull_request=True), asker_may=True), "pull request"),
        (SweepCandidate(issue(1, open=False), asker_may=True), "closed"),
        (SweepCandidate(issue(1, locked=True), asker_may=True), "locked"),
        (SweepCandidate(issue(1, labels=("bug",)), None), "does not have the label"),
        (candidate(1, pull_request=7), "#7 is open"),
        (candidate(1, branch="agent-fix/issue-1-x"), "agent-fix/issue-1-x already exists"),
        (candidate(1, "agent-needs-human"), "agent-needs-human"),
        (candidate(1, asker_may=None), "does not have the label"),
        (candidate(1, asker_may=False), "no write access"),
        (candidate(1, taken=True), "assigned to someone else"),
    ],
)
def test_each_is_left_alone_with_its_reason(found: SweepCandidate, reason: str) -> None:
    (row,) = sweep([found], SweepLimits(5), "oldest")
    assert (reason in row.reason) if reason else not row.reason


def test_the_caps_count_what_is_taken_only() -> None:
    found = [candidate(1, taken=True), *(candidate(number) for number in (2, 3, 4))]
    assert taken(found, SweepLimits(2)) == [2, 3]
    assert taken(found, SweepLimits(9, pull_requests=1)) == [2]
    assert taken(found, SweepLimits(9, 5, day=0)) == []
    reasons = [row.reason for row in sweep(found, SweepLimits(9, 1, 9), "oldest")]
    assert "max_open_pull_requests" in reasons[-1]


def taken(found: list[SweepCandidate], caps: SweepLimits) -> list[int]:
    return [row.number for row in sweep(found, caps, "oldest") if not row.reason]


def test_the_order() -> None:
    found = [candidate(9, "P1"), candidate(3), candidate(5, "priority: critical"), candidate(4, "priority/low")]
    orders = {
        order: [row.number for row in sweep(found, SweepLimits(9), order)] for order in ("oldest", "priority", "given")
    }
    assert orders == {"oldest": [3, 4, 5, 9], "priority": [5, 9, 3, 4], "given": [9, 3, 5, 4]}


@pytest.mark.parametrize(
    ("label", "rank"), [("p0", 0), ("Priority: High", 1), ("severity/3", 3), ("pixel", 2), ("p10", 2), ("help", 2)]
)
def test_a_priority_is_read_from_labels(label: str, rank: int) -> None:
    assert priority(("bug", label)) == rank


def test_other_peoples_titles_are_text_in_the_table() -> None:
    text = swept_table(
        (SweepDecision(1, "a | b\n::error::<img src=x> [x](http://evil.example)", ""), SweepDecision(2, "c", "closed"))
    )
    assert len(text.splitlines()) == 6
    assert "<img" not in text
    assert "[#1](http://site.example/ada/sample/issues/1)" in swept_table(
        (SweepDecision(1, "a"),), "http://site.example/ada/sample"
    )
    assert "x (`http://evil.example`)" in text, "no link, but code"


class Site(httpx.AsyncBaseTransport):
    """Answers by path."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[httpx.URL] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url)
        if request.url.path == "/graphql" and "/graphql" not in self.answers:
            nodes: dict[str, Any] = {"closedByPullRequestsReferences": {"nodes": []}}
            return httpx.Response(200, json={"data": {"repository": {"id": "R_7", "issue": nodes}}})
        found = self.answers.get(request.url.path)
        if request.url.params.get("labels") == AT_WORK:
            found = self.answers.get(AT_WORK, [])
        if found is None:
            return httpx.Response(404, json={"message": "Not Found"})
        return httpx.Response(200, content=found) if isinstance(found, bytes) else httpx.Response(200, json=found)


def raw_issue(number: int) -> dict[str, Any]:
    stamp = "2026-11-20T10:00:00Z"
    labels = [{"name": LABEL}]
    whole = {"number": number, "title": "t", "body": None, "state": "open", "labels": labels, "updated_at": stamp}
    return {**whole, "user": {"id": 1, "login": "ada"}, "assignees": [], "created_at": stamp}


def site(**more: Any) -> Site:
    ada = {"id": 1, "login": "ada", "type": "User"}
    put_on = {"event": "labeled", "actor": ada, "created_at": "2026-11-20T10:00:00Z", "label": {"name": LABEL}}
    answers: dict[str, Any] = {
        REPO: {},
        f"{REPO}/issues": [raw_issue(1), raw_issue(2)],
        "/search/issues": {"items": [raw_issue(2)]},
        f"{REPO}/issues/1/events": [put_on],
        f"{REPO}/issues/2/events": [put_on],
        f"{REPO}/git/matching-refs/heads/agent-fix/issue-1-": [],
        f"{REPO}/git/matching-refs/heads/agent-fix/issue-2-": [
            {"ref": "refs/heads/agent-fix/issue-2-t", "object": {"sha": "a" * 40}}
        ],
        "/user/1": ada,
        f"{REPO}/collaborators/ada/permission": {"permission": "write", "user": ada},
        "/user": {"id": 9, "login": "robot", "type": "User"},
        "/users/robot": {"id": 9, "login": "robot", "type": "User"},
    }
    return Site(answers | more)


def issue_sweep(at: Site) -> IssueSweep:
    bearer = TokenConnection(
        GitHubHost("http://api.example", "http://site.example"), "t0ken", transport=at, now=lambda: NOW
    )
    settings = settings_from({"AGENT_FIX_STATE_DIR": "/nowhere", "AGENT_FIX_BUDGET": "5"})
    return IssueSweep(GitHubClients(bearer), GIVEN, RepositoryId(7, "ada", "sample"), settings, None)


async def test_labelled_issues_are_looked_at() -> None:
    found = await issue_sweep(site()).candidates("")
    assert [(each.issue.number, each.asker_may, each.branch) for each in found] == [
        (1, True, ""),
        (2, True, "agent-fix/issue-2-t"),
    ]


def begun(*, by: int = 9, state: JobState = "working", run: int = 4711) -> dict[str, Any]:
    """A status comment as a workflow's run left it."""
    told = view(state, of=job("j1abcdef"), run=run)
    times = {"created_at": "2026-11-22T01:00:00Z", "updated_at": "2026-11-22T01:00:00Z"}
    body = with_marker(render_status(told), "j1abcdef", told.comment_state)
    return {"id": 5, "user": {"id": by, "login": "robot"}, "body": body, "html_url": "http://site.example/c", **times}


@pytest.mark.parametrize(
    ("comment", "run", "lost"),
    [
        (begun(), {"id": 4711, "status": "completed"}, True),
        (begun(), None, True),
        (begun(), {"id": 4711, "status": "in_progress"}, False),
        (begun(state="paused"), {"id": 4711, "status": "completed"}, False),
        (begun(by=1), {"id": 4711, "status": "completed"}, False),
        (begun(run=0), {"id": 4711, "status": "completed"}, False),
    ],
    ids=["over", "deleted", "at work", "paused", "somebody else's words", "a server's"],
)
async def test_work_whose_run_ended_without_a_word_is_found(
    comment: dict[str, Any], run: dict[str, Any] | None, lost: bool
) -> None:
    left = {AT_WORK: [raw_issue(5)], f"{REPO}/issues/5/comments": [comment], f"{REPO}/issues": []}
    at = site(**left, **({f"{REPO}/actions/runs/4711": run} if run else {}))
    rows = sweep(await issue_sweep(at).candidates(""), SweepLimits(0, pull_requests=0, day=0), "oldest")
    assert [(row.number, row.reason, row.ends) for row in rows] == ([(5, "", True)] if lost else [])
    assert ("ended without a report" in swept_table(rows)) == lost


async def test_a_search_stays_in_its_repository() -> None:
    at = site()
    await issue_sweep(at).candidates("label:bug sort:reactions-asc repo:evil/other user:x")
    asked = parse_qs(next(url for url in at.asked if url.path == "/search/issues").query.decode())
    assert asked["q"] == ["label:bug repo:ada/sample is:issue is:open"]
    assert (asked["sort"], asked["order"]) == (["reactions"], ["asc"])


PAUSED = CommentState(state="paused")


@pytest.mark.parametrize("below", ["", "\n\nThanks for the report."])
async def test_without_a_ledger_each_job_of_the_day_counts_in_full(below: str) -> None:
    """Also one whose comment somebody edited."""

    def said(job: str, hours: int) -> dict[str, Any]:
        at = f"{NOW - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
        times = {"created_at": at, "updated_at": at, "html_url": "http://site.example/c"}
        body = with_marker("### Paused", job, PAUSED) + below
        return {"id": 5, "user": {"id": 9, "login": "robot"}, "body": body, **times}

    config = b"budget: {usd: 2, usd_per_day: 7}\nmax_open_pull_requests: 3\n"
    comments = [said("j1abcdef", 2), said("j2abcdef", 30), {**said("j3abcdef", 1), "user": {"id": 1, "login": "ada"}}]
    path = f"{REPO}/contents/.github/agent-fix.yml"
    at = site(**{path: config, f"{REPO}/issues/comments": comments, f"{REPO}/pulls": []})
    assert await issue_sweep(at).caps(10) == SweepLimits(10, pull_requests=3, day=2)


@pytest.mark.parametrize("repo", ["ada", "ada/", "/x", "a/b/c"])
def test_a_repository_has_an_owner_and_a_name(repo: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", "--repo", repo])
    assert ended.value.code == ExitCode.USAGE
    assert "OWNER/NAME" in capsys.readouterr().err


def test_its_options() -> None:
    given = parser().parse_args(["sweep", "--repo", "a/b", "--query", "label:bug sort:reactions", "--max", "3"])
    assert (given.max, given.order, json.dumps(given.query)) == (3, None, '"label:bug sort:reactions"')
