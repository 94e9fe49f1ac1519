"""The Action on a GitHub emulator by a third party: from an event file to a draft, in steps that share no key."""

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.job import new_job_id
from app.github.base import CommentState, read_marker, with_marker
from tests.chaos.test_rest_of_suite_kills import LONG
from tests.support.act_runner import ActResult, ActWorkflow
from tests.support.conversation_model import ConversationModel, ModelQuestion, planned
from tests.support.emulate.github import APP, EmulatedGitHub, Repository
from tests.support.emulate.person import Person
from tests.support.github.authentication import app_key
from tests.support.openai_endpoint import Reply, stall
from tests.support.repositories import git, make_repository
from tests.support.sample_project import ISSUE, MONEY, PROJECT, think

pytestmark = [pytest.mark.xdist_group("action"), pytest.mark.timeout(300)]

KEY = "sk-action-canary-51c09d77e2"


@pytest.fixture
def repository(github: EmulatedGitHub) -> Repository:
    return github.add_repository("", PROJECT)


class OnEnterpriseServer(ActWorkflow):
    """Where artifacts of the version that the Action uses are not supported (its README's limitations)."""

    def stand_in(self, name: str) -> str:
        return "exit 1" if name == "actions/upload-artifact" else super().stand_in(name)


class Runner:
    """GitHub's side of Actions for one repository: events become workflows, with a token of the job's permissions."""

    def __init__(self, github: EmulatedGitHub, repository: Repository, model: ConversationModel, place: Path) -> None:
        self.github = github
        self.repository = repository
        self.place = place
        self.model = model
        self.token = github.workflow_token(repository)
        self.keys = f"OPENAI_API_KEY={KEY}\nOPENAI_API_BASE={model.url}\n"

    def workflow(self, name: str = "first", *, kind: type[ActWorkflow] = ActWorkflow, **inputs: str) -> ActWorkflow:
        given = {"model": "openai/mind", "model-keys": "${{ secrets.MODEL_KEYS }}", **inputs}
        return kind(self.place / name, self.repository.full_name, given)

    def act(self, workflow: ActWorkflow, event: str, payload: Mapping[str, Any]) -> ActResult:
        return workflow.end(workflow.begin(event, payload, self.environment, self.secrets))

    @property
    def environment(self) -> dict[str, str]:
        return {"GITHUB_API_URL": self.github.api_url, "GITHUB_SERVER_URL": self.github.server_url}

    @property
    def secrets(self) -> dict[str, str]:
        return {"GITHUB_TOKEN": self.token, "MODEL_KEYS": self.keys, "APP_KEY": app_key()[0]}


@pytest.fixture
def runner(github: EmulatedGitHub, repository: Repository, model: ConversationModel, tmp_path: Path) -> Runner:
    return Runner(github, repository, model, tmp_path)


def labelled(github: EmulatedGitHub, repository: Repository) -> tuple[int, Mapping[str, Any]]:
    """An issue with our label, and the event that tells of it."""
    since = len(github.deliveries)
    ada = repository.as_user("ada")
    issue = ada.open_issue("half loses a cent", ISSUE)
    ada.label(issue, "agent-fix")
    return issue, github.delivered("issues", "labeled", since=since).payload


def said(github: EmulatedGitHub, since: int) -> Mapping[str, Any]:
    """The event that tells of the first comment after so many deliveries."""
    return github.delivered("issue_comment", "created", since=since).payload


