"""Jobs that programs start and decide on through the API: stories over real processes, to the draft pull request."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import httpx
import pytest

from app.jobs.accounts import ApiKeys
from tests.support.conversation_model import ModelQuestion
from tests.support.e2e_server import E2ERepository, Story, chosen, run_stories, running_e2e_server
from tests.support.openai_endpoint import Reply, answer
from tests.support.sample_project import CHECK, FIX, ISSUE, ODD, Barrier, fixes

pytestmark = [pytest.mark.xdist_group("api"), pytest.mark.timeout(400)]
TOKEN = "a-web-token-for-stories"


@pytest.fixture(scope="module")
def story_results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, "Future[None]"]]:
    with (
        running_e2e_server(tmp_path_factory.mktemp("api"), AGENT_FIX_WEB_TOKEN=TOKEN) as e2e_server,
        run_stories(e2e_server, chosen(request, STORIES)) as told,
    ):
        yield told


class Program:
    """A program with a token."""

    def __init__(self, place: E2ERepository, token: str = TOKEN) -> None:
        self.place = place
        self.repository = f"ada/{place.repo.name}"
        self.url = f"{place.e2e_server.server.url}/api/jobs"
        self.client = httpx.Client(headers={"authorization": f"Bearer {token}"}, timeout=60)

    def reads(self, path: str, **query: str) -> httpx.Response:
        return self.client.get(f"{self.url}{path}", params=query)

    def sends(self, path: str, body: Any = None, *, status: int = 202, method: str = "POST") -> Any:
        response = self.client.request(method, f"{self.url}{path}", json=body)
        assert response.status_code == status, response.text
        return response.json()

    def sees(self, job: str, *states: str) -> Any:
        """The job, once it is in one of these states."""

        def found() -> Any:
            shown = self.reads(f"/{job}").json()
            return shown if shown["state"] in states else None

        return self.place.until(found, f"job {job} in {states}")


def commands(place: E2ERepository, token: str, *words: str) -> str:
    """What `agent-fix jobs --server URL` prints."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(place.repo.path), "AGENT_FIX_API_TOKEN": token}
    command = [sys.executable, "-I", "-m", "app", "jobs", "--server", place.e2e_server.server.url, *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def an_issue_becomes_a_draft_pull_request(place: E2ERepository) -> None:
    def think(asked: ModelQuestion) -> Reply:
        if asked.turn == 1 and not asked.wants_a_plan:
            edit = ("call-1", "edit", json.dumps(FIX))
            test = ("call-2", "write", json.dumps({"path": "test_money.py", "content": CHECK + ODD}))
            return answer("I will round up.", tools=[edit, test])
        return fixes(asked)

    place.model_answers(think)
    token = ApiKeys(place.e2e_server.server.server_context.engine, place.e2e_server.server.server_context.clock)
    key = token.create("ci", ["read", "write"])
    program = Program(place, key)
    job = commands(place, key, "start", f"{program.repository}#{place.issue.number}").strip()
    ended = program.sees(job, "pr_opened")
    assert (ended["verdict"], ended["number"], float(ended["cost"]) >= 0) == ("proved", place.issue.number, True)
    pull = place.pull()
    assert pull.pull is not None
    assert pull.pull.draft
    assert f"Fixes #{place.issue.number}" in pull.body
    place.until(lambda: {"eyes", "rocket"} <= place.reactions(place.issue), "the reactions")
    place.told("A draft pull request is open")
    events = program.reads(f"/{job}/events").text
    assert events.endswith("event: end\ndata: {}\n\n")
    lines = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: {")]
    assert "I will round up." in "".join(line["text"] for line in lines if line.get("kind") == "text")
    assert "(cents + 1) // 2" in program.reads(f"/{job}/patch").text
    assert program.reads(f"/{job}/trajectory").text.startswith("{")
    listed = program.reads("", repository=program.repository, verdict="proved").json()
    assert [each["id"] for each in listed["jobs"]] == [job]
    assert job in commands(place, key, "list")
    assert "money.py" in commands(place, key, "logs", "-f", job[:9])
    assert "pull request opened" in commands(place, key, "show", job)
    assert "(cents + 1) // 2" in commands(place, key, "show", "--patch", job)


def a_text_becomes_an_issue_whose_plan_is_edited_and_approved(place: E2ERepository) -> None:
    place.configure("plan: approve\n")
    place.model_answers(fixes)
    program = Program(place)
    text = f"half loses a cent\n\n{ISSUE}"
    job = program.sends("", {"repository": program.repository, "text": text})["id"]
    program.sees(job, "awaiting_approval")
    plan = program.sends(f"/{job}/plan", method="GET", status=200)
    assert (plan["version"], plan["who"]) == (1, "agent-fix")
    edited = {**plan["plan"], "steps": ["Add a failing test", "Round half a cent UP, never down"]}
    program.sends(f"/{job}/plan", {"version": 1, "plan": edited}, method="PUT", status=200)
    program.sends(f"/{job}/plan", {"version": 1, "plan": edited}, method="PUT", status=409)
    program.sends(f"/{job}/approve", {"version": 2})
    ended = program.sees(job, "pr_opened")
    (opened,) = [each for each in place.repo.issues.values() if each.user.id == place.world.bot.id and not each.pull]
    assert (opened.title, ended["number"]) == ("half loses a cent", opened.number)
    assert f"Fixes #{opened.number}" in place.pull().body
    work = [each for each in place.asked if not each.wants_a_plan]
    assert all(each.says("Round half a cent UP, never down") for each in work)


def a_search_becomes_a_job_for_each_issue(place: E2ERepository) -> None:
    place.configure("plan: approve\n")
    place.model_answers(fixes)
    world, ada = place.world, place.people.ada
    second, third = (world.open_issue(place.repo, ada, title, ISSUE) for title in ("Half again", "Half once more"))
    world.open_issue(place.repo, ada, "Not a bug", ISSUE)
    for issue in (place.issue, second, third):
        world.label(issue, ada, "bug")
    program = Program(place)
    search = ("--search", "label:bug sort:created-asc", "--limit", "2")
    batch = commands(place, TOKEN, "start", program.repository, *search).strip()
    reason = program.sees(batch, "answered")["reason"]
    assert reason == f"Requested 2 jobs: #1 ({batch}n1), #{second.number} ({batch}n{second.number})."
    planned = [program.sees(f"{batch}n{issue.number}", "awaiting_approval") for issue in (place.issue, second)]
    assert [each["number"] for each in planned] == [place.issue.number, second.number]
    program.sends(f"/{batch}n{second.number}/approve", {})
    program.sees(f"{batch}n{second.number}", "pr_opened")
    assert f"Fixes #{second.number}" in place.pull().body
    assert len(program.reads("", repository=program.repository).json()["jobs"]) == 3, "the batch and its two jobs"
    assert place.job(third) is None, "the limit was two"


def an_urgent_issue_comes_before_one_that_was_labelled_earlier(place: E2ERepository) -> None:
    barrier = Barrier()
    place.configure("plan: approve\n")

    def think(asked: ModelQuestion) -> Reply:
        barrier.pass_through()
        return fixes(asked)

    place.model_answers(think)
    world, ada = place.world, place.people.ada
    place.labels()
    place.until(barrier.is_reached, "the first job at work")
    ordinary, urgent = (world.open_issue(place.repo, ada, title, ISSUE) for title in ("Some day", "At once"))
    world.label(urgent, ada, "P0")
    for issue in (ordinary, urgent):
        place.labels(issue)
        place.until(lambda about=issue: (job := place.job(about)) and job.ready, f"a base for {issue.title}")  # type: ignore[misc]
    barrier.open()
    for issue in (urgent, ordinary):
        place.comes_to("awaiting_approval", issue=issue)
    planned = [asked for asked in place.asked if asked.wants_a_plan]
    assert [asked.says("At once") for asked in planned] == [False, True, False]


def what_cannot_be_started_ends_with_the_reason(place: E2ERepository) -> None:
    program = Program(place)
    unknown = program.sends("", {"repository": "nobody/nothing", "issue": 1})["id"]
    assert "not installed in nobody/nothing" in program.sees(unknown, "no_access")["reason"]
    missing = program.sends("", {"repository": program.repository, "issue": 4711})["id"]
    assert "no issue #4711" in program.sees(missing, "no_access")["reason"]
    assert place.pulls == []


STORIES: tuple[Story, ...] = (
    an_issue_becomes_a_draft_pull_request,
    a_text_becomes_an_issue_whose_plan_is_edited_and_approved,
    a_search_becomes_a_job_for_each_issue,
    an_urgent_issue_comes_before_one_that_was_labelled_earlier,
    what_cannot_be_started_ends_with_the_reason,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story_results: "dict[str, Future[None]]", story: Story) -> None:
    story_results[story.__name__].result()
