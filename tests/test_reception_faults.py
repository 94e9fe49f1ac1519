"""Bad days: GitHub is down, doors close, deliveries are nonsense, we have a bug; nothing stops and nothing is lost."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.events import Event
from app.jobs.inbox import Delivery
from app.jobs.queue import Limits
from app.reception.inflow import Inflow
from tests.fakes.github.faults import Fault
from tests.fakes.github.views import pull_view
from tests.front_desk import FrontDesk, front_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


async def warm(desk: FrontDesk) -> None:
    """Have every token that is needed: their hour is the world's, the assertions' ten minutes are the machine's."""
    await desk.labels(desk.world.open_issue(desk.repo, desk.owner, "Another"))


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_github_that_is_down_for_long_loses_nothing(desk: FrontDesk, status: int) -> None:
    await warm(desk)
    down = Fault("GET /repos/.*", status, times=100_000)
    desk.ground.github.faults.append(down)
    desk.hooks.held = True
    await desk.labels()
    began = desk.world.now
    desk.hooks.held = False
    await desk.hooks.attempt(desk.world.deliveries[1])
    asked = 0
    while desk.world.now - began < timedelta(minutes=45):
        asked += await desk.reception.next()
        desk.world.tick(10)
    assert len(desk.jobs()) == 1
    assert asked < 25, "the longer it lasts the more rarely it is asked"
    down.times = 0
    desk.world.tick(300)
    await desk.settle()
    assert len(desk.jobs()) == 2


async def test_silence_that_github_wants_is_kept(desk: FrontDesk) -> None:
    await warm(desk)
    limit = Fault("GET /repos/ada/sample", 429, "{}", {"retry-after": "900"})
    desk.ground.github.faults.append(limit)
    desk.hooks.held = True
    await desk.labels()
    desk.hooks.held = False
    await desk.hooks.attempt(desk.world.deliveries[1])
    await desk.reception.next()
    before = len(desk.ground.github.calls)
    for _ in range(44):
        desk.world.tick(20)
        await desk.reception.next()
    assert len(desk.ground.github.calls) == before, "not one request within the fifteen minutes"
    desk.world.tick(60)
    await desk.settle()
    assert len(desk.jobs()) == 2


async def test_an_answer_that_breaks_off_is_asked_again(desk: FrontDesk) -> None:
    desk.ground.github.faults.append(Fault("GET /repos/ada/sample/issues/1", cut=True, times=6))
    await desk.labels()
    assert len(desk.jobs()) == 1


async def test_what_the_forge_refuses_for_good_is_told_to_who_asked(desk: FrontDesk) -> None:
    refusal = '{"message": "Not this time @everyone"}'
    desk.ground.github.faults.append(Fault("GET /repos/ada/sample/issues/1/comments", 422, refusal, times=9))
    await desk.labels()
    assert desk.jobs() == []
    assert desk.answer.startswith("Nothing was started: GitHub answered 422")
    assert "`@everyone`" in desk.answer


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"action": 1}', b"\xff", b"[" * 5_000])
async def test_nonsense_is_put_aside(desk: FrontDesk, body: bytes) -> None:
    """The receiver lets none of these in; should one be there all the same, it stops nobody."""
    desk.books.inbox.store([Delivery("d-1", "issues", body)])
    await desk.labels()
    assert len(desk.jobs()) == 1
    assert desk.outcomes()[0].startswith("ignored: ")


async def test_a_bug_of_ours_is_given_up_after_three_attempts_and_stops_nobody(desk: FrontDesk) -> None:
    """A dead letter is taken out again when GitHub delivers it again."""
    seen: list[str] = []

    async def handle(event: Event) -> str:
        seen.append(event.kind)
        if event.kind == "labelled":
            raise KeyError("oops")
        return "fine"

    inflow = Inflow(desk.books.inbox, handle, desk.books.clock, "test")
    desk.hooks.held = True
    await desk.labels()
    await desk.says("/agent status")
    desk.hooks.held = False
    for delivery in desk.world.deliveries:
        await desk.hooks.attempt(delivery)
    for _ in range(10):
        await inflow.next()
        desk.world.tick(40)
    assert sorted(seen) == ["commented"] + ["labelled"] * 3
    assert desk.books.inbox.health().dead == 1
    desk.world.deliveries[0].guid = "again"
    await desk.hooks.attempt(desk.world.deliveries[0])
    await desk.settle()
    assert len(desk.jobs()) == 1


async def test_what_takes_long_stays_ours(desk: FrontDesk) -> None:
    """The lease is renewed while it is worked on, so that nobody else begins it."""
    release = asyncio.Event()

    async def handle(event: Event) -> str:
        await release.wait()
        return "fine"

    slow = Inflow(desk.books.inbox, handle, desk.books.clock, "slow", renew_every=0.01)
    desk.hooks.held = True
    await desk.labels()
    desk.hooks.held = False
    await desk.hooks.attempt(desk.world.deliveries[0])
    working = asyncio.create_task(slow.next())
    for _ in range(20):
        desk.world.tick(10)
        await asyncio.sleep(0.02)
        assert desk.books.inbox.claim("another") == []
    release.set()
    assert await working == 1
    assert desk.outcomes() == ["fine"]