def test_from_a_label_to_a_draft_with_proof(github: EmulatedGitHub, repository: Repository, runner: Runner) -> None:
    issue, event = labelled(github, repository)
    acted = runner.act(runner.workflow(), "issues", event)

    assert acted.code == 0, acted.log[-8_000:]
    site = repository.site
    (pull,) = site.pulls()
    assert pull.draft
    assert "| Reproduction" in pull.body
    assert "**Proved.**" in pull.body
    assert site.file("money.py", pull.branch) == MONEY.replace("cents // 2", "(cents + 1) // 2").encode()
    (status,) = site.comments(issue)
    assert "A draft pull request is open" in status.body
    assert "/actions/runs/1" in status.body
    assert read_marker(status.body) == (acted.outputs["job"], CommentState(state="pr_opened", run=1))
    assert "agent-done" in site.labels(issue)
    assert (github.bot, "rocket") in site.reactions(f"issues/{issue}")
    assert acted.outputs == {
        "pull-request": f"{github.server_url}/{repository.full_name}/pull/{pull.number}",
        "verdict": "proved",
        "exit-status": "pr_opened",
        "cost": acted.outputs["cost"],
        "job": acted.outputs["job"],
        "issues": "",
    }
    assert acted.outputs["job"] in status.body
    assert {path.name for path in acted.records} >= {"trajectory.jsonl", "job.json", "plan.md", "log.txt"}
    _no_step_holds_both(acted, runner.token)


def test_rest_of_a_long_suite_is_run_once_the_draft_is_open(
    github: EmulatedGitHub, model: ConversationModel, tmp_path: Path
) -> None:
    repository = github.add_repository("", {**PROJECT, **LONG})
    issue, event = labelled(github, repository)
    runner = Runner(github, repository, model, tmp_path)
    acted = runner.act(runner.workflow(), "issues", event)

    assert acted.code == 0, acted.log[-8_000:]
    (pull,) = repository.site.pulls()
    assert pull.draft
    assert "**Broken.**" in pull.body
    assert "checks.test_a_far.Far.test_three" in pull.body
    assert "still running" not in pull.body
    assert acted.outputs["verdict"] == "broken"
    assert acted.outputs["exit-status"] == "pr_opened"
    assert "agent-needs-human" in repository.site.labels(issue)
    (status,) = repository.site.comments(issue)
    assert "**Broken.**" in status.body
    assert runner.token not in acted.given("solve"), "the step that ran it, which was the last of that name"
    assert KEY not in acted.given("publish")


@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.full)])
def test_an_apps_token_that_ends_during_the_work(
    github: EmulatedGitHub, repository: Repository, tmp_path: Path, own: bool
) -> None:
    """As one does that a step before made, an hour later. The App itself makes another for the publishing step."""

    def an_hour_later(asked: ModelQuestion) -> Reply:
        for token in github.tokens:
            token.revoked = token.revoked or token.permissions is not None
        return think(asked)

    issue, event = labelled(github, repository)
    with ConversationModel(an_hour_later) as model:
        runner = Runner(github, repository, model, tmp_path)
        by_itself = {"app-id": str(APP["id"]), "private-key": "${{ secrets.APP_KEY }}"}
        acted = runner.act(runner.workflow(kind=ActWorkflow, **(by_itself if own else {})), "issues", event)
    if not own:
        assert acted.outputs["exit-status"] in {"no_access", "error"}, acted.log[-6_000:]
        assert "give the Action `app-id` and `private-key`" in acted.log
        assert "change.patch" in {path.name for path in acted.records}, "the work is kept"
        return
    assert acted.outputs["exit-status"] == "pr_opened", acted.log[-6_000:]
    (status,) = repository.site.comments(issue)
    assert status.author == github.bot
    assert not [call for call in github.calls if call.token and call.token.text == runner.token], "the App comes first"
    here = frozenset({repository.id})
    made = [token for token in github.tokens if token.repositories == here and token.text != runner.token]
    assert made
    assert all(token.revoked for token in made), "each step gives its own back"
    key = app_key()[0].splitlines()[5]
    with_key = {step for step in acted.environments if key in acted.given(step)}
    assert with_key == {"receive", "progress", "publish"}


