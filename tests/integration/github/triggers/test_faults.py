"""GitHub is down, installations are suspended, deliveries are malformed, we have a bug; nothing stops or is lost."""

import asyncio
from datetime import timedelta

import pytest

from app.jobs.inbox import Delivery
from app.jobs.job_actions import ProgramRequest
from app.jobs.queue import QueueLimits
from app.triggers.events import Event
from app.triggers.loops import DeliveryWorker
from tests.support.event_harness import EventHarness
from tests.support.github.faults import Fault
from tests.support.github.views import pull_view


async def warm(harness: EventHarness) -> None:
    """Have every token that is needed: their hour is the world's, the assertions' ten minutes are the machine's."""
    await harness.labels(harness.world.open_issue(harness.repo, harness.owner, "Another"))


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_long_github_outage_loses_nothing(harness: EventHarness, status: int) -> None:
    await warm(harness)
    down = Fault("GET /repos/.*", status, times=100_000)
    harness.fake_github.github.faults.append(down)
    harness.hooks.held = True
    await harness.labels()
    began = harness.world.now
    harness.hooks.held = False
    await harness.hooks.attempt(harness.world.deliveries[1])
    asked = 0
    while harness.world.now - began < timedelta(minutes=45):
        asked += await harness.trigger_loops.next_delivery()
        harness.world.tick(10)
    assert len(harness.jobs()) == 1
    assert asked < 25, "the longer it lasts the more rarely it is asked"
    down.times = 0
    harness.world.tick(300)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 2


async def test_a_rate_limit_is_obeyed(harness: EventHarness) -> None:
    await warm(harness)
    limit = Fault("GET /repos/ada/sample", 429, "{}", {"retry-after": "900"})
    harness.fake_github.github.faults.append(limit)
    harness.hooks.held = True
    await harness.labels()
    harness.hooks.held = False
    await harness.hooks.attempt(harness.world.deliveries[1])
    await harness.trigger_loops.next_delivery()
    before = len(harness.fake_github.github.calls)
    for _ in range(44):
        harness.world.tick(20)
        await harness.trigger_loops.next_delivery()
    assert len(harness.fake_github.github.calls) == before, "not one request within the fifteen minutes"
    harness.world.tick(60)
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 2


async def test_an_answer_that_breaks_off_is_asked_again(harness: EventHarness) -> None:
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/sample/issues/1", cut=True, times=6))
    await harness.labels()
    assert len(harness.jobs()) == 1


async def test_a_permanent_refusal_by_github_is_reported_to_the_requester(harness: EventHarness) -> None:
    refusal = '{"message": "Not this time @everyone"}'
    harness.fake_github.github.faults.append(Fault("GET /repos/ada/sample/issues/1/comments", 422, refusal, times=9))
    await harness.labels()
    assert harness.jobs() == []
    assert harness.answer.startswith("Nothing was started: GitHub answered 422")
    assert "`@everyone`" in harness.answer


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"action": 1}', b"\xff", b"[" * 5_000])
async def test_an_unreadable_delivery_is_ignored(harness: EventHarness, body: bytes) -> None:
    """The receiver lets none of these in; should one be there all the same, it stops nobody."""
    harness.stores.inbox.store([Delivery("d-1", "issues", body)])
    await harness.labels()
    assert len(harness.jobs()) == 1
    assert harness.outcomes()[0].startswith("ignored: ")


async def no_request(request: ProgramRequest) -> str:
    raise AssertionError(f"no program asks for {request.job} here")


async def test_an_internal_error_is_given_up_after_three_attempts(harness: EventHarness) -> None:
    """A dead letter is taken out again when GitHub delivers it again."""
    seen: list[str] = []

    async def handle(event: Event) -> str:
        seen.append(event.kind)
        if event.kind == "labelled":
            raise KeyError("oops")
        return "fine"

    delivery_worker = DeliveryWorker(harness.stores.inbox, handle, harness.stores.clock, "test", carry_out=no_request)
    harness.hooks.held = True
    await harness.labels()
    await harness.says("/agent status")
    harness.hooks.held = False
    for delivery in harness.world.deliveries:
        await harness.hooks.attempt(delivery)
    for _ in range(10):
        await delivery_worker.next()
        harness.world.tick(40)
    assert sorted(seen) == ["commented"] + ["labelled"] * 3
    assert harness.stores.inbox.health().dead == 1
    harness.world.deliveries[0].guid = "again"
    await harness.hooks.attempt(harness.world.deliveries[0])
    await harness.wait_until_handled()
    assert len(harness.jobs()) == 1


async def test_a_slow_delivery_keeps_its_lease(harness: EventHarness) -> None:
    """The lease is renewed while it is worked on, so that nobody else begins it."""
    release = asyncio.Event()

    async def handle(event: Event) -> str:
        await release.wait()
        return "fine"

    inbox, clock = harness.stores.inbox, harness.stores.clock
    slow = DeliveryWorker(inbox, handle, clock, "slow", carry_out=no_request, renew_every=0.01)
    harness.hooks.held = True
    await harness.labels()
    harness.hooks.held = False
    await harness.hooks.attempt(harness.world.deliveries[0])
    working = asyncio.create_task(slow.next())
    for _ in range(20):
        harness.world.tick(10)
        await asyncio.sleep(0.02)
        assert harness.stores.inbox.claim("another") == []
    release.set()
    assert await working == 1
    assert harness.outcomes() == ["fine"]


