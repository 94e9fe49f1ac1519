"""The rest of a long suite on GitHub: body, check run, comment and label say that it runs, and then what it showed."""

from app.core.job import Job, JobResult
from app.core.state_words import WORDS
from app.core.verification import RestOfSuite, TestCount
from app.jobs.queue import MAX_CRASHES
from app.publish.effects import UpdateVerdict
from app.verify.verdict import with_verdict
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.world import Check, Issue
from tests.support.publisher_harness import MANY, PublisherHarness
from tests.support.pull_requests import verification

REST = RestOfSuite(files=40, minutes=30, command="pytest")
FAILED = "tests/test_far.py::test_total"
FOUND = REST.model_copy(
    update={
        "state": "finished",
        "parts": 2,
        "looked_at": 40,
        "compared": 40,
        "base": TestCount(passed=80),
        "head": TestCount(passed=79, failed=1),
        "newly_failing": (FAILED,),
    }
)
RUNNING, ENDED = "The remaining tests are still running", "40 of 40 test files further from the change ran"


async def settle(harness: PublisherHarness) -> None:
    for _ in range(4):
        await harness.everything()
        harness.fake_github.world.tick(11)


async def published(harness: PublisherHarness) -> Job:
    """A job whose draft is open, by the tests nearest to the change."""
    made = await harness.admit()
    facts = verification(rest=REST)
    await harness.work(made, result={"verification": facts, "rest_order": "d" * 64})
    await settle(harness)
    return made


def pull_and_check(fake_github: FakeGitHubSetup) -> tuple[Issue, Check]:
    return fake_github.repo.pulls[-1], next(check for check in fake_github.repo.checks if check.name == "agent-fix")


def end_rest(harness: PublisherHarness, rest: RestOfSuite) -> None:
    """What a worker does."""
    claim = harness.queue.claim("w1", MANY)
    assert claim is not None
    result = JobResult.model_validate(harness.job_with_context(claim.job).row.result)
    assert result.verification is not None
    found = with_verdict(result.verification.model_copy(update={"rest": rest}))
    ended = result.model_copy(update={"verification": found, "reason": " ".join(found.reasons)})
    assert harness.queue.end_rest(claim, ended.model_dump(mode="json"))


