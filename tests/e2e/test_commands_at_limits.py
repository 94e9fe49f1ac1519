"""Stopping, money, processes that die and webhooks that are lost: stories over real processes."""

import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.jobs.trigger_log import PollCursors
from tests.support.conversation_model import ModelQuestion, called, planned
from tests.support.e2e_server import E2ERepository, Story
from tests.support.github.world import Issue
from tests.support.openai_endpoint import Reply, stall
from tests.support.sample_project import fixes

if TYPE_CHECKING:
    from concurrent.futures import Future

pytestmark = [pytest.mark.xdist_group("commands-at-limits"), pytest.mark.timeout(1_200)]


def stalls(asked: ModelQuestion) -> Reply:
    """The mind of a model that never answers."""
    return stall(planned("Never."), 0)


def it_is_stopped(place: E2ERepository, issue: Issue, *words: str) -> None:
    """What people see of a job that was stopped, and that nothing comes after it."""
    place.told("⏹️ Stopped", "`/agent retry`", *words, issue=issue)
    place.until(lambda: "agent-in-progress" not in issue.labels, "the labels")
    assert place.repo.pushes == []


def a_thinking_model_is_stopped(place: E2ERepository) -> None:
    place.model_answers(stalls)
    asked = place.says("/agent fix")
    place.until(lambda: place.asked, "the model's first thought")
    place.says("/agent stop", by=place.people.grace)
    it_is_stopped(place, place.issue, "Stopped by grace.")
    assert "confused" not in place.reactions(asked), "a stop that somebody asked for is no failure"


def a_long_command_is_stopped(place: E2ERepository) -> None:
    def think(asked: ModelQuestion) -> Reply:
        return fixes(asked) if asked.wants_a_plan else called(("bash", {"command": "sleep 600", "timeout": 600}))

    place.model_answers(think)
    place.labels()
    job = place.comes_to("working")
    store = place.e2e_server.server.server_context.job_store()
    place.until(lambda: any("sleep 600" in row.text for row in store.progress_since(job.job.id)), "the command")
    place.says("/agent stop")
    it_is_stopped(place, place.issue)
    assert "confused" not in place.reactions(place.issue)
    assert not processes(job.job.id)


def a_label_is_taken_off(place: E2ERepository) -> None:
    place.model_answers(stalls)
    place.labels()
    place.has("agent-in-progress")
    place.until(lambda: place.asked, "the model's first thought")
    place.unlabels("agent-in-progress")
    it_is_stopped(place, place.issue, "Its label was removed.")


def an_issue_is_closed(place: E2ERepository) -> None:
    place.model_answers(stalls)
    place.labels()
    place.until(lambda: place.asked, "the model's first thought")
    place.closes(place.issue)
    it_is_stopped(place, place.issue, "The issue was closed.")


def money_runs_out_and_more_is_given(place: E2ERepository) -> None:
    model = "gpt-4o-mini"
    place.model_answers(fixes, model)
    place.says(f"/agent fix --model openai/{model} --budget 0.0001")
    place.told("⏸️ Paused", "budget", "`/agent continue --budget +3`")
    place.has("agent-needs-human")
    job = place.comes_to("paused")
    assert place.repo.pushes == []
    place.says("/agent continue")
    place.told("Its budget is spent", "`/agent continue --budget +3`")
    place.says("/agent continue --budget +3")
    place.pull()
    place.told("A draft pull request is open", "of $3.00")
    assert place.comes_to("pr_opened").job.id == job.job.id


def turns_run_out_and_it_goes_on(place: E2ERepository) -> None:
    place.configure("budget: {steps: 1}\nplan: none\n")
    place.model_answers(fixes)
    place.labels()
    place.told("⏸️ Paused", "The one turn is used.", "`/agent continue`")
    job = place.comes_to("paused")
    place.says("/agent continue")
    place.pull()
    assert place.comes_to("pr_opened").job.id == job.job.id
    assert [each.turn for each in place.asked] == [1, 2], "what was bought is not bought again"


def a_job_that_kills_its_process_is_given_up(place: E2ERepository) -> None:
    place.configure("plan: none\n")
    place.model_answers(stalls)
    asked = place.says("/agent fix")
    for attempt in range(1, 4):
        place.until(lambda attempt=attempt: len(place.asked) >= attempt or None, f"attempt {attempt}")  # type: ignore[misc]
        job = place.comes_to("working")
        (process,) = processes(job.job.id)
        os.kill(process, signal.SIGKILL)
    place.told("💥 The job failed", "died 3 times", "`/agent retry`")
    place.has("agent-needs-human")
    place.until(lambda: "confused" in place.reactions(asked), "😕")
    assert place.repo.pushes == []


def lost_webhooks_lose_nothing(place: E2ERepository) -> None:
    place.model_answers(fixes)
    other = place.world.open_issue(place.repo, place.people.ada, "half loses a cent again", "See #1.")
    server = place.e2e_server.server
    PollCursors(server.server_context.engine).mark_polled(place.repo.id, datetime.now(UTC) - timedelta(minutes=1))
    place.lost = True
    place.labels()
    place.says("/agent fix", other)
    server.end("publisher")
    server.start("publisher")
    place.comes_to("pr_opened")
    place.comes_to("pr_opened", issue=other)
    assert len(place.pulls) == 2
    place.lost = False
    assert place.sends_lost_again() == 2
    place.until(lambda: server.server_context.inbox.health().undone == 0, "the late webhooks")
    assert len(place.pulls) == 2
    place.told("A draft pull request is open")
    assert len(place.ours()) == len(place.ours(other)) == 1


def processes(job: str) -> list[int]:
    """Of the server's children that work on a job."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended this moment
                continue
            if b"app.server.job_process" in words and job.encode() in words:
                found.append(int(entry.name))
    return found


STORIES: tuple[Story, ...] = (
    a_thinking_model_is_stopped,
    a_long_command_is_stopped,
    a_label_is_taken_off,
    an_issue_is_closed,
    money_runs_out_and_more_is_given,
    turns_run_out_and_it_goes_on,
    a_job_that_kills_its_process_is_given_up,
    lost_webhooks_lose_nothing,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story_results: "dict[str, Future[None]]", story: Story) -> None:
    story_results[story.__name__].result()
