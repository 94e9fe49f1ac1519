"""What is wished happens once, in its newest version, and only where the job is still the wisher's."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from app.errors import AgentFixError, OutputError
from app.forge.base import Target
from app.forge.errors import NeedsHuman, NoAccess, TryAgain, WaitUntil
from app.jobs.tables import jobs
from app.jobs.tables import metadata as job_tables
from app.publish.intent import (
    EDITS_APART,
    INTENT,
    LEASE,
    MOST_ATTEMPTS,
    MOST_TRIES,
    AnswerThread,
    DressPullRequest,
    Fail,
    Intent,
    Label,
    OpenDraftPullRequest,
    Place,
    PushCommits,
    React,
    Receipt,
    Recipe,
    StatusComment,
    TellFollowUp,
    WriteCheck,
    after_failure,
    after_success,
    after_want,
    key_of,
    pause_after,
)
from app.publish.intents import Intents, StaleEpoch, receipts
from app.publish.publisher import Publisher
from app.task import Person
from tests.databases import DIALECTS, database
from tests.fakes.conversations import FolderConversation, as_wished

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLACE = Place(installation=1, repository=2, owner="ada", name="sample", number=3)
RECIPE = Recipe(patch="c" * 64, message="Fix\n", author=Person(name="bot", email="bot@forge.example"), date=NOW)
DRAFT = OpenDraftPullRequest(
    branch="agent-fix/issue-3", commit="a" * 40, recipe=RECIPE, base="main", title="Fix", body="Fixes #3"
)
ALL: tuple[Intent, ...] = (
    DRAFT,
    PushCommits(branch="agent-fix/issue-3", commit="b" * 40, recipe=RECIPE, expected="a" * 40),
    DressPullRequest(branch="agent-fix/issue-3", labels=("bot",), reviewers=("grace",)),
    TellFollowUp(section="## Follow-up"),
    StatusComment(body="working"),
    Label(add=("agent-in-progress",), remove=("agent-fix",)),
    React(target=Target(kind="issue", id=3), content="eyes"),
    WriteCheck(name="agent-fix", commit="a" * 40, title="Proved", summary="🟢", conclusion="success"),
    AnswerThread(comment=7, body="Because.", thread="T"),
    Fail(body="Sorry.", add=("agent-needs-human",)),
)


@dataclass
class Desk:
    """The tables with one job at epoch 1, and a clock that is told the time."""

    directory: Path
    engine: Engine
    now: datetime = NOW
    trouble: list[AgentFixError] = field(default_factory=list)

    def __post_init__(self) -> None:
        job_tables.create_all(self.engine)
        self.intents = Intents(self.engine, lambda: self.now)
        self.intents.create_tables()
        self.forge = FolderConversation(self.directory, self.trouble)
        row = {"id": "j1", "key": "k", "state": "working", "job": {}, "epoch": 1, "created_at": NOW, "updated_at": NOW}
        with self.engine.begin() as db:
            db.execute(jobs.insert().values(row))

    def take_over(self) -> int:
        with self.engine.begin() as db:
            db.execute(jobs.update().values(epoch=jobs.c.epoch + 1))
            return int(db.execute(sa.select(jobs.c.epoch)).scalar_one())

    async def publish(self, owner: str = "p1") -> int:
        """Everything that is due; returns how much that was."""

        async def open_forge(_place: Place) -> FolderConversation:
            return self.forge

        publisher, count = Publisher(self.intents, open_forge, as_wished, owner), 0
        while await publisher.publish_next():
            count += 1
        return count

    def state(self, key: str) -> str:
        standing = self.intents.standing(key)
        assert standing is not None
        return standing.state


@pytest.fixture(params=DIALECTS)
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "forge").mkdir()
    with database(str(request.param), tmp_path) as engine:
        yield Desk(tmp_path / "forge", engine)


@pytest.mark.parametrize("intent", ALL, ids=lambda intent: intent.kind)
async def test_each_kind_of_wish_becomes_its_effect_and_a_receipt(desk: Desk, intent: Intent) -> None:
    key = desk.intents.want("j1", 1, PLACE, intent)
    assert desk.state(key) == "wanted"
    assert await desk.publish() == 1
    standing = desk.intents.standing(key)
    assert standing is not None
    assert (standing.state, standing.intent) == ("done", intent)
    assert standing.receipt is not None
    assert await desk.publish() == 0
    made = list(desk.directory.iterdir())
    assert made
    assert all(len(path.read_text().splitlines()) == 1 for path in made)


async def test_a_draft_is_its_branch_and_its_pull_request(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, DRAFT)
    await desk.publish()
    assert desk.forge.made("branch") == [f"agent-fix/issue-3 {'a' * 40}"]
    assert desk.forge.made("pull-request") == ["agent-fix/issue-3 Fix"]
    standing = desk.intents.standing(key)
    assert standing is not None
    assert standing.receipt == Receipt(url="https://forge.example/pull-request", branch="agent-fix/issue-3")


def test_keys_are_the_same_everywhere_and_different_for_different_things() -> None:
    keys = [key_of("j1", intent) for intent in ALL]
    assert keys == [key_of("j1", INTENT.validate_json(intent.model_dump_json())) for intent in ALL]
    assert len(set(keys)) == len(ALL)
    assert not set(keys) & {key_of("j2", intent) for intent in ALL}
    assert key_of("j1", StatusComment(body="a")) == key_of("j1", StatusComment(body="b"))
    assert key_of("j1", DRAFT) == key_of("j1", DRAFT.model_copy(update={"title": "Better"}))


def test_a_wish_with_a_field_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError):
        INTENT.validate_python({"kind": "status_comment", "body": "x", "repository": "other/one"})
    with pytest.raises(ValueError):
        INTENT.validate_python({"kind": "merge"})


async def test_only_the_newest_version_is_written_and_edits_keep_their_distance(desk: Desk) -> None:
    for text in ("one", "two", "three"):
        key = desk.intents.want("j1", 1, PLACE, StatusComment(body=text))
    await desk.publish()
    assert desk.forge.made("comment-j1") == ["three"]
    for text in ("four", "five"):
        desk.intents.want("j1", 1, PLACE, StatusComment(body=text))
        assert await desk.publish() == 0, "too soon after the last edit"
    desk.now += EDITS_APART
    assert await desk.publish() == 1
    assert desk.forge.made("comment-j1") == ["three", "five"]
    assert desk.state(key) == "done"


async def test_the_same_wish_again_is_no_second_effect(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, DRAFT)
    await desk.publish()
    desk.now += timedelta(hours=1)
    assert desk.intents.want("j1", 1, PLACE, DRAFT) == key
    assert await desk.publish() == 0


async def test_a_version_wished_while_another_is_written_is_written_after_it(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, StatusComment(body="one"))
    claim = desk.intents.claim("p1")
    assert claim is not None
    desk.intents.want("j1", 1, PLACE, StatusComment(body="two"))
    assert desk.intents.claim("p2") is None, "it is in one pair of hands"
    desk.intents.done(claim, Receipt(url="x"))
    assert desk.state(key) == "wanted"
    desk.now += EDITS_APART
    await desk.publish()
    assert desk.forge.made("comment-j1") == ["two"]
    assert desk.state(key) == "done"


async def test_who_lost_the_job_can_wish_nothing(desk: Desk) -> None:
    desk.take_over()
    with pytest.raises(StaleEpoch):
        desk.intents.want("j1", 1, PLACE, DRAFT)
    with pytest.raises(StaleEpoch):
        desk.intents.adopt("j1", 1)
    with pytest.raises(StaleEpoch):
        desk.intents.want("unknown", 1, PLACE, DRAFT)
    assert await desk.publish() == 0


async def test_a_wish_of_a_former_owner_is_granted_to_the_new_one_only(desk: Desk) -> None:
    desk.intents.want("j1", 1, PLACE, DRAFT)
    epoch = desk.take_over()
    assert await desk.publish() == 0
    assert desk.forge.made("pull-request") == []
    assert desk.intents.adopt("j1", epoch) == 1
    assert await desk.publish() == 1
    desk.take_over()
    assert desk.forge.made("pull-request") == ["agent-fix/issue-3 Fix"]


async def test_what_is_said_of_a_job_may_be_adopted_without_its_branch(desk: Desk) -> None:
    desk.intents.want("j1", 1, PLACE, DRAFT)
    desk.intents.want("j1", 1, PLACE, StatusComment(body="x"))
    assert desk.intents.adopt("j1", desk.take_over(), branches=False) == 1
    assert await desk.publish() == 1
    assert desk.forge.made("pull-request") == []


async def test_wishing_again_adopts_too(desk: Desk) -> None:
    desk.intents.want("j1", 1, PLACE, DRAFT)
    desk.intents.want("j1", desk.take_over(), PLACE, DRAFT)
    assert await desk.publish() == 1


async def test_a_passing_trouble_is_tried_again_and_a_refusal_is_not(desk: Desk) -> None:
    desk.trouble += [TryAgain("502"), TryAgain("502")]
    key = desk.intents.want("j1", 1, PLACE, StatusComment(body="x"))
    for attempt in (1, 2):
        assert await desk.publish() == 1
        assert await desk.publish() == 0, "not at once"
        desk.now += pause_after(attempt)
    assert await desk.publish() == 1
    assert desk.state(key) == "done"
    desk.trouble.append(NeedsHuman("protected branch"))
    refused = desk.intents.want("j1", 1, PLACE, DRAFT)
    await desk.publish()
    standing = desk.intents.standing(refused)
    assert standing is not None
    assert (standing.state, standing.reason, standing.receipt) == ("failed", "protected branch", None)
    desk.now += timedelta(days=1)
    assert await desk.publish() == 0


async def test_a_limit_is_waited_for_however_often(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, StatusComment(body="x"))
    for _ in range(3 * MOST_ATTEMPTS):
        until = desk.now + timedelta(minutes=7)
        desk.trouble.append(WaitUntil("limit", until=until))
        assert await desk.publish() == 1
        assert desk.intents.next_due() == until
        desk.now = until - timedelta(seconds=1)
        assert await desk.publish() == 0, "not before"
        desk.now = until
    assert await desk.publish() == 1
    assert desk.state(key) == "done"
    assert desk.intents.next_due() is None


async def test_an_hour_without_a_forge_is_waited_out(desk: Desk) -> None:
    """R34: nothing has to be done by hand, and it goes on within two minutes."""
    key = desk.intents.want("j1", 1, PLACE, DRAFT)
    back = desk.now + timedelta(hours=1)
    while desk.now < back:
        desk.trouble[:] = [TryAgain("502")]
        await desk.publish()
        desk.now = desk.intents.next_due() or back
    desk.trouble.clear()
    assert desk.now - back <= timedelta(minutes=2)
    assert await desk.publish() == 1
    assert desk.state(key) == "done"


async def test_a_publisher_that_died_is_replaced_when_its_lease_ends(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, DRAFT)
    dead = desk.intents.claim("p1")
    assert dead is not None
    assert await desk.publish("p2") == 0
    desk.now += LEASE
    assert await desk.publish("p2") == 1
    assert desk.state(key) == "done"
    desk.intents.failed(dead, NoAccess("late"))
    assert desk.state(key) == "done", "a late failure of the first changes nothing"
    desk.intents.done(dead, Receipt(url="late"))
    standing = desk.intents.standing(key)
    assert standing is not None
    assert standing.receipt == Receipt(url="https://forge.example/pull-request", branch="agent-fix/issue-3")


async def test_what_kills_every_publisher_is_given_up(desk: Desk) -> None:
    key = desk.intents.want("j1", 1, PLACE, DRAFT)
    for _ in range(MOST_ATTEMPTS):
        assert desk.intents.claim("p") is not None
        desk.now += LEASE
    assert desk.intents.claim("p") is None
    standing = desk.intents.standing(key)
    assert standing is not None
    assert standing.state == "failed"
    assert "never ended" in standing.reason


async def test_after_a_stop_nothing_more_is_begun(desk: Desk) -> None:
    first = desk.intents.want("j1", 1, PLACE, StatusComment(body="x"))
    claim = desk.intents.claim("p1")
    assert claim is not None
    second = desk.intents.want("j1", 1, PLACE, DRAFT)
    assert desk.intents.withdraw("j1") == 1, "one is under way"
    desk.intents.done(claim, Receipt())
    assert desk.intents.withdraw("j1") == 0
    desk.now += LEASE
    assert await desk.publish() == 0
    assert (desk.state(first), desk.state(second)) == ("done", "withdrawn")
    desk.intents.want("j1", 1, PLACE, DRAFT)
    assert await desk.publish() == 1, "a job that goes on may wish it again"


def test_two_publishers_never_hold_the_same_one(desk: Desk) -> None:
    keys = {
        desk.intents.want("j1", 1, PLACE, React(target=Target(kind="comment", id=number), content="eyes"))
        for number in range(40)
    }

    def take(owner: str) -> list[str]:
        taken = []
        while claim := desk.intents.claim(owner):
            taken.append(claim.key)
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [key for part in pool.map(take, ("a", "b", "c", "d")) for key in part]
    assert sorted(taken) == sorted(keys)


def test_a_receipt_is_kept_for_every_version(desk: Desk) -> None:
    for text in ("one", "two"):
        desk.intents.want("j1", 1, PLACE, StatusComment(body=text))
        claim = desk.intents.claim("p")
        assert claim is not None
        desk.intents.done(claim, Receipt(url=text))
        desk.intents.done(claim, Receipt(url=text))
        desk.now += EDITS_APART
    with desk.engine.connect() as db:
        kept = db.execute(sa.select(receipts.c.revision, receipts.c.receipt)).all()
    assert [(row.revision, row.receipt["url"]) for row in kept] == [(1, "one"), (2, "two")]


@given(attempts=st.integers(1, 100), seconds=st.floats(-1e6, 1e6))
def test_every_failure_leads_to_a_later_try_or_to_an_end(attempts: int, seconds: float) -> None:
    until = NOW + timedelta(seconds=seconds)
    make: tuple[Callable[[], AgentFixError], ...] = (
        lambda: TryAgain("x"),
        lambda: WaitUntil("x", until=until),
        lambda: NoAccess("x"),
        lambda: OutputError("disk"),
    )
    for error in (build() for build in make):
        then = after_failure(error, attempts, NOW)
        assert then.state in {"wanted", "failed"}
        assert then.due >= NOW
        if then.state == "wanted" and not isinstance(error, WaitUntil):
            assert attempts < MOST_TRIES
            assert timedelta() < then.due - NOW <= timedelta(minutes=2)


def test_the_other_transitions() -> None:
    assert after_success(1, 1, NOW).state == "done"
    assert after_success(1, 2, NOW).state == "wanted"
    later = NOW + timedelta(seconds=5)
    assert after_want("claimed", later, 2, NOW) == ("claimed", later, 2)
    assert after_want("wanted", later, 2, NOW) == ("wanted", later, 0)
    assert after_want("done", later, 0, NOW) == ("wanted", later, 0)
    assert after_want("failed", later, 8, NOW) == ("wanted", NOW, 0)
    assert after_want("withdrawn", later, 0, NOW) == ("wanted", NOW, 0)