@pytest.mark.parametrize("gone", ["deleted", "suspended", "removed"])
async def test_a_door_that_closes_ends_the_jobs_behind_it_at_once(desk: FrontDesk, gone: str) -> None:
    """R22: also one that a process works on, which is fenced off and told by its next heartbeat."""
    await desk.labels()
    desk.books.roster.mark_ready(desk.job.job.id)
    claim = desk.books.queue.claim("worker", Limits())
    assert claim
    before = len(desk.ground.github.calls)
    if gone == "removed":
        installation = desk.ground.installation
        await desk.hooks.repositories_removed(installation, [desk.repo], desk.owner)
    else:
        action = {"suspended": "suspend"}.get(gone, gone)
        await desk.hooks.installation_changed(desk.ground.installation, action, desk.owner)
    await desk.settle()
    assert desk.job.row.state == "no_access"
    assert not desk.books.queue.heartbeat(claim)
    assert len(desk.ground.github.calls) == before, "nothing is asked of a door that is closed"


@pytest.mark.parametrize(("status", "words"), [(403, "suspended"), (404, "Not Found"), (410, "gone"), (451, "blocked")])
async def test_what_comes_from_behind_a_closed_door_begins_nothing(desk: FrontDesk, status: int, words: str) -> None:
    await desk.says("/agent status")
    answer = f'{{"message": "{words}"}}'
    desk.ground.github.faults.append(Fault("GET /repos.*", status, answer, times=1_000))
    before = len(desk.ground.github.calls)
    await desk.labels()
    assert desk.jobs() == []
    assert len(desk.ground.github.calls) - before <= 3, "no storm of retries"
    assert desk.decided() == [outcome for outcome in desk.decided() if not outcome.startswith("skip foreign")]


async def test_a_repository_that_is_archived_or_moved_away_ends_its_jobs(desk: FrontDesk) -> None:
    await desk.labels()
    desk.repo.archived = True
    await desk.hooks.send("repository", "archived", desk.repo, desk.ground.installation, desk.owner)
    await desk.settle()
    assert desk.job.row.state == "no_access"


async def test_a_repository_that_was_renamed_keeps_its_jobs(desk: FrontDesk) -> None:
    await desk.labels()
    desk.repo.name = "renamed"
    await desk.hooks.send("repository", "renamed", desk.repo, desk.ground.installation, desk.owner)
    await desk.settle()
    assert desk.job.row.state == "queued"
    told = next(row.text for row in desk.books.store.said(desk.job.job.id))
    assert told.startswith("The repository has another name")


async def test_a_repository_that_was_transferred_away_ends_its_jobs(desk: FrontDesk) -> None:
    await desk.labels()
    desk.ground.installation.repositories.clear()
    await desk.hooks.send("repository", "transferred", desk.repo, desk.ground.installation, desk.owner)
    await desk.settle()
    assert desk.job.row.state == "no_access"


@pytest.mark.parametrize(
    ("what", "state"), [("closed", "stopped"), ("unlabelled", "stopped"), ("edited", "queued"), ("reopened", "queued")]
)
async def test_what_happens_to_the_issue_is_heard_by_its_job(desk: FrontDesk, what: str, state: str) -> None:
    await desk.labels()
    place = (desk.repo, desk.ground.installation, desk.owner, desk.issue)
    match what:
        case "unlabelled":
            await desk.hooks.unlabeled(*place, "agent-fix")
        case "edited":
            await desk.hooks.edited(*place, "Something else.")
        case _:
            await desk.hooks.turned(*place, "closed" if what == "closed" else "open")
    await desk.settle()
    assert desk.job.row.state == state
    notes = [row.text for row in desk.books.store.said(desk.job.job.id) if row.kind == "note"]
    assert len(notes) == (what == "edited")


async def test_our_own_taking_off_of_the_label_stops_nothing(desk: FrontDesk) -> None:
    await desk.labels()
    place = (desk.repo, desk.ground.installation, desk.world.bot, desk.issue)
    await desk.hooks.unlabeled(*place, "agent-fix")
    await desk.settle()
    assert desk.job.row.state == "queued"


@pytest.mark.parametrize("where", ["comment", "line", "issue"])
async def test_what_was_deleted_is_not_wished_any_more(desk: FrontDesk, where: str) -> None:
    pull = desk.open_pull()
    desk.hooks.held = True
    if where == "line":
        comment = await desk.says_inline("/agent fix it", pull)
        desk.repo.threads.clear()
    else:
        comment = await desk.says("/agent fix it")
        desk.issue.comments.remove(comment.id)
    del desk.repo.comments[comment.id]
    if where == "issue":
        del desk.repo.issues[desk.issue.number]
    await desk.deliver()
    assert (desk.jobs(), desk.answers()) == ([], [])
    assert desk.decided() == ["skip taken_back: the comment was deleted"]


async def test_a_push_to_the_branch_is_told_to_the_job_at_work_there(desk: FrontDesk) -> None:
    pull = desk.open_pull()
    await desk.says("/agent fix it", pull)
    desk.world.push_as_human(desk.repo, "topic", {"app/money.py": "half = 0.7\n"})
    content = {"pull_request": pull_view(desk.repo, pull)}
    await desk.hooks.send("pull_request", "synchronize", desk.repo, desk.ground.installation, desk.owner, **content)
    await desk.settle()
    assert [row.text for row in desk.books.store.said(desk.job.job.id)] == [
        "Somebody pushed to the branch; their commits are kept."
    ]
