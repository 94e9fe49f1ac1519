"""The Action's comment while its solve step works: edited beside it, until the job waits or is published."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from app.action.publish import RUNNER, follow, is_over, post_once, replaced, runner_ended, show_progress
from app.config.workflow import workflow_from
from app.core.state_words import WORDS
from tests.support.github.fake import FakeGitHubSetup
from tests.support.publisher_harness import PublisherHarness


async def test_comment_is_edited_while_the_job_works_and_no_more_once_it_waits(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await harness.admit()
    await harness.everything()
    shown: list[str] = []
    states = iter(("planning", "working", "paused"))

    async def post() -> None:
        fake_github.world.tick(60)
        await post_once(harness.status_updater, harness.publisher)
        shown.extend(text.splitlines()[0] for text in harness.comments())
        harness.store.enter(made.id, next(states))  # type: ignore[arg-type]

    await follow(post, lambda: is_over(harness.job_queries.get(made.id)), every=0.0, look=0.0)
    assert shown == ["### ⏳ Queued", "### 🧭 Making a plan", f"### {WORDS['working'].headline}"]
    assert is_over(harness.job_queries.get("nobody"))


async def test_a_change_that_is_handed_over_meanwhile_is_left_to_the_publish_step(harness: PublisherHarness) -> None:
    """This process may hold a token that ends sooner, and a draft that GitHub refuses is not requested again."""
    made = await harness.admit()
    key = await harness.work(made)
    await post_once(harness.status_updater, harness.publisher)
    assert [text.splitlines()[0] for text in harness.comments()] == ["### 📤 Publishing"]
    assert harness.effect_status(key).state == "wanted"
    await harness.everything()
    assert harness.ended(made.id)[0] == "pr_opened"


async def test_nothing_is_posted_after_the_publish_step_began(harness: PublisherHarness) -> None:
    await harness.admit()
    await follow(partial(post_once, harness.status_updater, harness.publisher), lambda: True, every=0.0, look=0.0)
    assert harness.comments() == []


def test_environment_of_the_process_is_private() -> None:
    code = (
        "import ctypes; from app.action.main import keep_environment_private as f; f();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"


def test_another_state_directory_at_the_same_path_is_another_jobs(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    gone = replaced(state)
    assert not gone()
    state.rmdir()
    assert gone()
    state.mkdir()
    assert gone()


@pytest.mark.parametrize(("name", "ends"), [(RUNNER, True), ("sh", False)])
def test_process_ends_with_the_runners_and_no_other(name: str, ends: bool, tmp_path: Path) -> None:
    """In Kubernetes a script's parent is a shell that ends with each step."""
    program = tmp_path / name
    shutil.copy(shutil.which("cat") or "", program)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("started\n")
        assert process.stdout.readline() == "started\n"
        left = runner_ended(process.pid)
        assert not left()
        process.kill()
        process.wait()
        assert left() == ends
    assert not runner_ended(0)()


async def test_no_process_with_the_token_stays_beside_code_without_a_sandbox(tmp_path: Path) -> None:
    """The state directory, which it opens first, does not exist."""
    given = {"RUNNER_TEMP": str(tmp_path), "GITHUB_REPOSITORY": "ada/sample", "AGENT_FIX_SANDBOX": "none "}
    assert await show_progress(workflow_from({**given, "AGENT_FIX_GITHUB_TOKEN": "ghs_x"})) == 0
