"""The rest of a long suite in the queue: behind all jobs, counted, given up, stopped, and told once."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.jobs.outcomes import Outcomes
from app.jobs.queue import LEASE, MAX_CRASHES, MAX_WORKER_DEATHS, JobClaim, QueueLimits
from app.jobs.store import ALL_JOBS_EVERY
from app.publish.effects import AnswerReviewThread, LabelAndRequestReview, UpdateStatusComment
from tests.support.databases import DIALECTS, database
from tests.support.job_queue import Server
from tests.support.server_jobs import issue_ref


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with database(request.param, tmp_path) as engine:
        yield Server(engine)


def published(server: Server, name: str = "a", number: int = 3) -> str:
    """A job whose pull request is open, and of whose suite a rest is to be run."""
    server.admit(name, number=number)
    server.queue.hand_over(server.take(), {"exit_status": "pr_opened"})
    server.queue.release(JobClaim(name, server.row(name).epoch, "w1", resumed=False))
    server.store.finish(name, "pr_opened", "", {"exit_status": "pr_opened"}, waiting_for="rest")
    return name


def rest(server: Server, name: str = "a") -> str:
    found = server.job_queries.get(name)
    assert found is not None
    return found.waiting_for


def test_the_rest_of_a_suite_is_run_where_no_other_job_waits(server: Server) -> None:
    published(server)
    server.admit("b", number=4)
    assert server.claim() == "b"
    assert server.claim() == "a", "now that nothing else waits"
    assert server.claim() == ""
    assert server.state("a") == "pr_opened", "it stays what it is"
    assert server.job_queries.active(2, 3) is None, "and another job of the issue may begin"


def test_the_rest_of_a_suite_counts_as_a_job_in_progress(server: Server) -> None:
    one = QueueLimits(jobs=1, per_repository=1)
    published(server)
    claim = server.take()
    assert not server.queue.others_wait(claim, one)
    server.admit("b", number=4)
    assert server.claim(limits=one) == ""
    assert server.queue.others_wait(claim, one), "so the rest gives way"
    server.queue.release(claim)
    assert server.claim(limits=one) == "b"
    assert rest(server) == "rest", "it goes on later"


def test_a_job_of_a_repository_that_is_full_anyway_is_given_no_way(server: Server) -> None:
    limits = QueueLimits(jobs=10, per_repository=1)
    published(server)
    claim = server.take()
    server.admit("b", repository=9)
    assert server.claim(limits=limits) == "b"
    server.admit("c", repository=9, number=4)
    assert not server.queue.others_wait(claim, limits)


def test_a_rest_waits_while_its_repository_is_at_its_limit(server: Server) -> None:
    limits = QueueLimits(jobs=9, per_repository=1)
    published(server, "a")
    published(server, "b", number=4)
    server.admit("c", number=5)
    assert [each.job for each in server.queue.claim_several("w1", limits, 9)] == ["c"]
    assert server.claim(limits=limits) == "", "the repository has a job in progress"
    server.store.finish("c", "stopped", "why", {})
    server.queue.release(JobClaim("c", server.row("c").epoch, "w1", resumed=False))
    assert [each.job for each in server.queue.claim_several("w1", limits, 9)] == ["a"], "and one rest at once"


def test_a_rest_whose_worker_dies_is_taken_over_and_given_up_after_some_deaths(server: Server) -> None:
    published(server)
    for _ in range(MAX_WORKER_DEATHS):
        assert server.claim() == "a"
        server.clock.passes(LEASE + timedelta(seconds=1))
    assert server.claim() == ""
    assert (rest(server), server.state("a")) == ("rest_ended", "pr_opened")
    assert [each.job.id for each in server.job_queries.ended_rests()] == ["a"]


def test_a_rest_whose_process_fails_is_given_up_after_some_failures(server: Server) -> None:
    published(server)
    for _ in range(MAX_CRASHES):
        server.queue.release(server.take(), crashed=True)
    assert (rest(server), server.state("a")) == ("rest_ended", "pr_opened")


def test_a_rest_is_stopped_at_once_where_nobody_works_on_it(server: Server) -> None:
    published(server)
    assert server.queue.stop("a", "Stopped by ada.")
    assert (rest(server), server.state("a")) == ("rest_ended", "pr_opened")
    assert server.queue.stop_reason("a") == "Stopped by ada."


def test_a_rest_that_is_worked_on_is_stopped_when_its_process_has_ended(server: Server) -> None:
    published(server)
    claim = server.take()
    assert not server.queue.stop("a", "Stopped by ada.")
    assert server.queue.to_stop() == {"a"}
    server.queue.release(claim)
    assert server.claim() == ""
    assert rest(server) == "rest_ended"


def test_only_who_holds_a_rest_stores_its_result(server: Server) -> None:
    published(server)
    former = server.take()
    server.clock.passes(LEASE + timedelta(seconds=1))
    claim = server.take("w2")
    broken = {"exit_status": "pr_opened", "reason": "why", "verification": {"verdict": "broken"}}
    assert not server.queue.end_rest(former, broken)
    assert rest(server) == "rest"
    assert server.queue.end_rest(claim, broken)
    assert (rest(server), server.row("a").owner) == ("rest_ended", None)
    server.job_queries.published_rest("a", broken)
    assert (rest(server), server.row("a").result, server.row("a").reason) == ("", broken, "why")
    assert [each.job.id for each in server.job_queries.not_posted(ALL_JOBS_EVERY)] == ["a"], "people are told again"


def test_a_rest_that_ends_while_its_job_is_being_posted_is_posted_afterwards(server: Server) -> None:
    published(server)
    (read,) = server.job_queries.not_posted(ALL_JOBS_EVERY)
    server.job_queries.published_rest("a", {"exit_status": "pr_opened"})
    server.job_queries.mark_posted(read)
    (again,) = server.job_queries.not_posted(ALL_JOBS_EVERY)
    server.job_queries.mark_posted(again)
    assert server.job_queries.not_posted(ALL_JOBS_EVERY) == ()


def test_the_rest_of_a_suite_is_found_by_issue_and_by_pull_request(server: Server) -> None:
    published(server)
    result = {"exit_status": "pr_opened", "url": "https://github.example/ada/sample/pull/17"}
    server.store.store_result("a", result)
    for number in (3, 17):
        found = server.job_queries.with_rest(2, number)
        assert found is not None
        assert found.job.id == "a"
    assert server.job_queries.with_rest(2, 7) is None
    assert server.job_queries.with_rest(9, 3) is None


def test_effects_of_publishing_are_carried_out_while_the_rest_runs(server: Server) -> None:
    published(server)
    effect = LabelAndRequestReview(branch="agent-fix/issue-3", labels=("bot",))
    key = server.outbox.add("a", server.row("a").epoch, issue_ref(), effect)
    for _ in range(2):  # claimed, left for a job that waits, claimed again
        server.queue.release(server.take())
    claim = server.outbox.claim("p1")
    assert claim is not None
    assert claim.key == key


def test_effects_of_a_former_owner_do_not_hold_up_those_of_other_jobs(server: Server) -> None:
    server.admit("lost")
    for number in range(60):
        server.outbox.add("lost", 0, issue_ref(), AnswerReviewThread(comment=number, body="Changed."))
    server.take()
    server.clock.passes(timedelta(seconds=1))
    server.admit("healthy", number=4)
    key = server.outbox.add("healthy", 0, issue_ref(4), UpdateStatusComment(body="working"))
    claim = server.outbox.claim("p1")
    assert claim is not None
    assert claim.key == key


def test_a_rest_that_cannot_be_started_is_tried_again_later(server: Server) -> None:
    published(server)
    claim = server.take()
    server.queue.postpone(claim, "The cluster does not answer.", timedelta(seconds=30))
    server.queue.release(claim)
    assert server.claim() == ""
    assert (server.state("a"), server.row("a").epoch, rest(server)) == ("pr_opened", claim.epoch, "rest")
    server.clock.passes(timedelta(seconds=31))
    assert server.claim() == "a"


def test_only_who_holds_a_rest_postpones_it(server: Server) -> None:
    published(server)
    former = server.take()
    server.clock.passes(LEASE + timedelta(seconds=1))
    claim = server.take("w2")
    server.queue.postpone(former, "", timedelta(days=1))
    server.queue.release(claim)
    assert server.claim() == "a"


def test_the_outcome_is_recorded_once_when_the_rest_has_ended(server: Server) -> None:
    outcomes = Outcomes(server.engine, server.clock)
    published(server)
    assert outcomes.record_ended() == 0
    broken = {"exit_status": "pr_opened", "verification": {"verdict": "broken"}}
    assert server.queue.end_rest(server.take(), broken)
    assert outcomes.record_ended() == 0, "people are not told yet"
    server.clock.passes(timedelta(hours=1))
    server.job_queries.published_rest("a", broken)
    assert (outcomes.record_ended(), outcomes.record_ended()) == (1, 0)
    (found,) = outcomes.since(0.0, server.clock().timestamp())
    assert found.verdict == "broken"
