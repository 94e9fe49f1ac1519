"""The story, told once from the issue to the pull request: real sandbox, real suite, real git; only the answers are
recorded."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import wallet_project
from tests.support.console import Console, ConsoleResult
from tests.support.repositories import git, make_repository, snapshot

pytestmark = pytest.mark.xdist_group("story")


@dataclass(frozen=True)
class StoryResult:
    """The story, and the user's repository before and after it."""

    finished: ConsoleResult
    console: Console
    repository: Path
    base: str
    before: dict[str, tuple[int, bytes]]
    refs_before: list[str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoryResult]:
    place = tmp_path_factory.mktemp("story")
    repository = wallet_project.make_wallet(place / "wallet")
    base = git(repository, "rev-parse", "HEAD")
    _leave_work_lying_about(repository)
    before, refs = snapshot(repository), _refs(repository)
    console = Console(place)
    yield StoryResult(
        console.fix(repository, wallet_project.ISSUE, recording=wallet_project.worked_on()),
        console,
        repository,
        base,
        before,
        refs,
    )
    shutil.rmtree(place)


def _leave_work_lying_about(repository: Path) -> None:
    """What a user's tree is like on a Tuesday: a stash, something staged, something not, something untracked."""
    (repository / "README.md").write_text("# stashed\n")
    git(repository, "stash")
    (repository / "README.md").write_text("# staged\n")
    git(repository, "add", "README.md")
    (repository / wallet_project.SOURCE).write_text("def split(total, people):\n    return 'half-finished'\n")
    (repository / "notes.txt").write_text("untracked\n")


def _refs(repository: Path) -> list[str]:
    return git(repository, "for-each-ref").splitlines()


def test_an_issue_becomes_a_proved_change(story: StoryResult) -> None:
    assert story.finished.code == 0, story.finished.said
    assert story.finished.stderr == ""
    assert story.finished.job["exit_status"] == "branch_made"
    assert story.finished.verification["verdict"] == "proved"


def test_progress_is_shown_as_it_happens(story: StoryResult) -> None:
    told = story.finished.stdout
    moments = (
        "issue: Splitting a bill loses cents",
        "recorded answers, no model is called",
        "3 uncommitted changes in",
        "planning",
        "The remainder of the division is dropped.",
        "working",
        "turn 1 of at most 100",
        "view wallet/shares.py",
        "turn 3 of at most 100",
        "edit wallet/shares.py",
        "verifying",
        "examples on the change: 4",
        "proved: 4 examples from the issue print something else on the base",
        "publishing",
        "proved: 4 examples from the issue print something else on the base",
        "base   reproduction: fails",
        "change reproduction: passes",
        "wallet/shares.py  ",
        f"branch   {wallet_project.BRANCH}",
        "$0.0070 of $5.00 · 7 model calls",
        f"switch {wallet_project.BRANCH}",
    )
    place = 0
    for moment in moments:
        found = told.find(moment, place)
        assert found >= 0, moment
        place = found + 1
    assert '{"summary"' not in told, "a plan is shown as people read it"


def test_the_plan_is_kept_and_can_be_edited(story: StoryResult) -> None:
    plan = story.finished.job["plan"]
    assert plan["candidate_files"] == [wallet_project.SOURCE]
    assert [one["behaviour"] for one in plan["examples"]] == [one["behaviour"] for one in wallet_project.EXAMPLES]
    assert "Give the remainder to the first people." in (story.finished.out / "plan.md").read_text()


def test_red_became_green_by_what_the_harness_ran(story: StoryResult) -> None:
    reproduction, suite = story.finished.verification["reproduction"], story.finished.verification["suite"]
    assert (reproduction["on_base"], reproduction["on_head"]) == ("red", "green")
    assert (reproduction["base"]["exit_code"], reproduction["head"]["exit_code"]) == (1, 0)
    assert "AssertionError" in reproduction["base"]["excerpt"]
    assert (suite["base"]["count"]["passed"], suite["head"]["count"]["passed"]) == (2, 2), "the base's own tests"
    assert suite["own_tests"]["failing"] == []
    assert suite["newly_failing"] == []
    assert story.finished.verification["isolated"] is True


def test_hidden_examples_differed_and_hold(story: StoryResult) -> None:
    examples = story.finished.verification["examples"]["examples"]
    assert [(one["kind"], one["hidden"]) for one in examples] == [
        ("shows", False),
        ("shows", True),
        ("shows", True),
        ("keeps", True),
    ]
    assert [one["base"][0]["stdout"] for one in examples] != [one["change"][0]["stdout"] for one in examples]
    assert story.finished.verification["rules"] == []


