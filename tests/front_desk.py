"""Reception as tests meet it: a GitHub in memory, its webhooks through the real receiver, real books in SQLite."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import httpx
from sqlalchemy.engine import Engine

from app.entrypoints.webhook import receiver
from app.forge.github.connection import App
from app.gitstore import GitStore
from app.jobs.inbox import Inbox
from app.jobs.inbox import deliveries as inbox_rows
from app.jobs.lesson_tables import metadata as lesson_tables
from app.jobs.looks import Looks
from app.jobs.messages import Messages, Said
from app.jobs.queue import Queue
from app.jobs.roster import Commissioned, Roster
from app.jobs.store import JobStore, Wants
from app.jobs.tables import jobs as job_rows
from app.jobs.tables import sqlite_engine
from app.jobs.tables import triggers as trigger_rows
from app.jobs.triggers import Triggers
from app.publish.intent import INTENT, Intent, React, Receipt, StatusComment
from app.publish.intents import Intents
from app.publish.intents import intents as intent_rows
from app.reception.books import Books, Defaults
from app.reception.reception import Reception
from tests.databases import database
from tests.fakes.github.ground import Ground, make_ground, served
from tests.fakes.github.webhooks import Hooks
from tests.fakes.github.world import Comment, Issue, Pull, Repo, Review, User, World

SECRET = "it is a secret to everybody"
DEFAULTS = Defaults(model="scripted/one")


@dataclass
class FrontDesk:
    """One repository, its people, and what reception makes of them."""

    ground: Ground
    engine: Engine
    books: Books
    reception: Reception
    hooks: Hooks
    directory: Path
    app: App
    people: dict[str, User] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self.ground.world

    @property
    def repo(self) -> Repo:
        return self.ground.repo

    @property
    def issue(self) -> Issue:
        return self.ground.issue

    @property
    def owner(self) -> User:
        return self.ground.owner

    def person(self, login: str, role: str = "write", kind: str = "User") -> User:
        user = self.world.add_user(login, kind=kind)
        self.repo.collaborators[user.id] = role
        return user

    def configure(self, text: str) -> None:
        self.world.push_as_human(self.repo, "main", {".github/agent-fix.yml": text})

    def open_pull(self, by: User | None = None, *, branch: str = "topic", fork: int = 0) -> Issue:
        self.world.push_as_human(self.repo, branch, {"app/money.py": "half = 0.6\n"})
        pull = Pull(branch, "main", draft=True, fork=fork)
        return self.world.open_issue(self.repo, by or self.owner, "Round better", "It rounds.", pull=pull)

    def our_pull(self, branch: str = "agent-fix/issue-1-totals") -> Issue:
        return self.open_pull(self.world.bot, branch=branch)

    # What people do, and what follows.

    async def labels(self, issue: Issue | None = None, by: User | None = None, label: str = "agent-fix") -> None:
        self.world.tick()
        await self.hooks.labeled(self.repo, self.ground.installation, by or self.owner, issue or self.issue, label)
        await self.settle()

    async def says(self, text: str, issue: Issue | None = None, by: User | None = None) -> Comment:
        self.world.tick()
        about = issue or self.issue
        comment = self.world.comment(self.repo, about, by or self.owner, text)
        await self.hooks.commented(self.repo, self.ground.installation, by or self.owner, about, comment)
        await self.settle()
        return comment

    async def says_inline(self, text: str, pull: Issue, by: User | None = None, *, line: int = 1) -> Comment:
        self.world.tick()
        who = by or self.owner
        thread = self.world.start_thread(self.repo, pull, who, path="app/money.py", line=line, body=text)
        comment = self.repo.comments[thread.comments[0]]
        await self.hooks.review_commented(self.repo, self.ground.installation, pull, comment)
        await self.settle()
        return comment

    async def reviews(
        self, text: str, pull: Issue, by: User | None = None, *lines: str, state: str = "CHANGES_REQUESTED"
    ) -> Review:
        """Submit a review with comments on the first line of a file."""
        self.world.tick()
        threads = [
            self.world.start_thread(self.repo, pull, by or self.owner, path="app/money.py", line=1, body=line)
            for line in lines
        ]
        self.world.tick()
        review = self.world.review(pull, by or self.owner, text, state)
        for thread in threads:
            self.repo.comments[thread.comments[0]].review = review.id
        await self.hooks.reviewed(self.repo, self.ground.installation, pull, review)
        await self.settle()
        return review

    async def deliver(self, *order: int) -> None:
        """Send what was held back, in the order in which it happened or in another."""
        self.hooks.held = False
        held = [delivery for delivery in self.world.deliveries if delivery.status == 0]
        for delivery in [held[place] for place in order] if order else held:
            await self.hooks.attempt(delivery)
        await self.settle()

    async def settle(self, rounds: int = 50) -> None:
        """Until nothing is due; what waits is waited for by the world's clock."""
        for _ in range(rounds):
            while await self.reception.next():
                pass
            if self.books.inbox.health().undone == 0 or self.hooks.held:
                return
            self.world.tick(5)
        raise AssertionError(f"never settled: {self.outcomes()}")

    # What there is afterwards.

    def jobs(self) -> list[Commissioned]:
        with self.engine.connect() as db:
            ids = db.execute(job_rows.select().order_by(job_rows.c.created_at, job_rows.c.id)).scalars().all()
        found = [self.books.roster.get(ident) for ident in ids]
        return [each for each in found if each is not None]

    @property
    def job(self) -> Commissioned:
        (only,) = self.jobs()
        return only

    def living(self) -> list[Commissioned]:
        return [each for each in self.jobs() if not each.row.final]

    def wishes(self) -> list[tuple[str, Intent]]:
        with self.engine.connect() as db:
            rows = db.execute(intent_rows.select().order_by(intent_rows.c.seq)).mappings().all()
        return [(row["job"], INTENT.validate_python(row["intent"])) for row in rows]

    def answers(self) -> list[str]:
        """Comments that answer somebody without a job."""
        return [wish.body for job, wish in self.wishes() if isinstance(wish, StatusComment) and job.startswith("d-")]

    @property
    def answer(self) -> str:
        (only,) = self.answers()
        return only

    def reactions(self) -> list[tuple[str, int, str]]:
        found = [wish for _, wish in self.wishes() if isinstance(wish, React)]
        return [(wish.target.kind, wish.target.id, wish.content) for wish in found]

    def said(self, job: Commissioned | None = None) -> list[Said]:
        return list(self.books.messages.since((job or self.job).job.id, 0))

    def decided(self) -> list[str]:
        with self.engine.connect() as db:
            return list(db.execute(trigger_rows.select().with_only_columns(trigger_rows.c.outcome)).scalars())

    def outcomes(self) -> list[str]:
        """What became of the deliveries."""
        with self.engine.connect() as db:
            return list(db.execute(inbox_rows.select().with_only_columns(inbox_rows.c.outcome)).scalars())

    def put(self, state: str, job: Commissioned | None = None, reason: str = "", wants: Wants = "") -> None:
        """As if a worker had brought the job there."""
        self.books.store.enter((job or self.job).job.id, state, reason, wants=wants)  # type: ignore[arg-type]

    def tell_status(self, job: str, comment: Comment) -> None:
        """As if the status comment had been published."""
        row = self.books.store.get(job)
        commissioned = self.books.roster.get(job)
        assert row is not None
        assert commissioned is not None
        self.books.intents.want(job, row.epoch, commissioned.commission.place, StatusComment(body="…"))
        while claim := self.books.intents.claim("publisher"):
            url = f"https://github.example/x#issuecomment-{comment.id}"
            self.books.intents.done(claim, Receipt(url=url if isinstance(claim.intent, StatusComment) else ""))

    def ends(self, state: str, job: Commissioned | None = None, **result: object) -> None:
        row = (job or self.job).job
        self.books.store.finish(row.id, state, "", {"exit_status": state, **result})  # type: ignore[arg-type]


