"""Each effect is carried out once, in its newest version, and only for the process that still owns the job."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from app.core.errors import AgentFixError, OutputError
from app.core.task import IssueRef, Person
from app.github.base import NeedsHumanAction, NoAccess, RateLimited, ReactionTarget, TemporaryFailure
from app.jobs.tables import effects, jobs, metadata, receipts
from app.publish.effects import (
    EDITS_APART,
    EFFECT_ADAPTER,
    LEASE,
    MAX_DEATHS,
    MAX_TRIES,
    AddFollowUpSection,
    AddReaction,
    AnswerReviewThread,
    ChangeLabels,
    CommitRecipe,
    Effect,
    LabelAndRequestReview,
    OpenDraftPullRequest,
    PushCommits,
    Receipt,
    UpdateStatusComment,
    WriteCheckRun,
    after_failure,
    after_success,
    after_want,
    key_of,
    pause_after,
)
from app.publish.outbox import Outbox, StaleEpoch
from app.publish.policy import PublishRefused
from app.publish.publisher import Publisher
from tests.support.databases import DIALECTS, database
from tests.support.file_conversation import FileForge, as_wished

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLACE = IssueRef(installation=1, repository=2, owner="ada", name="sample", number=3)
RECIPE = CommitRecipe(patch="c" * 64, message="Fix\n", author=Person(name="bot", email="bot@forge.example"), date=NOW)
DRAFT = OpenDraftPullRequest(
    branch="agent-fix/issue-3", commit="a" * 40, recipe=RECIPE, base="main", title="Fix", body="Fixes #3"
)
ALL: tuple[Effect, ...] = (
    DRAFT,
    PushCommits(branch="agent-fix/issue-3", commit="b" * 40, recipe=RECIPE, expected="a" * 40),
    LabelAndRequestReview(branch="agent-fix/issue-3", labels=("bot",), reviewers=("grace",)),
    AddFollowUpSection(section="## Follow-up"),
    UpdateStatusComment(body="working"),
    ChangeLabels(add=("agent-in-progress",), remove=("agent-fix",)),
    AddReaction(target=ReactionTarget(kind="issue", id=3), content="eyes"),
    WriteCheckRun(name="agent-fix", commit="a" * 40, title="Proved", summary="🟢", conclusion="success"),
    AnswerReviewThread(comment=7, body="Because.", thread="T"),
)


@dataclass
class OutboxHarness:
    """The tables with one job at epoch 1, and a clock that is told the time."""

    directory: Path
    engine: Engine
    now: datetime = NOW
    trouble: list[AgentFixError] = field(default_factory=list)

    def __post_init__(self) -> None:
        metadata.create_all(self.engine)
        self.outbox = Outbox(self.engine, lambda: self.now)
        self.forge = FileForge(self.directory, self.trouble)
        row = {"id": "j1", "key": "k", "state": "working", "job": {}, "epoch": 1, "created_at": NOW, "updated_at": NOW}
        with self.engine.begin() as db:
            db.execute(jobs.insert().values(row))

    def take_over(self) -> int:
        with self.engine.begin() as db:
            db.execute(jobs.update().values(epoch=jobs.c.epoch + 1))
            return int(db.execute(sa.select(jobs.c.epoch)).scalar_one())

    async def publish(self, owner: str = "p1") -> int:
        """Everything that is due; returns how much that was."""

        async def open_forge(_place: IssueRef) -> FileForge:
            return self.forge

        publisher, count = Publisher(self.outbox, open_forge, as_wished, owner), 0
        while await publisher.publish_next():
            count += 1
        return count

    def state(self, key: str) -> str:
        status = self.outbox.status(key)
        assert status is not None
        return status.state


@pytest.fixture(params=DIALECTS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OutboxHarness]:
    (tmp_path / "forge").mkdir()
    with database(str(request.param), tmp_path) as engine:
        yield OutboxHarness(tmp_path / "forge", engine)


@pytest.mark.parametrize("effect", ALL, ids=lambda effect: effect.kind)
async def test_every_effect_kind_is_made_and_gets_a_receipt(harness: OutboxHarness, effect: Effect) -> None:
    key = harness.outbox.add("j1", 1, PLACE, effect)
    assert harness.state(key) == "wanted"
    assert await harness.publish() == 1
    status = harness.outbox.status(key)
    assert status is not None
    assert (status.state, status.effect) == ("done", effect)
    assert status.receipt is not None
    assert await harness.publish() == 0
    made = list(harness.directory.iterdir())
    assert made
    assert all(len(path.read_text().splitlines()) == 1 for path in made)


async def test_a_draft_is_its_branch_and_its_pull_request(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    await harness.publish()
    assert harness.forge.made("branch") == [f"agent-fix/issue-3 {'a' * 40}"]
    assert harness.forge.made("pull-request") == ["agent-fix/issue-3 Fix"]
    status = harness.outbox.status(key)
    assert status is not None
    assert status.receipt == Receipt(url="https://forge.example/pull-request", branch="agent-fix/issue-3")


def test_effect_keys_are_deterministic_and_distinct() -> None:
    keys = [key_of("j1", effect) for effect in ALL]
    assert keys == [key_of("j1", EFFECT_ADAPTER.validate_json(effect.model_dump_json())) for effect in ALL]
    assert len(set(keys)) == len(ALL)
    assert not set(keys) & {key_of("j2", effect) for effect in ALL}
    assert key_of("j1", UpdateStatusComment(body="a")) == key_of("j1", UpdateStatusComment(body="b"))
    assert key_of("j1", DRAFT) == key_of("j1", DRAFT.model_copy(update={"title": "Better"}))


def test_effect_with_unknown_fields_is_refused() -> None:
    with pytest.raises(ValueError):
        EFFECT_ADAPTER.validate_python({"kind": "status_comment", "body": "x", "repository": "other/one"})
    with pytest.raises(ValueError):
        EFFECT_ADAPTER.validate_python({"kind": "merge"})


async def test_newest_version_is_written_and_edits_are_spaced(harness: OutboxHarness) -> None:
    for text in ("one", "two", "three"):
        key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body=text))
    await harness.publish()
    assert harness.forge.made("comment-j1") == ["three"]
    for text in ("four", "five"):
        harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body=text))
        assert await harness.publish() == 0, "too soon after the last edit"
    harness.now += EDITS_APART
    assert await harness.publish() == 1
    assert harness.forge.made("comment-j1") == ["three", "five"]
    assert harness.state(key) == "done"


async def test_repeated_effect_is_made_once(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    await harness.publish()
    harness.now += timedelta(hours=1)
    assert harness.outbox.add("j1", 1, PLACE, DRAFT) == key
    assert await harness.publish() == 0


async def test_version_added_during_a_write_is_written_after_it(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="one"))
    claim = harness.outbox.claim("p1")
    assert claim is not None
    harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="two"))
    assert harness.outbox.claim("p2") is None, "it is in one pair of hands"
    harness.outbox.done(claim, Receipt(url="x"))
    assert harness.state(key) == "wanted"
    harness.now += EDITS_APART
    await harness.publish()
    assert harness.forge.made("comment-j1") == ["two"]
    assert harness.state(key) == "done"


async def test_version_added_during_a_refused_write_is_written(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="one"))
    claim = harness.outbox.claim("p1")
    assert claim is not None
    harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="two"))
    harness.outbox.failed(claim, NeedsHumanAction("too long"))
    assert harness.state(key) == "wanted"
    harness.now += EDITS_APART
    await harness.publish()
    assert harness.forge.made("comment-j1") == ["two"]
    assert harness.state(key) == "done"


async def test_a_version_added_while_the_receipt_is_written_is_written_after_it(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="one"))
    claim = harness.outbox.claim("p1")
    assert claim is not None
    finishing = Thread(target=harness.outbox.done, args=(claim, Receipt(url="x")))

    def between_read_and_write(_db: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("UPDATE effects") and not finishing.ident:
            finishing.start()
            finishing.join(0.5)  # it ends now where nothing keeps it from the row, and otherwise after the addition

    sa.event.listen(harness.engine, "before_cursor_execute", between_read_and_write)
    harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="two"))
    finishing.join()
    assert harness.state(key) == "wanted"
    harness.now += EDITS_APART
    await harness.publish()
    assert harness.forge.made("comment-j1") == ["two"]


async def test_process_that_lost_its_job_adds_no_effect(harness: OutboxHarness) -> None:
    harness.take_over()
    with pytest.raises(StaleEpoch):
        harness.outbox.add("j1", 1, PLACE, DRAFT)
    with pytest.raises(StaleEpoch):
        harness.outbox.adopt("j1", 1)
    with pytest.raises(StaleEpoch):
        harness.outbox.add("unknown", 1, PLACE, DRAFT)
    assert await harness.publish() == 0


async def test_effect_of_a_former_owner_waits_for_adoption(harness: OutboxHarness) -> None:
    harness.outbox.add("j1", 1, PLACE, DRAFT)
    epoch = harness.take_over()
    assert await harness.publish() == 0
    assert harness.forge.made("pull-request") == []
    assert harness.outbox.adopt("j1", epoch) == 1
    assert await harness.publish() == 1
    harness.take_over()
    assert harness.forge.made("pull-request") == ["agent-fix/issue-3 Fix"]


async def test_status_comment_can_be_adopted_without_the_branch(harness: OutboxHarness) -> None:
    harness.outbox.add("j1", 1, PLACE, DRAFT)
    harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="x"))
    assert harness.outbox.adopt("j1", harness.take_over(), branches=False) == 1
    assert await harness.publish() == 1
    assert harness.forge.made("pull-request") == []


async def test_adding_an_effect_again_adopts_it(harness: OutboxHarness) -> None:
    harness.outbox.add("j1", 1, PLACE, DRAFT)
    harness.outbox.add("j1", harness.take_over(), PLACE, DRAFT)
    assert await harness.publish() == 1


async def test_temporary_failures_are_retried_and_refusals_are_not(harness: OutboxHarness) -> None:
    harness.trouble += [TemporaryFailure("502"), TemporaryFailure("502")]
    key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="x"))
    for attempt in (1, 2):
        assert await harness.publish() == 1
        assert await harness.publish() == 0, "not at once"
        harness.now += pause_after(attempt)
    assert await harness.publish() == 1
    assert harness.state(key) == "done"
    harness.trouble.append(NeedsHumanAction("protected branch"))
    refused = harness.outbox.add("j1", 1, PLACE, DRAFT)
    await harness.publish()
    status = harness.outbox.status(refused)
    assert status is not None
    assert (status.state, status.reason, status.receipt) == ("failed", "protected branch", None)
    harness.now += timedelta(days=1)
    assert await harness.publish() == 0


async def test_rate_limits_are_waited_for_without_a_count(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="x"))
    for _ in range(3 * MAX_DEATHS):
        until = harness.now + timedelta(minutes=7)
        harness.trouble.append(RateLimited("limit", until=until))
        assert await harness.publish() == 1
        assert harness.outbox.next_due() == until
        harness.now = until - timedelta(seconds=1)
        assert await harness.publish() == 0, "not before"
        harness.now = until
    assert await harness.publish() == 1
    assert harness.state(key) == "done"
    assert harness.outbox.next_due() is None


async def test_one_hour_outage_of_the_forge_is_survived(harness: OutboxHarness) -> None:
    """R34: nothing has to be done by hand, and it goes on within two minutes."""
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    back = harness.now + timedelta(hours=1)
    while harness.now < back:
        harness.trouble[:] = [TemporaryFailure("502")]
        await harness.publish()
        harness.now = harness.outbox.next_due() or back
    harness.trouble.clear()
    assert harness.now - back <= timedelta(minutes=2)
    assert await harness.publish() == 1
    assert harness.state(key) == "done"


async def test_dead_publisher_is_replaced_when_its_lease_ends(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    dead = harness.outbox.claim("p1")
    assert dead is not None
    assert await harness.publish("p2") == 0
    harness.now += LEASE
    assert await harness.publish("p2") == 1
    assert harness.state(key) == "done"
    harness.outbox.failed(dead, NoAccess("late"))
    assert harness.state(key) == "done", "a late failure of the first changes nothing"
    harness.outbox.done(dead, Receipt(url="late"))
    status = harness.outbox.status(key)
    assert status is not None
    assert status.receipt == Receipt(url="https://forge.example/pull-request", branch="agent-fix/issue-3")


async def test_effect_that_kills_every_publisher_is_given_up(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    for _ in range(MAX_DEATHS):
        assert harness.outbox.claim("p") is not None
        harness.now += LEASE
    assert harness.outbox.claim("p") is None
    status = harness.outbox.status(key)
    assert status is not None
    assert status.state == "failed"
    assert status.reason == f"It was started {MAX_DEATHS} times and never finished."


async def test_one_death_after_many_failures_does_not_give_the_effect_up(harness: OutboxHarness) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    for attempt in range(1, MAX_DEATHS + 1):
        harness.trouble.append(TemporaryFailure("502"))
        assert await harness.publish() == 1
        harness.now += pause_after(attempt)
    for _ in range(MAX_DEATHS - 1):
        assert harness.outbox.claim("p") is not None
        harness.now += LEASE
    assert await harness.publish() == 1
    assert harness.state(key) == "done"


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ({"type": "PublishRefused", "state": "stopped", "hint": ""}, PublishRefused),
        ({"type": "NeedsHumanAction", "branch": "agent-fix/issue-3", "hint": "Look."}, NeedsHumanAction),
        ({"type": "TemporaryFailure", "hint": ""}, TemporaryFailure),
        ({"type": "RateLimited", "timestamp": NOW.timestamp(), "hint": ""}, RateLimited),
    ],
    ids=lambda value: str(value.get("type")) if isinstance(value, dict) else "",
)
def test_a_stored_error_keeps_its_kind(
    harness: OutboxHarness, stored: dict[str, str], kind: type[AgentFixError]
) -> None:
    key = harness.outbox.add("j1", 1, PLACE, DRAFT)
    row = {"state": "failed", "error": {"message": "No.", "code": 9, **stored}}
    with harness.engine.begin() as db:
        db.execute(effects.update().where(effects.c.key == key).values(**row))
    status = harness.outbox.status(key)
    assert status is not None
    assert isinstance(status.error, kind)
    expected = {name: value for name, value in stored.items() if name != "type"}
    assert expected.items() <= vars(status.error).items()


async def test_stopped_job_starts_no_further_effect(harness: OutboxHarness) -> None:
    first = harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="x"))
    claim = harness.outbox.claim("p1")
    assert claim is not None
    second = harness.outbox.add("j1", 1, PLACE, DRAFT)
    assert harness.outbox.withdraw("j1") == 1, "one is under way"
    harness.outbox.done(claim, Receipt())
    assert harness.outbox.withdraw("j1") == 0
    harness.now += LEASE
    assert await harness.publish() == 0
    assert (harness.state(first), harness.state(second)) == ("done", "withdrawn")
    harness.outbox.add("j1", 1, PLACE, DRAFT)
    assert await harness.publish() == 1, "a job that continues may request it again"


def test_concurrent_publishers_never_claim_the_same_effect(harness: OutboxHarness) -> None:
    keys = {
        harness.outbox.add(
            "j1", 1, PLACE, AddReaction(target=ReactionTarget(kind="comment", id=number), content="eyes")
        )
        for number in range(40)
    }

    def take(owner: str) -> list[str]:
        taken = []
        while claim := harness.outbox.claim(owner):
            taken.append(claim.key)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [key for part in pool.map(take, ("a", "b", "c", "d")) for key in part]
    assert sorted(taken) == sorted(keys)


def test_a_receipt_is_kept_for_every_version(harness: OutboxHarness) -> None:
    for text in ("one", "two"):
        harness.outbox.add("j1", 1, PLACE, UpdateStatusComment(body=text))
        claim = harness.outbox.claim("p")
        assert claim is not None
        harness.outbox.done(claim, Receipt(url=text))
        harness.outbox.done(claim, Receipt(url=text))
        harness.now += EDITS_APART
    with harness.engine.connect() as db:
        kept = db.execute(sa.select(receipts.c.revision, receipts.c.receipt)).all()
    assert [(row.revision, row.receipt["url"]) for row in kept] == [(1, "one"), (2, "two")]


@given(attempts=st.integers(1, 100), seconds=st.floats(-1e6, 1e6))
def test_every_failure_leads_to_a_retry_or_an_end(attempts: int, seconds: float) -> None:
    until = NOW + timedelta(seconds=seconds)
    make: tuple[Callable[[], AgentFixError], ...] = (
        lambda: TemporaryFailure("x"),
        lambda: RateLimited("x", until=until),
        lambda: NoAccess("x"),
        lambda: OutputError("disk"),
    )
    for error in (build() for build in make):
        then = after_failure(error, attempts, NOW)
        assert then.state in {"wanted", "failed"}
        assert then.due >= NOW
        if then.state == "wanted" and not isinstance(error, RateLimited):
            assert attempts < MAX_TRIES
            assert timedelta() < then.due - NOW <= timedelta(minutes=2)


def test_new_effects_and_successes_change_the_state() -> None:
    assert after_success(1, 1, NOW).state == "done"
    assert after_success(1, 2, NOW).state == "wanted"
    later = NOW + timedelta(seconds=5)
    assert after_want("claimed", later, 2, NOW) == ("claimed", later, 2)
    assert after_want("wanted", later, 2, NOW) == ("wanted", later, 0)
    assert after_want("done", later, 0, NOW) == ("wanted", later, 0)
    assert after_want("failed", later, 8, NOW) == ("wanted", NOW, 0)
    assert after_want("withdrawn", later, 0, NOW) == ("wanted", NOW, 0)