def test_if_workflows_may_not_open_pull_requests_the_branch_is_kept(
    github: EmulatedGitHub, repository: Repository, runner: Runner, tmp_path: Path
) -> None:
    """The most common first run: the branch is there, a link opens its pull request, the record has change and text."""
    repository.memory.actions_may_open = False
    issue, event = labelled(github, repository)
    acted = runner.act(runner.workflow(), "issues", event)

    assert acted.outputs["exit-status"] == "no_access", acted.log[-8_000:]
    (status,) = repository.site.comments(issue)
    branch = next(name for name in repository.site.branches() if name != "main")
    assert f"{github.server_url}/{repository.full_name}/compare/main...{branch}?expand=1" in status.body
    assert f"`change.patch` in the workflow run's artifact `agent-fix-{acted.outputs['job']}`" in status.body
    assert "the organisation has turned it off" in status.body
    kept = {path.name: path for path in acted.records}
    assert "**Proved.**" in kept["pull-request.md"].read_text()
    theirs = make_repository(tmp_path / "theirs", PROJECT)
    git(theirs, "apply", "--index", str(kept["change.patch"]))
    assert (theirs / "money.py").read_bytes() == repository.site.file("money.py", branch)


def test_a_retry_that_starts_nothing_reports_no_job(
    github: EmulatedGitHub, repository: Repository, runner: Runner
) -> None:
    """The job that failed before is known only so that the same kind of job is started again."""
    ada, since = repository.as_user("ada"), len(github.deliveries)
    ada.push("agent-fix/issue-1-half", {"notes.txt": "new\n"})
    with httpx.Client(base_url=github.api_url, timeout=60.0) as client:
        bot = Person(client, runner.token, github.bot, repository.full_name)
        pull = bot.open_pull("agent-fix/issue-1-half", "Round half up")
        failed = CommentState(state="error", run=1, aim="conflicts")
        bot.comment(pull, with_marker("### 💥 The job failed", new_job_id(), failed))
    said(github, since)
    since = len(github.deliveries)
    ada.comment(pull, "/agent retry")
    acted = runner.act(runner.workflow(), "issue_comment", said(github, since))
    assert "already contains everything in `main`" in repository.site.comments(pull)[-1].body, acted.log[-6_000:]
    assert set(acted.environments) == {"receive"}
    assert (acted.code, acted.outputs["job"], acted.outputs["exit-status"]) == (0, "", "")


def _no_step_holds_both(acted: ActResult, token: str) -> None:
    """With what the runner started each step, before anything of ours could have dropped a part of it."""
    assert set(acted.environments) == {"receive", "progress", "solve", "publish"}
    for step in acted.environments:
        values = acted.given(step)
        assert (KEY in values) == (step == "solve"), f"the model's key and {step}"
        assert (token in values) == (step != "solve"), f"the token and {step}"
    kept = "".join(path.read_text(errors="replace") for path in acted.records)
    assert KEY not in kept + acted.log
    assert token not in kept + acted.log


def test_an_event_without_a_request_succeeds_without_calling_github(
    github: EmulatedGitHub, repository: Repository, runner: Runner
) -> None:
    ada = repository.as_user("ada")
    issue = ada.open_issue("half loses a cent", ISSUE)
    since, asked = len(github.deliveries), len(github.calls)
    ada.comment(issue, "I can see that too. ::set-output name=work::true")
    acted = runner.act(runner.workflow(), "issue_comment", said(github, since))
    assert acted.code == 0, acted.log[-4_000:]
    assert list(acted.environments) == ["receive"]
    assert [call for call in github.calls[asked:] if call.token and call.token.text == runner.token] == []


def test_the_bots_own_comment_and_a_strangers_start_nothing(
    github: EmulatedGitHub, repository: Repository, runner: Runner
) -> None:
    issue = repository.as_user("ada").open_issue("half loses a cent", ISSUE)
    since = len(github.deliveries)
    answer = httpx.post(
        f"{github.api_url}/repos/{repository.full_name}/issues/{issue}/comments",
        headers={"authorization": f"Bearer {runner.token}"},
        json={"body": "/agent fix"},
    )
    assert answer.status_code == 201
    own = runner.act(runner.workflow("own"), "issue_comment", said(github, since))
    since = len(github.deliveries)
    repository.as_user("rob").comment(issue, "/agent fix")
    payload = said(github, since)
    reader = runner.act(runner.workflow("reader"), "issue_comment", payload)
    for acted in (own, reader):
        assert acted.code == 0, acted.log[-4_000:]
        assert list(acted.environments) == ["receive"]
    assert len(repository.site.comments(issue)) == 2
    assert "own_doing" in own.log
    assert "no_access" in reader.log


