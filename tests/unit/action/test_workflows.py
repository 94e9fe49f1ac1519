"""The workflow templates that users copy, and our own: few rights, fixed versions, and started only by who asks."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.installed_programs import ROOT, tool
from tests.support.workflow_templates import TemplateRepository, permissions_of

TEMPLATES = sorted((ROOT / "workflows").glob("*.yml"))
OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*TEMPLATES, *OWN]
PERSON = {"login": "ada", "type": "User"}
BOT = {"login": "agent-fix[bot]", "type": "Bot"}
MINE, FORK = {"full_name": "octo/shop"}, {"full_name": "eve/shop"}
REPOSITORY = {"full_name": "octo/shop", "name": "shop", "owner": {"login": "octo"}, "default_branch": "main"}


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return {"on" if key is True else key: value for key, value in found.items()}


def jobs(path: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read(path)["jobs"]
    return found


# What others' tools say


def test_zizmor_auditor_has_no_findings_in_templates() -> None:
    done = tool("zizmor", "--offline", "--no-config", "--persona=auditor", "--format=plain", *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(path.name in done.stderr for path in FILES), "each file was looked at"


def test_zizmor_has_no_findings_in_pinned_release_templates(tmp_path: Path) -> None:
    release = [sys.executable, "-I", str(ROOT / "deploy" / "release.py")]
    subprocess.run([*release, "pin", "9.8.7", f"octo/agent-fix@{'a' * 40}", str(tmp_path)], check=True)
    made = sorted(tmp_path.glob("*.yml"))
    assert [path.name for path in made] == [path.name for path in TEMPLATES]
    for path in made:
        assert f"uses: octo/agent-fix@{'a' * 40} # v9.8.7\n" in path.read_text("utf-8")
        assert "agent-fix/agent-fix@" not in path.read_text("utf-8")
        assert "unpinned-uses" not in path.read_text("utf-8")
    done = tool("zizmor", "--offline", "--no-config", "--persona=auditor", "--format=plain", *map(str, made))
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_has_no_findings_in_templates() -> None:
    done = tool("actionlint", *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_templates_match_the_github_workflow_schema() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, FILES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_dependabot_file_matches_its_schema() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.dependabot", ".github/dependabot.yml")
    assert done.returncode == 0, done.stdout + done.stderr


# Rules of our own


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_workflows_grant_no_default_permissions(path: Path) -> None:
    assert read(path)["permissions"] == {}
    for name, job in jobs(path).items():
        assert job["permissions"], name
        assert "write-all" not in job["permissions"]
        assert "uses" in job or 0 < job["timeout-minutes"] <= 120, name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_used_actions_are_pinned_with_their_version(path: Path) -> None:
    for job in jobs(path).values():
        for step in job.get("steps", ()):
            if "uses" not in step or step["uses"].startswith("agent-fix/agent-fix"):
                continue
            line = re.search(rf"{re.escape(step['uses'])} # (v[0-9.]+)\n", path.read_text("utf-8"))
            assert re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
            assert line, f"{step['uses']} does not tell its version"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_event_text_is_never_part_of_a_script(path: Path) -> None:
    for job in jobs(path).values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", "")
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_neither_check_out_code_nor_run_fork_code(path: Path) -> None:
    workflow = read(path)
    assert "pull_request_target" not in workflow["on"]
    assert "checkout" not in path.read_text("utf-8").replace("checked out", "")
    for job in jobs(path).values():
        assert job["permissions"].get("actions", "read") == "read" or "secrets." not in json.dumps(job)
        assert not ("secrets." in json.dumps(job) and job.get("environment", {}).get("name") != "agent-fix")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_job_permissions_are_those_its_api_calls_need(path: Path) -> None:
    """By the table of calls; the full integration tests give each job's token these permissions and no others."""
    for name, job in jobs(path).items():
        wanted = permissions_of(path.name, name)
        lines = "\n".join(f"      {key}: {access}" for key, access in wanted.items())
        assert job["permissions"] == wanted, f"write into {path.name}, job {name}:\n    permissions:\n{lines}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_concurrency_groups_never_cancel_a_request(path: Path) -> None:
    """Groups belong to jobs, which enter them after their `if`; a workflow's own group is entered before it."""
    workflow = read(path)
    assert "concurrency" not in workflow
    groups = [job["concurrency"] for job in jobs(path).values() if uses_the_action(job)]
    assert groups
    for group in groups:
        assert group["cancel-in-progress"] is False
        if "schedule" in workflow["on"]:  # the next night looks again
            continue
        assert group["queue"] == "max"
        assert re.match(r"agent-fix-(?:now-)?\$\{\{", group["group"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_pass_only_known_action_inputs(path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    for job in jobs(path).values():
        for step in job["steps"]:
            if step.get("uses", "").startswith("agent-fix/agent-fix@"):
                assert set(step["with"]) <= set(action["inputs"])


def uses_the_action(job: Mapping[str, Any]) -> bool:
    return any(step.get("uses", "").startswith("agent-fix/agent-fix@") for step in job["steps"])


# What starts the work, and what starts nothing


def comment(text: str, *, by: Mapping[str, str] = PERSON, association: str = "MEMBER") -> dict[str, Any]:
    said = {"body": text, "user": by, "author_association": association}
    return {"action": "created", "issue": {"number": 12}, "comment": said, "sender": by, "repository": REPOSITORY}


def label(name: str, *, by: Mapping[str, str] = PERSON) -> dict[str, Any]:
    about = {"action": "labeled", "issue": {"number": 12}, "label": {"name": name}}
    return {**about, "sender": by, "repository": REPOSITORY}


def assigned(to: str) -> dict[str, Any]:
    about = {"action": "assigned", "issue": {"number": 12}, "assignee": {"login": to, "type": "User"}}
    return {**about, "sender": PERSON, "repository": REPOSITORY}


def on_pull(event: Mapping[str, Any], head: Mapping[str, Any] = MINE, ref: str = "x") -> dict[str, Any]:
    rest = {key: value for key, value in event.items() if key != "issue"}
    return {**rest, "pull_request": {"number": 13, "head": {"repo": head, "ref": ref}, "base": {"repo": MINE}}}


def review(text: str | None, head: Mapping[str, Any] = MINE) -> dict[str, Any]:
    said = {"body": text, "user": PERSON, "author_association": "MEMBER", "state": "commented"}
    event = {"action": "submitted", "review": said, "sender": PERSON, "repository": REPOSITORY}
    return on_pull(event, head)


def requested(
    ref: str, *, text: str | None = None, head: Mapping[str, Any] = MINE, association: str = "MEMBER"
) -> dict[str, Any]:
    """A review that requests changes; GitHub gives its text as null where there is none."""
    event = on_pull(review(text), head, ref)
    return {**event, "review": {**event["review"], "state": "changes_requested", "author_association": association}}


ASKING = {
    "label": ("issues", label("agent-fix")),
    "assigned": ("issues", assigned("fixer")),
    "comment": ("issue_comment", comment("/agent fix it")),
    "word like stop": ("issue_comment", comment("/agent stopwatch shows the wrong time")),
    "name that begins with status": ("issue_comment", comment("/agent status.json is written twice")),
    "name that begins with stop": ("issue_comment", comment("/agent stop:resume is broken")),
    "query of status": ("issue_comment", comment("/agent status?x=1 gives 500")),
    "word like status": ("issue_comment", comment("/agent status-code 500 should be 404")),
    "later line": ("issue_comment", comment("I saw it too.\r\n\r\n/Agent plan")),
    "by name": ("issue_comment", comment("@agent-fix please")),
    "owner": ("issue_comment", comment("/agent", association="OWNER")),
    "hidden member": ("issue_comment", comment("/agent", association="CONTRIBUTOR")),
    "pull request": ("pull_request", on_pull(label("agent-fix"))),
    "review": ("pull_request_review", review("Nearly.\n/agent name it total")),
    "thread": ("pull_request_review_comment", on_pull(comment("/agent shorter"))),
    "changes requested": ("pull_request_review", requested("agent-fix/issue-12-x", text="Too long.")),
    "changes requested without a word": ("pull_request_review", requested("agent-fix/issue-12-x")),
}
QUIET = {
    "other label": ("issues", label("bug")),
    "assigned to a person": ("issues", assigned("ada")),
    "bot's label": ("issues", label("agent-fix", by=BOT)),
    "chatter": ("issue_comment", comment("Any news?")),
    "own comment": ("issue_comment", comment("Write `/agent continue`.", by=BOT)),
    "own, by a person's token": ("issue_comment", comment("<!-- agent-fix:job:j1 -->\nWrite `/agent continue`.")),
    "stranger": ("issue_comment", comment("/agent fix it", association="NONE")),
    "newcomer": ("issue_comment", comment("/agent fix it", association="FIRST_TIME_CONTRIBUTOR")),
    "fork's label": ("pull_request", on_pull(label("agent-fix"), FORK)),
    "fork's review": ("pull_request_review", review("/agent fix it", FORK)),
    "lost fork": ("pull_request_review", review("/agent fix it", {})),
    "quiet review": ("pull_request_review", review("Fine.")),
    "changes requested of a person": ("pull_request_review", requested("x", text="Too long.")),
    "changes requested of a fork": ("pull_request_review", requested("agent-fix/issue-12-x", head=FORK)),
    "changes requested by a stranger": ("pull_request_review", requested("agent-fix/issue-12-x", association="NONE")),
    "review of its own branch": ("pull_request_review", on_pull(review("Fine."), ref="agent-fix/issue-12-x")),
}


@pytest.mark.parametrize("case", ASKING)
def test_authorised_requests_start_work(case: str, tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act(*ASKING[case])
    assert acted.code == 0, acted.log
    assert set(acted.inputs) == {"work"}
    inputs = acted.inputs["work"]
    assert inputs["model"] == "anthropic/any"
    assert "ANTHROPIC_API_KEY=model-key-canary-5d1e\n" in inputs["model-keys"]
    assert acted.asked == ()


@pytest.mark.parametrize("case", QUIET)
def test_events_without_a_request_start_nothing(case: str, tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act(*QUIET[case])
    assert acted.code == 0, acted.log
    assert acted.inputs == {}
    assert acted.asked == ()


HOSTILE = "/agent fix $(id) `id` ${{ secrets.ANTHROPIC_API_KEY }}\n::set-output name=work::true\n'; exit 9; '"


def test_hostile_comment_text_is_not_executed(tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act("issue_comment", comment(HOSTILE))
    assert acted.code == 0, acted.log
    assert len(acted.inputs) == 1
    assert "uid=" not in acted.log
    assert "model-key-canary" not in acted.log


# Stop and status


def at_once(verb: str) -> list[str]:
    """Comments that are this command for the parser, with what may follow its word."""
    ends = [f"{mark}{then}" for mark in ("", *".,:;!?") for then in ("", " It is wrong", "\r\nSorry.")]
    return [f"/agent {verb}{end}" for end in (*ends, "...", "!!", "??", "?!")]


@pytest.mark.parametrize("words", ["/Agent Stop", *at_once("stop"), *at_once("status")])
def test_stop_and_status_run_at_once_and_without_a_model_key(words: str, tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act("issue_comment", comment(words))
    assert acted.code == 0, acted.log
    assert set(acted.inputs) == {"now"}
    assert acted.inputs["now"]["model-keys"] == ""
    now, work = (jobs(ROOT / "workflows" / "agent-fix.yml")[name] for name in ("now", "work"))
    assert "secrets." not in json.dumps(now)
    assert now["concurrency"]["group"].partition("${{")[0] != work["concurrency"]["group"].partition("${{")[0]


@pytest.mark.parametrize("event", [comment("/agent stop", association="NONE"), comment("/agent stop", by=BOT)])
def test_outsiders_and_bots_cannot_stop_a_job(event: Mapping[str, Any], tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act("issue_comment", event)
    assert acted.code == 0, acted.log
    assert acted.inputs == {}


# By number


def test_manual_run_accepts_an_issue_number(tmp_path: Path) -> None:
    event = {"inputs": {"issue": "12"}, "sender": BOT, "repository": REPOSITORY}
    acted = TemplateRepository(tmp_path, "agent-fix.yml").act("workflow_dispatch", event)
    assert acted.code == 0, acted.log
    assert acted.inputs["work"]["issue"] == "12"


# Failing checks


def finished(conclusion: str, head: Mapping[str, Any] = MINE, pulls: tuple[int, ...] = (13,)) -> dict[str, Any]:
    workflow = {
        "conclusion": conclusion,
        "head_branch": "agent-fix/issue-12-x",
        "head_repository": head,
        "pull_requests": [{"number": number} for number in pulls],
    }
    return {"action": "completed", "workflow_run": workflow, "sender": BOT, "repository": REPOSITORY}


@pytest.mark.parametrize("conclusion", ["failure", "timed_out", "startup_failure"])
def test_failed_checks_start_work(conclusion: str, tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix-ci.yml").act("workflow_run", finished(conclusion))
    assert acted.code == 0, acted.log
    assert len(acted.inputs) == 1


@pytest.mark.parametrize(
    "event",
    [finished("success"), finished("cancelled"), finished("failure", FORK), finished("failure", pulls=())],
    ids=["success", "cancelled", "fork", "no pull request"],
)
def test_other_workflow_conclusions_start_nothing(event: Mapping[str, Any], tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path, "agent-fix-ci.yml").act("workflow_run", event)
    assert acted.code == 0, acted.log
    assert acted.inputs == {}


def test_ci_template_watches_agent_fix_branches_only() -> None:
    assert read(ROOT / "workflows" / "agent-fix-ci.yml")["on"]["workflow_run"]["branches"] == ["agent-fix/**"]


# The sweep


def swept(**inputs: str) -> dict[str, Any]:
    return {"inputs": inputs, "sender": PERSON, "repository": {**REPOSITORY, "fork": False}}


@pytest.mark.parametrize(
    ("taken", "begun"), [("[12, 7]", ["issue=12", "issue=7"]), ("[]", []), ("", [])], ids=["two", "none", "no word"]
)
def test_sweep_starts_separate_workflow_runs(taken: str, begun: list[str], tmp_path: Path) -> None:
    event = swept(max="2", query="label:bug sort:reactions")
    acted = TemplateRepository(tmp_path, "agent-fix-sweep.yml", taken=taken).act("workflow_dispatch", event)
    assert acted.code == 0, acted.log
    inputs = acted.inputs["sweep"]
    assert (inputs["sweep"], inputs["sweep-query"]) == ("2", "label:bug sort:reactions")
    assert inputs["model-keys"] == ""
    assert acted.asked == tuple(f"workflow run agent-fix.yml --field {each}" for each in begun)


def test_sweep_is_bounded_and_does_not_run_in_forks(tmp_path: Path) -> None:
    acted = TemplateRepository(tmp_path / "own", "agent-fix-sweep.yml", taken="[3]").act("schedule", swept())
    assert acted.inputs["sweep"]["sweep"] == "3", acted.log
    forked = {**swept(), "repository": {**REPOSITORY, "fork": True}}
    acted = TemplateRepository(tmp_path / "fork", "agent-fix-sweep.yml", taken="[3]").act("schedule", forked)
    assert acted.code == 0, acted.log
    assert acted.inputs == {}


def test_workflow_started_by_the_sweep_exists() -> None:
    begin = jobs(ROOT / "workflows" / "agent-fix-sweep.yml")["sweep"]["steps"][-1]["run"]
    name = re.findall(r"workflow run (\S+)", begin)[0]
    assert list(read(ROOT / "workflows" / name)["on"]["workflow_dispatch"]["inputs"]) == ["issue"]