@pytest.mark.parametrize("gone", ["deleted", "suspended", "removed"])
async def test_removing_the_installation_ends_its_jobs_at_once(harness: EventHarness, gone: str) -> None:
    """R22: also one that a process works on, which is fenced off and told by its next heartbeat."""
    await harness.labels()
    harness.stores.job_queries.mark_ready(harness.job.job.id)
    claim = harness.stores.queue.claim("worker", QueueLimits(jobs=4, per_repository=2))
    assert claim
    before = len(harness.fake_github.github.calls)
    if gone == "removed":
        installation = harness.fake_github.installation
        await harness.hooks.repositories_removed(installation, [harness.repo], harness.owner)
    else:
        action = {"suspended": "suspend"}.get(gone, gone)
        await harness.hooks.installation_changed(harness.fake_github.installation, action, harness.owner)
    await harness.wait_until_handled()
    assert harness.job.row.state == "no_access"
    assert not harness.stores.queue.heartbeat(claim)
    assert len(harness.fake_github.github.calls) == before, "no request to a suspended installation"


@pytest.mark.parametrize(("status", "words"), [(403, "suspended"), (404, "Not Found"), (410, "gone"), (451, "blocked")])
async def test_a_delivery_of_a_removed_installation_starts_nothing(
    harness: EventHarness, status: int, words: str
) -> None:
    await harness.says("/agent status")
    answer = f'{{"message": "{words}"}}'
    harness.fake_github.github.faults.append(Fault("GET /repos.*", status, answer, times=1_000))
    before = len(harness.fake_github.github.calls)
    await harness.labels()
    assert harness.jobs() == []
    assert len(harness.fake_github.github.calls) - before <= 3, "no storm of retries"
    assert harness.decided() == [outcome for outcome in harness.decided() if not outcome.startswith("skip foreign")]


async def test_a_repository_that_is_archived_or_moved_away_ends_its_jobs(harness: EventHarness) -> None:
    await harness.labels()
    harness.repo.archived = True
    await harness.hooks.send("repository", "archived", harness.repo, harness.fake_github.installation, harness.owner)
    await harness.wait_until_handled()
    assert harness.job.row.state == "no_access"


async def test_a_repository_that_was_renamed_keeps_its_jobs(harness: EventHarness) -> None:
    await harness.labels()
    harness.repo.rename("renamed")
    await harness.hooks.send("repository", "renamed", harness.repo, harness.fake_github.installation, harness.owner)
    await harness.wait_until_handled()
    assert harness.job.row.state == "queued"
    told = next(row.text for row in harness.stores.job_store().progress_since(harness.job.job.id))
    assert told.startswith("The repository was renamed")


async def test_a_repository_that_was_transferred_away_ends_its_jobs(harness: EventHarness) -> None:
    await harness.labels()
    harness.fake_github.installation.repositories.clear()
    await harness.hooks.send("repository", "transferred", harness.repo, harness.fake_github.installation, harness.owner)
    await harness.wait_until_handled()
    assert harness.job.row.state == "no_access"


@pytest.mark.parametrize(
    ("what", "state"), [("closed", "stopped"), ("unlabelled", "stopped"), ("edited", "queued"), ("reopened", "queued")]
)
async def test_events_of_an_issue_reach_its_job(harness: EventHarness, what: str, state: str) -> None:
    await harness.labels()
    place = (harness.repo, harness.fake_github.installation, harness.owner, harness.issue)
    match what:
        case "unlabelled":
            await harness.hooks.unlabeled(*place, "agent-fix")
        case "edited":
            await harness.hooks.edited(*place, "Something else.")
        case _:
            await harness.hooks.turned(*place, "closed" if what == "closed" else "open")
    await harness.wait_until_handled()
    assert harness.job.row.state == state
    notes = [row.text for row in harness.stores.job_store().progress_since(harness.job.job.id) if row.kind == "note"]
    assert len(notes) == (what == "edited")


async def test_our_own_taking_off_of_the_label_stops_nothing(harness: EventHarness) -> None:
    await harness.labels()
    place = (harness.repo, harness.fake_github.installation, harness.world.bot, harness.issue)
    await harness.hooks.unlabeled(*place, "agent-fix")
    await harness.wait_until_handled()
    assert harness.job.row.state == "queued"


@pytest.mark.parametrize("where", ["comment", "line", "issue"])
async def test_a_deleted_comment_starts_nothing(harness: EventHarness, where: str) -> None:
    pull = harness.open_pull()
    harness.hooks.held = True
    if where == "line":
        comment = await harness.says_inline("/agent fix it", pull)
        harness.repo.threads.clear()
    else:
        comment = await harness.says("/agent fix it")
        harness.issue.comments.remove(comment.id)
    del harness.repo.comments[comment.id]
    if where == "issue":
        del harness.repo.issues[harness.issue.number]
    await harness.deliver()
    assert (harness.jobs(), harness.answers()) == ([], [])
    assert harness.decided() == ["skip withdrawn: the comment was deleted"]


async def test_a_push_to_the_branch_reaches_its_job(harness: EventHarness) -> None:
    pull = harness.open_pull()
    await harness.says("/agent fix it", pull)
    harness.world.push_as_human(harness.repo, "topic", {"app/money.py": "half = 0.7\n"})
    content = {"pull_request": pull_view(harness.repo, pull)}
    await harness.hooks.send(
        "pull_request", "synchronize", harness.repo, harness.fake_github.installation, harness.owner, **content
    )
    await harness.wait_until_handled()
    assert [row.text for row in harness.stores.job_store().progress_since(harness.job.job.id)] == [
        "Someone pushed to the branch; agent-fix keeps their commits."
    ]