async def test_while_the_rest_runs_the_draft_says_so(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await published(harness)
    pull, check = pull_and_check(fake_github)
    assert pull.body.count(RUNNING) == 1
    assert "remaining tests still running" in pull.body
    assert (check.status, check.conclusion) == ("in_progress", None)
    assert RUNNING in str(check.title)
    assert RUNNING in str(check.summary)
    assert harness.ended(made.id)[0] == "pr_opened"
    assert "agent-done" in fake_github.issue.labels
    assert any("remaining tests still running" in comment for comment in harness.comments())


async def test_a_test_that_newly_fails_makes_the_verdict_broken_everywhere(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await published(harness)
    end_rest(harness, FOUND)
    await settle(harness)
    pull, check = pull_and_check(fake_github)
    assert "**Broken.**" in pull.body
    assert RUNNING not in pull.body
    assert ENDED in pull.body
    assert FAILED in pull.body
    assert (check.status, check.conclusion) == ("completed", "failure")
    assert FAILED in str(check.summary)
    state, result = harness.ended(made.id)
    assert state == "pr_opened"
    assert result.verification is not None
    assert result.verification.verdict == "broken"
    (comment,) = (each for each in harness.comments() if "**Broken.**" in each)
    assert comment.startswith(f"### {WORDS['broken_draft'].headline}\n")
    assert "agent-needs-human" in fake_github.issue.labels
    assert "agent-done" not in fake_github.issue.labels
    assert len(fake_github.repo.pulls) == 1
    assert harness.unlearned == [(fake_github.repo.id, made.id)], "nothing is kept of what it taught"


async def test_a_rest_without_findings_leaves_the_verdict_and_ends_the_check(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    await published(harness)
    before = pull_and_check(fake_github)[0].body
    end_rest(harness, FOUND.model_copy(update={"newly_failing": (), "head": TestCount(passed=80)}))
    await settle(harness)
    pull, check = pull_and_check(fake_github)
    assert RUNNING in before
    assert ENDED in pull.body
    assert (check.status, check.conclusion) == ("completed", "success" if "**Tested.**" in pull.body else "neutral")


async def test_a_newer_commits_verdict_stays(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    await published(harness)
    pull, _ = pull_and_check(fake_github)
    assert pull.pull is not None
    head = fake_github.repo.branches[pull.pull.head]
    made = await harness.admit(
        base=head, number=pull.number, aim="follow_up", publish_target="same_branch", pull=pull.number, expected=head,
        job_changes={"branch": pull.pull.head},
    )  # fmt: skip
    await harness.work(made, {"app/money.py": "half = 0.5\n"})
    end_rest(harness, FOUND.model_copy(update={"newly_failing": (), "head": TestCount(passed=80)}))
    await settle(harness)
    assert ENDED not in pull.body
    assert f"newest commit `{harness.ended(made.id)[1].commit[:10]}`" in pull.body


async def test_words_of_people_in_the_body_stay(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    await published(harness)
    pull, _ = pull_and_check(fake_github)
    pull.body = f"A reviewer's note.\n\n{pull.body}"
    end_rest(harness, FOUND)
    await settle(harness)
    assert pull.body.startswith("A reviewer's note.")
    assert "**Broken.**" in pull.body


async def test_a_merged_pull_request_is_left_alone(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    await published(harness)
    pull, _ = pull_and_check(fake_github)
    pull.state, before = "closed", pull.body
    end_rest(harness, FOUND)
    await settle(harness)
    assert pull.body == before
    assert pull_and_check(fake_github)[1].conclusion == "failure"


async def test_a_rest_that_nobody_finishes_is_reported_as_unfinished(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    await published(harness)
    for _ in range(MAX_CRASHES):
        claim = harness.queue.claim("w1", MANY)
        assert claim is not None
        harness.queue.release(claim, crashed=True)
    await settle(harness)
    pull, check = pull_and_check(fake_github)
    assert "They did not finish. Their process ended too often, or their sandbox was lost." in pull.body
    assert (check.status, check.conclusion) == ("completed", "success")
    assert RUNNING not in str(check.title)


async def test_a_rest_that_fails_says_why(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await published(harness)
    result = harness.ended(made.id)[1].with_rest_state("pending", "The container engine does not answer.")
    harness.store.store_result(made.id, result.model_dump(mode="json"))
    harness.queue.give_up_rest(made.id)
    await settle(harness)
    assert "They did not finish. The container engine does not answer." in pull_and_check(fake_github)[0].body


async def test_a_rest_that_is_stopped_says_by_whom(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await published(harness)
    assert harness.queue.stop(made.id, "Stopped by grace.")
    await settle(harness)
    assert "They did not finish." in pull_and_check(fake_github)[0].body
    assert harness.ended(made.id)[0] == "pr_opened"


async def test_publishing_it_again_changes_nothing(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    """As after a crash between the effects and their record."""
    made = await published(harness)
    end_rest(harness, FOUND)
    final = harness.job_with_context(made.id)
    await settle(harness)
    body = pull_and_check(fake_github)[0].body
    assert harness.finalizer._publish_rest(final)
    await settle(harness)
    assert pull_and_check(fake_github)[0].body == body
    assert [each.state for each in harness.outbox.of(made.id) if isinstance(each.effect, UpdateVerdict)] == ["done"]


async def test_only_the_jobs_own_pull_request_is_changed(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    made = await published(harness)
    row = harness.job_with_context(made.id).row
    other = UpdateVerdict(branch="someone/else", banner="x", verification="y")
    key = harness.outbox.add(made.id, row.epoch, harness.place(), other)
    await settle(harness)
    assert harness.effect_status(key).state == "failed"
    assert harness.effect_status(key).reason == "This is not the branch of the job's pull request."


async def test_a_rest_leaves_labels_to_a_newer_job(harness: PublisherHarness, fake_github: FakeGitHubSetup) -> None:
    made = await published(harness)
    end_rest(harness, FOUND)
    fake_github.world.tick(1)
    again = await harness.admit()
    await settle(harness)
    assert harness.ended(made.id)[1].verification is not None
    assert harness.job_with_context(again.id).row.state == "queued"
    assert "agent-in-progress" in fake_github.issue.labels
    assert "agent-needs-human" not in fake_github.issue.labels
    assert pull_and_check(fake_github)[1].conclusion == "failure"


async def test_a_rest_leaves_the_label_that_requests_the_next_job(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    await published(harness)
    fake_github.issue.labels.append("agent-fix")
    end_rest(harness, FOUND)
    await settle(harness)
    assert {"agent-fix", "agent-needs-human"} <= set(fake_github.issue.labels)
