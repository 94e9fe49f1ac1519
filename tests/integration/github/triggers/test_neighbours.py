"""Before any paid work: what else is open about an issue is found, told, and asked about."""

import pytest

from tests.support.event_harness import EventHarness


@pytest.mark.parametrize("branch", ["agent-fix/issue-1-totals", "ada/renamed"])
@pytest.mark.parametrize("text", ["/agent fix", ""])
async def test_our_own_draft_is_not_forgotten_once_its_closing_words_are_edited_out(
    harness: EventHarness, branch: str, text: str
) -> None:
    await harness.labels()
    pull = harness.our_pull(branch)
    harness.ends("pr_opened", url=f"https://github.example/ada/sample/pull/{pull.number}")
    await (harness.says(text) if text else harness.labels())
    assert len(harness.jobs()) == 1
    assert f"#{pull.number} is already open for this issue; request changes there" in harness.answer


async def test_a_draft_that_was_closed_stands_in_nobodys_way(harness: EventHarness) -> None:
    await harness.labels()
    pull = harness.our_pull()
    harness.ends("pr_opened", url=f"https://github.example/ada/sample/pull/{pull.number}")
    pull.state = "closed"
    await harness.says("/agent fix")
    assert len(harness.jobs()) == 2


@pytest.mark.parametrize(("branch", "body"), [("1-totals", "Better."), ("topic", "Fixes #1 on another branch")])
async def test_a_label_asks_where_a_person_works_on_it_and_a_comment_says_so(
    harness: EventHarness, branch: str, body: str
) -> None:
    pull = harness.open_pull(harness.person("grace"), branch=branch)
    pull.body = body
    await harness.labels()
    assert harness.jobs() == []
    assert f"pull request #{pull.number} seems to be about this issue." in harness.answer
    assert "`/agent fix`" in harness.answer
    await harness.says("/agent fix")
    assert f"Also open and about this: pull request #{pull.number}." in harness.job.job_context.notes


async def test_a_reproduction_is_told_of_the_draft_that_solves_the_issue(harness: EventHarness) -> None:
    pull = harness.open_pull(harness.person("grace"))
    pull.closes = harness.issue.number
    await harness.says("/agent reproduce")
    assert f"Also open and about this: pull request #{pull.number}." in harness.job.job_context.notes


@pytest.mark.parametrize("verb", ["fix", "plan", "reproduce"])
async def test_mentions_are_told_before_the_work(harness: EventHarness, verb: str) -> None:
    grace = harness.person("grace")
    pull = harness.open_pull(grace)
    pull.body = "Beside #1."
    same = harness.world.open_issue(harness.repo, grace, "Sums are off", "Perhaps as in #1?")
    gone = harness.world.open_issue(harness.repo, grace, "Old", "As in #1")
    gone.state = "closed"
    await harness.says(f"/agent {verb}")
    (note,) = [each for each in harness.job.job_context.notes if "Also open" in each]
    assert note == f"Also open and about this: pull request #{pull.number}, issue #{same.number}."