def test_hostile_words_arrive_as_text(github: EmulatedGitHub, repository: Repository, runner: Runner) -> None:
    """A title, a branch and a comment that would be commands to a shell, to the runner or to an expression."""
    branch, tripped = "fix/$(id>tripped)`id`;${IFS}", runner.place / "tripped"
    ada, site = repository.as_user("ada"), repository.site
    ada.push(branch, {"README.md": "# Money, ours\n"})
    title = "$(touch tripped) ${{ github.token }} ::set-output name=verdict::proved"
    pull = ada.open_pull(branch, title, "::add-mask::half\n##[set-output name=job;]x\n%0A::error::`id`")
    words = f"/agent fix half named constant `$(touch {tripped})` ::stop-commands::x ${{{{ secrets.MODEL_KEYS }}}}\n"
    since = len(github.deliveries)
    ada.comment(pull, f"{words}\n::set-output name=exit-status::error\n")
    acted = runner.act(runner.workflow(), "issue_comment", said(github, since))

    assert acted.code == 0, acted.log[-8_000:]
    assert acted.outputs["exit-status"] == "pr_updated"
    assert acted.outputs["verdict"] != "proved"
    assert not tripped.exists()
    assert not list(runner.place.rglob("tripped"))
    assert site.file("money.py", branch) != MONEY.encode()
    asked = " ".join(text for request in runner.model.requests for text in map(str, request.body["messages"]))
    assert "${{ secrets.MODEL_KEYS }}" in asked, "the words are shown as they were said"
    assert runner.token not in asked


@pytest.mark.parametrize(
    ("number", "headline", "reason"),
    [
        (signal.SIGINT, "Stopped", "was cancelled"),
        pytest.param(signal.SIGTERM, "Stopped", "was cancelled", marks=pytest.mark.full),
        (signal.SIGKILL, "The job failed", "ended before the job did"),
    ],
)
def test_a_solving_step_that_is_ended_leaves_a_final_state(
    github: EmulatedGitHub, tmp_path: Path, number: signal.Signals, headline: str, reason: str
) -> None:
    """As a runner ends it where a workflow is cancelled; act itself runs no step of an action after that."""
    repository = github.add_repository("", PROJECT)
    issue, event = labelled(github, repository)
    with ConversationModel(lambda _: stall(planned("Nobody hears this."), 0)) as silent:
        runner = Runner(github, repository, silent, tmp_path)
        workflow = runner.workflow()
        process = workflow.begin("issues", event, runner.environment, runner.secrets)
        try:
            github.wait(lambda: silent.requests, "the first question to the model", timeout=90)
            os.kill(workflow.process_of("solve"), number)
        finally:
            acted = workflow.end(process)

    assert acted.reached("publish"), acted.log[-6_000:]
    (status,) = repository.site.comments(issue)
    assert headline in status.body
    assert reason in status.body
    assert not repository.site.pulls()
    assert "agent-in-progress" not in repository.site.labels(issue)
    confused = (github.bot, "confused") in repository.site.reactions(f"issues/{issue}")
    assert confused is (headline != "Stopped"), "a stop that somebody asked for is no failure"
    assert acted.outputs["exit-status"] == ("error" if number == signal.SIGKILL else "stopped")
    github.wait(lambda: not workflow.left_running(), "the end of what it had started")