def make_books(engine: Engine, world: World) -> Books:
    def clock() -> datetime:
        return world.now

    books = Books(
        inbox=Inbox(engine, clock),
        queue=Queue(engine, clock),
        roster=Roster(engine, clock),
        messages=Messages(engine, clock),
        triggers=Triggers(engine, clock),
        intents=Intents(engine, clock),
        store=JobStore(engine, clock),
        looks=Looks(engine),
        clock=clock,
    )
    books.store.create_tables()
    lesson_tables.create_all(engine)
    books.inbox.create_tables()
    books.intents.create_tables()
    return books


@asynccontextmanager
async def front_desk(
    directory: Path, *, defaults: Defaults = DEFAULTS, git: bool = False, dialect: str = "sqlite"
) -> AsyncIterator[FrontDesk]:
    """With `git` the fake's git side is on a loopback port."""
    ground = make_ground(directory / "github")
    if git:
        with served(ground.github) as site:
            async with _desk(ground, directory, defaults, ground.app(site=site), dialect) as desk:
                yield desk
        return
    async with _desk(ground, directory, defaults, ground.app(), dialect) as desk:
        yield desk


@asynccontextmanager
async def _desk(
    ground: Ground, directory: Path, defaults: Defaults, app: App, dialect: str
) -> AsyncIterator[FrontDesk]:
    with _database(dialect, directory) as engine:
        books = make_books(engine, ground.world)
        transport = httpx.ASGITransport(receiver([SECRET], books.inbox, books.clock))
        async with app, httpx.AsyncClient(transport=transport, base_url="http://bot.example") as client:
            reception = Reception(app, books, mirrors(directory), defaults)
            hooks = Hooks(ground.world, client, SECRET)
            yield FrontDesk(ground, engine, books, reception, hooks, directory, app)


@contextmanager
def _database(dialect: str, directory: Path) -> Iterator[Engine]:
    """SQLite without waiting for the disk: no test here cuts the power."""
    if dialect != "sqlite":
        with database(dialect, directory) as engine:
            yield engine
        return
    engine = sqlite_engine(directory / "agent-fix.db", synced=False)
    try:
        yield engine
    finally:
        engine.dispose()


def mirrors(directory: Path) -> Callable[[int], GitStore]:
    return lambda repository: GitStore(directory / "mirrors" / f"r{repository}.git")


def later(desk: FrontDesk, **time: float) -> None:
    desk.world.tick(timedelta(**time).total_seconds())