def test_the_fixer_sees_one_example_only(story: StoryResult) -> None:
    told = "".join(path.read_text() for path in story.finished.out.glob("trajectory*"))
    assert "1111" not in told
    assert "[278, 278, 278, 277]" not in told


def test_the_branch_is_one_commit_on_the_base(story: StoryResult) -> None:
    repository, branch = story.repository, wallet_project.BRANCH
    assert git(repository, "rev-list", f"{story.base}..{branch}").splitlines() == [story.finished.job["commit"]]
    assert git(repository, "diff", "--name-only", story.base, branch).splitlines() == [
        wallet_project.TEST,
        wallet_project.SOURCE,
    ]
    after = git(repository, "show", f"{branch}:{wallet_project.SOURCE}")
    assert wallet_project.RIGHT.strip() in after
    assert "half-finished" not in after
    subject, _, body = git(repository, "log", "-1", "--format=%B", branch).partition("\n")
    assert subject == "Fix: Splitting a bill loses cents"
    assert " ".join(body.split()) == wallet_project.SUMMARY
    assert git(repository, "log", "-1", "--format=%an <%ae>", branch).startswith("agent-fix <")


def test_the_new_test_fails_without_the_change(story: StoryResult, tmp_path: Path) -> None:
    clone = make_repository(tmp_path / "clone")
    git(clone, "fetch", "-q", str(story.repository), f"{wallet_project.BRANCH}")
    git(clone, "checkout", "-q", "FETCH_HEAD")
    assert _suite(clone) == 0
    git(clone, "fetch", "-q", str(story.repository), story.base)
    git(clone, "checkout", "-q", story.base, "--", wallet_project.SOURCE)
    assert _suite(clone) == 1


def _suite(directory: Path) -> int:
    command = [sys.executable, "-B", "-m", "unittest", "-q"]
    return subprocess.run(command, cwd=directory, capture_output=True, check=False).returncode


def test_the_users_own_work_is_not_touched(story: StoryResult) -> None:
    after = snapshot(story.repository)
    new = {path for path in after if path not in story.before}
    assert {path: after[path] for path in story.before} == story.before, "files, index, HEAD and stash are as they were"
    assert all(path.startswith((".git/objects/", ".git/refs/heads/agent-fix/", ".git/logs/refs/")) for path in new), new
    added = [line for line in _refs(story.repository) if line not in story.refs_before]
    assert added == [f"{story.finished.job['commit']} commit\trefs/heads/{wallet_project.BRANCH}"]
    assert len(_refs(story.repository)) == len(story.refs_before) + 1


def test_the_pull_request_shows_the_proof(story: StoryResult) -> None:
    body = story.finished.pull_request
    assert body.startswith("# Fix: Splitting a bill loses cents\n")
    parts = (
        "**Proved.**",
        "**Recorded answers.**",
        "The plan in",
        "changed file",
        "## Verification",
        "<details>",
        "<sub>",
    )
    assert [part for part in parts if part not in body] == []
    row = next(line for line in body.splitlines() if line.startswith("| Reproduction"))
    assert wallet_project.REPRODUCTION in row
    assert "exit code 1" in row
    assert "exit code 0" in row
    assert f"`{wallet_project.SOURCE}` | +2 −1" in body  # noqa: RUF001
    assert "**Not run:**" in body, "what was not run is said not to have been run"
    assert str(story.console.place) not in body, "no path of this machine"


def test_the_trajectory_has_every_step(story: StoryResult) -> None:
    tools = [[action["tool"] for action in step["actions"]] for step in story.finished.steps]
    assert tools == [["view", "bash"], ["edit", "bash"], ["edit"], ["bash"], ["submit"]]
    assert story.finished.observation(1).startswith("wallet/shares.py")
    assert "AssertionError" in story.finished.observation(2, 1)
    assert "Ran 3 tests" in story.finished.observation(4)
    assert story.finished.steps[-1]["submission"] == "accepted"
    assert story.finished.job["usage"]["calls"] == story.console.calls_bought() == 7


def test_nothing_is_left_behind_but_the_state(story: StoryResult) -> None:
    assert list((story.console.state / "sandboxes").iterdir()) == []
    listed = story.console.execute("jobs", "list", "--state", story.console.state)
    assert "branch made" in listed.stdout
    assert "proved" in listed.stdout


def test_a_reviewer_looked_for_counter_examples(story: StoryResult) -> None:
    review = story.finished.verification["review"]
    assert [one["name"] for one in review["examples"]] == ["r1", "r2"]
    body = (story.console.out / "pull-request.md").read_text()
    assert "6 of 6 examples hold" in body
    assert "More people than cents get a cent each until none is left." in body