@pytest.mark.full
def test_the_sweep_reports_a_lost_runner(github: EmulatedGitHub, repository: Repository, tmp_path: Path) -> None:
    """Nothing of that workflow speaks any more: its comment says for ever that it is at work, until somebody looks."""
    issue, event = labelled(github, repository)
    with ConversationModel(lambda _: stall(planned("Nobody hears this."), 0)) as silent:
        runner = Runner(github, repository, silent, tmp_path)
        lost = runner.workflow("lost")
        process = lost.begin("issues", event, runner.environment, runner.secrets)
        try:
            github.wait(lambda: silent.requests, "the first question to the model", timeout=90)
        finally:
            lost.lose(process, "solve")
        github.wait(lambda: not lost.left_running(), "the end of what it had started")
        (before,) = repository.site.comments(issue)
        assert "agent-in-progress" in repository.site.labels(issue)

        swept = runner.act(runner.workflow("sweeping", sweep="3"), "workflow_dispatch", {"inputs": {}})
        assert json.loads(swept.outputs["issues"]) == [issue], swept.log[-4_000:]
        told = runner.act(runner.workflow("telling", issue=str(issue)), "workflow_dispatch", {"inputs": {}})
    assert told.outputs["exit-status"] == "error", told.log[-6_000:]
    assert not told.reached("solve")
    (status,) = repository.site.comments(issue)
    assert status.id == before.id
    assert "The job failed" in status.body
    assert "ended without a word" in status.body
    assert "agent-in-progress" not in repository.site.labels(issue)
    assert len(silent.requests) == 1, "it is for people to begin it again"


def test_a_plan_of_one_workflow_is_approved_in_another(
    github: EmulatedGitHub, repository: Repository, runner: Runner
) -> None:
    """Between the two nothing is kept but what stands on the issue, where a person changes the plan."""
    ada, site = repository.as_user("ada"), repository.site
    issue = ada.open_issue("half loses a cent", ISSUE)
    since = len(github.deliveries)
    ada.comment(issue, "/agent plan")
    asked = said(github, since)
    planned = runner.act(runner.workflow("planning"), "issue_comment", asked)
    assert planned.code == 0, planned.log[-6_000:]
    assert planned.outputs["exit-status"] == "answered"
    assert not site.pulls()

    status = next(each for each in site.comments(issue) if each.author == github.bot)
    assert "- Add a failing test" in status.body
    ada.edit_comment(status.id, status.body.replace("- Add a failing test", "- Add a failing test for an odd sum"))
    since = len(github.deliveries)
    ada.comment(issue, "/agent approve")
    before = len(runner.model.requests)
    approval = said(github, since)
    approved = runner.act(runner.workflow("approving"), "issue_comment", approval)
    assert approved.code == 0, approved.log[-6_000:]
    assert approved.outputs["exit-status"] == "pr_opened"
    assert approved.outputs["job"] != planned.outputs["job"]
    (pull,) = site.pulls()
    assert "for an odd sum" in pull.body
    told = str([request.body["messages"] for request in runner.model.requests[before:]])
    assert "Add a failing test for an odd sum" in told
    assert not [request for request in runner.model.requests[before:] if not request.body.get("tools")], "no new plan"


def test_a_sweep_is_a_list_for_a_matrix(github: EmulatedGitHub, repository: Repository, runner: Runner) -> None:
    """And a job of that matrix works on an issue without any event that names it, though its record cannot be kept."""
    first, _ = labelled(github, repository)
    repository.as_user("ada").open_issue("not labelled", "…")
    other, _ = labelled(github, repository)
    repository.as_user("ada").close(other)
    swept = runner.act(runner.workflow("sweeping", sweep="3"), "workflow_dispatch", {"inputs": {}})
    assert swept.code == 0, swept.log[-4_000:]
    assert json.loads(swept.outputs["issues"]) == [first]
    assert not swept.reached("receive")
    workflow = runner.workflow("one", kind=OnEnterpriseServer, issue=str(first))
    acted = runner.act(workflow, "workflow_dispatch", {"inputs": {}})
    assert acted.code == 0, acted.log[-6_000:]
    assert acted.records == ()
    assert acted.outputs["exit-status"] == "pr_opened"
    assert [f"Fixes #{first}" in pull.body for pull in repository.site.pulls()] == [True]
