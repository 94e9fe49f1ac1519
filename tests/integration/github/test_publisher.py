"""The publisher: several installations in parallel, one effect at a time for each, and faults survived."""

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from psycopg.errors import ReadOnlySqlTransaction
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError, InternalError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from app.core.errors import AgentFixError
from app.core.task import IssueRef
from app.github.base import ReactionTarget, WorkflowsMoved
from app.jobs.tables import jobs
from app.publish.effects import AddReaction, Effect, NextAttempt, Receipt, UpdateStatusComment
from app.publish.outbox import EffectClaim, Outbox
from app.publish.publisher import Publisher
from tests.support.databases import database
from tests.support.file_conversation import FileForge, as_wished
from tests.support.github.fake import FakeGitHubSetup
from tests.support.github.faults import Fault
from tests.support.publisher_harness import PublisherHarness
from tests.unit.publish.test_outbox import DRAFT, NOW, PLACE
from tests.unit.publish.test_outbox import OutboxHarness as Rows


@dataclass
class Slow:
    """A forge at which every effect waits until it is let through; remembers who was there at once."""

    directory: Path
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    crowded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when three are there."""
    inside: list[int] = field(default_factory=list)
    together: list[tuple[int, ...]] = field(default_factory=list)

    async def open(self, place: IssueRef) -> FileForge:
        self.inside.append(place.installation)
        self.together.append(tuple(sorted(self.inside)))
        if len(self.inside) == 3:
            self.crowded.set()
        await self.gate.wait()
        self.inside.remove(place.installation)
        folder = self.directory / str(place.installation)
        folder.mkdir(exist_ok=True)
        return FileForge(folder)


async def test_installations_are_served_side_by_side_and_each_in_order(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        rows = Rows(tmp_path, engine)
        for installation in (1, 2, 3):
            place = IssueRef(installation=installation, repository=2, owner="ada", name="sample", number=installation)
            with engine.begin() as db:
                row = {"id": f"k{installation}", "key": "k", "state": "working", "job": {}, "epoch": 1}
                db.execute(jobs.insert().values(**row, created_at=NOW, updated_at=NOW))
            for number in (1, 2):
                effect = AddReaction(target=ReactionTarget(kind="comment", id=number), content="eyes")
                rows.outbox.add(f"k{installation}", 1, place, effect)
        slow = Slow(tmp_path)
        publisher = Publisher(rows.outbox, slow.open, as_wished, "p1")
        turns = [asyncio.create_task(publisher.publish_next()) for _ in range(4)]
        await slow.crowded.wait()
        done, working = await asyncio.wait(turns, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(working)) == (1, 3), "there is no fourth installation"
        assert slow.together[-1] == (1, 2, 3)
        slow.gate.set()
        await asyncio.gather(*turns)
        while await publisher.publish_next():
            pass
    assert all(len(set(who)) == len(who) for who in slow.together), "never two effects in one installation"
    assert [len((tmp_path / str(n) / "reaction").read_text().splitlines()) for n in (1, 2, 3)] == [2, 2, 2]


async def test_an_installation_whose_effect_failed_is_free_again(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        rows = Rows(tmp_path, engine, trouble=[AgentFixError("no")])
        place = IssueRef(installation=1, repository=2, owner="ada", name="sample", number=3)
        rows.outbox.add("j1", 1, place, UpdateStatusComment(body="x"))
        rows.outbox.add("j1", 1, place, AddReaction(target=ReactionTarget(kind="issue", id=3), content="eyes"))
        assert await rows.publish() == 2
        states = [standing.state for standing in rows.outbox.of("j1")]
        assert states == ["failed", "done"]
        (failed, _) = rows.outbox.of("j1")
        assert failed.error is not None
        assert failed.error.message == "no"


FULL = OperationalError("UPDATE effects", {}, sqlite3.OperationalError("database or disk is full"))
READ_ONLY = InternalError("UPDATE effects", {}, ReadOnlySqlTransaction("cannot execute UPDATE"))
NO_CONNECTION = PoolTimeoutError("QueuePool limit of size 5 overflow 10 reached")
WRONG = IntegrityError("INSERT INTO receipts", {}, sqlite3.IntegrityError("UNIQUE constraint failed"))


class RefusingOutbox(Outbox):
    """Cannot store the first outcomes, because of these errors."""

    refusals: Sequence[SQLAlchemyError] = ()

    def _check(self) -> None:
        if self.refusals:
            first, *self.refusals = self.refusals
            raise first

    def done(self, claim: EffectClaim, receipt: Receipt) -> None:
        self._check()
        super().done(claim, receipt)

    def failed(self, claim: EffectClaim, error: AgentFixError) -> NextAttempt:
        self._check()
        return super().failed(claim, error)

    def amend(self, claim: EffectClaim, effect: Effect) -> None:
        self._check()
        super().amend(claim, effect)


class MovedForge(FileForge):
    """Its base branch has a newer commit."""

    async def tip(self, branch: str) -> str:
        return "f" * 40


class RefusedOutcome:
    """An effect whose outcome the database refuses with these errors, one after the other."""

    def __init__(self, place: Path, engine: Engine, effect: Effect, *refusals: SQLAlchemyError) -> None:
        self.rows = Rows(place, engine)
        self.rows.outbox = outbox = RefusingOutbox(engine, lambda: self.rows.now)
        self.forge, outbox.refusals = MovedForge(place, self.rows.trouble), refusals
        self.key = outbox.add("j1", 1, PLACE, effect)

        async def open_forge(_place: IssueRef) -> FileForge:
            return self.forge

        self.publisher = Publisher(outbox, open_forge, as_wished, "p1")


REACTION = AddReaction(target=ReactionTarget(kind="issue", id=3), content="eyes")


@pytest.mark.parametrize("refusal", [FULL, READ_ONLY, NO_CONNECTION], ids=["full", "read-only", "no connection"])
@pytest.mark.parametrize(("trouble", "state", "made"), [([], "done", 1), ([AgentFixError("no")], "failed", 0)])
async def test_an_outcome_that_could_not_be_stored_is_stored_as_soon_as_it_can_be(
    trouble: list[AgentFixError], state: str, made: int, refusal: SQLAlchemyError, tmp_path: Path
) -> None:
    """Its lease would keep the effect for minutes, and then it would be carried out again."""
    with database("sqlite", tmp_path) as engine:
        refused = RefusedOutcome(tmp_path, engine, REACTION, refusal)
        refused.rows.trouble.extend(trouble)
        with pytest.raises(type(refusal)):
            await refused.publisher.publish_next()
        assert refused.rows.state(refused.key) == "claimed"
        assert await refused.publisher.publish_next() is None
        assert refused.rows.state(refused.key) == state
        assert len(refused.forge.made("reaction")) == made


async def test_a_merge_that_could_not_be_stored_is_made_as_soon_as_it_can_be(tmp_path: Path) -> None:
    """GitHub refused the branch because a workflow file changed on its base."""
    with database("sqlite", tmp_path) as engine:
        refused = RefusedOutcome(tmp_path, engine, DRAFT, FULL)
        refused.rows.trouble.append(WorkflowsMoved("refused"))
        with pytest.raises(OperationalError):
            await refused.publisher.publish_next()
        claim = await refused.publisher.publish_next()
        assert claim is not None
        assert claim.effect == DRAFT.model_copy(update={"onto": "f" * 40})
        assert refused.rows.state(refused.key) == "done"


@pytest.mark.parametrize("refusals", [[WRONG], [FULL, WRONG]], ids=["at once", "later"])
async def test_an_outcome_with_wrong_data_does_not_stop_publishing(
    refusals: list[SQLAlchemyError], tmp_path: Path
) -> None:
    with database("sqlite", tmp_path) as engine:
        refused = RefusedOutcome(tmp_path, engine, REACTION, *refusals)
        for refusal in refusals:
            with pytest.raises(type(refusal)):
                await refused.publisher.publish_next()
        other = refused.rows.outbox.add("j1", 1, PLACE, UpdateStatusComment(body="x"))
        assert await refused.publisher.publish_next() is not None
        assert (refused.rows.state(refused.key), refused.rows.state(other)) == ("claimed", "done")


@pytest.mark.parametrize("seed", range(6))
async def test_a_fifth_of_all_answers_lost_or_broken_changes_nothing_of_the_end(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, seed: int
) -> None:
    """R20: 502 pages, answers that break off, effects whose answer is lost; each effect is there once."""
    chance, asked, met = random.Random(seed), itertools.count(), list[str]()

    class UnreliableNetwork:
        """One request in five meets trouble, of any kind."""

        after = cut = drop = False

        def hits(self, method: str, path: str) -> bool:
            if not path.startswith("/repos/") or (chance.random() > 0.2 and next(asked) not in {3, 7, 12}):
                return False
            kind = ("after", "cut", "drop", "page")[(len(met) + seed) % 4]
            fault = Fault(".*", after=kind == "after", cut=kind == "cut", drop=kind == "drop")
            fake_github.github.faults.insert(0, fault)
            met.append(kind)
            return False

    made = await harness.admit()
    await harness.work(made)
    fake_github.github.faults.append(UnreliableNetwork())  # type: ignore[arg-type]
    for _ in range(40):
        await harness.everything()
        if harness.job_with_context(made.id).posted_state == "pr_opened" and harness.outbox.next_due() is None:
            break
        fake_github.world.tick(12)
    fake_github.github.faults.clear()
    await harness.everything()
    assert len(met) >= 3, "the weather was fine"
    assert harness.ended(made.id)[0] == "pr_opened"
    assert len(fake_github.repo.pulls) == len(harness.comments()) == len(fake_github.repo.checks) == 1
    assert [content for *_, content in fake_github.repo.reactions] == ["eyes", "rocket"]
    assert harness.comments()[0].startswith("### 🚀")


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (403, {"retry-after": "90"}, 90),
        (429, {"retry-after": "90"}, 90),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "RESET"}, 90),
        (429, {}, 60),
    ],
)
async def test_a_limit_is_obeyed_to_the_second(
    harness: PublisherHarness, fake_github: FakeGitHubSetup, status: int, headers: dict[str, str], wait: int
) -> None:
    """R21: nothing at all is asked before the time that GitHub named."""
    await harness.work(await harness.admit())
    began = fake_github.world.now.timestamp()
    told = {name: value.replace("RESET", str(int(began) + wait)) for name, value in headers.items()}
    body = '{"message": "You have exceeded a secondary rate limit."}'
    fake_github.github.faults.append(Fault("POST .*", status, body, told))
    await harness.everything()
    limited = len(fake_github.github.calls)
    heard = fake_github.github.calls[-1].at
    while fake_github.world.now.timestamp() < heard + wait - 5:
        fake_github.world.tick(4)
        await harness.publish()
    assert len(fake_github.github.calls) == limited, "asked in spite of the limit"
    for _ in range(3):
        fake_github.world.tick(12)
        await harness.everything()
    assert harness.ended("j1")[0] == "pr_opened"


async def test_at_most_one_change_a_second_reaches_github(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    await harness.work(await harness.admit())
    await harness.everything()
    times = sorted(call.at for call in fake_github.github.mutations())
    assert len(times) >= 4
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(times))


async def test_a_token_that_ends_in_the_middle_is_replaced(
    harness: PublisherHarness, fake_github: FakeGitHubSetup
) -> None:
    """R22."""
    made = await harness.admit()
    await harness.work(made)
    for token in fake_github.world.tokens.values():
        token.revoked = True
    await harness.everything()
    assert harness.ended(made.id)[0] == "pr_opened"
