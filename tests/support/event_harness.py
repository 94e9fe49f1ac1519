"""Event handling under test: a GitHub in memory, its webhooks through the real receiver, real tables in SQLite."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import httpx
from sqlalchemy.engine import Engine

from app.github.auth import AppRegistration
from app.github.connection import AppConnection
from app.jobs.schema import prepare_tables
from app.jobs.status import WaitingFor
from app.jobs.store import JobWithContext
from app.jobs.tables import deliveries as inbox_rows
from app.jobs.tables import effects as effect_rows
from app.jobs.tables import jobs as job_rows
from app.jobs.tables import sqlite_engine
from app.jobs.tables import triggers as trigger_rows
from app.jobs.trigger_log import StoredMessage
from app.publish.effects import EFFECT_ADAPTER, AddReaction, Effect, Receipt, UpdateStatusComment
from app.repo.git_store import GitStore
from app.server.receiver import receiver
from app.triggers.github_clients import GitHubClients
from app.triggers.loops import TriggerLoops
from app.triggers.poller import Poller
from app.triggers.stores import ServerDefaults, Stores
from tests.support.databases import database
from tests.support.github.fake import FakeGitHubSetup, make_fake_github, served
from tests.support.github.webhooks import Hooks
from tests.support.github.world import Comment, Issue, Pull, Repo, Review, User, World

SECRET = "it is a secret to everybody"
DEFAULTS = ServerDefaults(model="scripted/one")


@dataclass
class EventHarness:
    """One repository, its people, and what trigger_loops makes of them."""

    fake_github: FakeGitHubSetup
    engine: Engine
    stores: Stores
    trigger_loops: TriggerLoops
    hooks: Hooks
    directory: Path
    app: AppConnection
    poller: Poller
    people: dict[str, User] = field(default_factory=dict)

    @property
    def world(self) -> World:
        return self.fake_github.world

    @property
    def repo(self) -> Repo:
        return self.fake_github.repo

    @property
    def issue(self) -> Issue:
        return self.fake_github.issue

    @property
    def owner(self) -> User:
        return self.fake_github.owner

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
        await self.hooks.labeled(self.repo, self.fake_github.installation, by or self.owner, issue or self.issue, label)
        await self.wait_until_handled()

    async def assigns(self, to: User, by: User | None = None) -> None:
        self.world.tick()
        await self.hooks.assigned(self.repo, self.fake_github.installation, by or self.owner, self.issue, to)
        await self.wait_until_handled()

    async def says(self, text: str, issue: Issue | None = None, by: User | None = None) -> Comment:
        self.world.tick()
        about = issue or self.issue
        comment = self.world.comment(self.repo, about, by or self.owner, text)
        await self.hooks.commented(self.repo, self.fake_github.installation, by or self.owner, about, comment)
        await self.wait_until_handled()
        return comment

    async def says_inline(self, text: str, pull: Issue, by: User | None = None, *, line: int = 1) -> Comment:
        self.world.tick()
        who = by or self.owner
        thread = self.world.start_thread(self.repo, pull, who, path="app/money.py", line=line, body=text)
        comment = self.repo.comments[thread.comments[0]]
        await self.hooks.review_commented(self.repo, self.fake_github.installation, pull, comment)
        await self.wait_until_handled()
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
        await self.hooks.reviewed(self.repo, self.fake_github.installation, pull, review)
        await self.wait_until_handled()
        return review

    async def deliver(self, *order: int) -> None:
        """Send what was held back, in the order in which it happened or in another."""
        self.hooks.held = False
        held = [delivery for delivery in self.world.deliveries if delivery.status == 0]
        for delivery in [held[place] for place in order] if order else held:
            await self.hooks.attempt(delivery)
        await self.wait_until_handled()

    async def wait_until_handled(self, rounds: int = 50) -> None:
        """Until nothing is due; what waits is waited for by the world's clock."""
        for _ in range(rounds):
            while await self.trigger_loops.next_delivery():
                pass
            if self.stores.inbox.health().undone == 0 or self.hooks.held:
                return
            self.world.tick(5)
        raise AssertionError(f"never handled: {self.outcomes()}")

    # What there is afterwards.

    def jobs(self) -> list[JobWithContext]:
        with self.engine.connect() as db:
            ids = db.execute(job_rows.select().order_by(job_rows.c.created_at, job_rows.c.id)).scalars().all()
        found = [self.stores.job_queries.get(ident) for ident in ids]
        return [each for each in found if each is not None]

    @property
    def job(self) -> JobWithContext:
        (only,) = self.jobs()
        return only

    def active_jobs(self) -> list[JobWithContext]:
        return [each for each in self.jobs() if not each.row.final]

    def effects(self) -> list[tuple[str, Effect]]:
        with self.engine.connect() as db:
            rows = db.execute(effect_rows.select().order_by(effect_rows.c.seq)).mappings().all()
        return [(row["job"], EFFECT_ADAPTER.validate_python(row["effect"])) for row in rows]

    def answers(self) -> list[str]:
        """Comments that answer somebody without a job."""
        return [
            effect.body
            for job, effect in self.effects()
            if isinstance(effect, UpdateStatusComment) and job.startswith("d-")
        ]

    @property
    def answer(self) -> str:
        (only,) = self.answers()
        return only

    def reactions(self) -> list[tuple[str, int, str]]:
        found = [effect for _, effect in self.effects() if isinstance(effect, AddReaction)]
        return [(effect.target.kind, effect.target.id, effect.content) for effect in found]

    def said(self, job: JobWithContext | None = None) -> list[StoredMessage]:
        return list(self.stores.messages.since((job or self.job).job.id, 0))

    def decided(self) -> list[str]:
        with self.engine.connect() as db:
            return list(db.execute(trigger_rows.select().with_only_columns(trigger_rows.c.outcome)).scalars())

    def outcomes(self) -> list[str]:
        """What became of the deliveries."""
        with self.engine.connect() as db:
            return list(db.execute(inbox_rows.select().with_only_columns(inbox_rows.c.outcome)).scalars())

    def put(
        self, state: str, job: JobWithContext | None = None, reason: str = "", waiting_for: WaitingFor = ""
    ) -> None:
        """As if a worker had brought the job there."""
        self.stores.job_store().enter((job or self.job).job.id, state, reason, waiting_for=waiting_for)  # type: ignore[arg-type]

    def tell_status(self, job: str, comment: Comment) -> None:
        """As if the status comment had been published."""
        row = self.stores.job_store().get(job)
        stored = self.stores.job_queries.get(job)
        assert row is not None
        assert stored is not None
        self.stores.outbox.add(job, row.epoch, stored.job_context.issue_ref, UpdateStatusComment(body="…"))
        while claim := self.stores.outbox.claim("publisher"):
            url = f"https://github.example/x#issuecomment-{comment.id}"
            self.stores.outbox.done(claim, Receipt(url=url if isinstance(claim.effect, UpdateStatusComment) else ""))

    def ends(self, state: str, job: JobWithContext | None = None, **result: object) -> None:
        row = (job or self.job).job
        self.stores.job_store().finish(row.id, state, "", {"exit_status": state, **result})  # type: ignore[arg-type]


def make_stores(engine: Engine, world: World) -> Stores:
    def clock() -> datetime:
        return world.now

    stores = Stores(engine, clock)
    prepare_tables(engine)
    return stores


@asynccontextmanager
async def event_harness(
    directory: Path, *, defaults: ServerDefaults = DEFAULTS, git: bool = False, dialect: str = "sqlite"
) -> AsyncIterator[EventHarness]:
    """With `git` the fake's git side is on a loopback port."""
    fake_github = make_fake_github(directory / "github")
    if git:
        with served(fake_github.github) as site:
            async with _harness(fake_github, directory, defaults, fake_github.app(site=site), dialect) as harness:
                yield harness
        return
    async with _harness(fake_github, directory, defaults, fake_github.app(), dialect) as harness:
        yield harness


@asynccontextmanager
async def _harness(
    fake_github: FakeGitHubSetup, directory: Path, defaults: ServerDefaults, app: AppConnection, dialect: str
) -> AsyncIterator[EventHarness]:
    with _database(dialect, directory) as engine:
        stores = make_stores(engine, fake_github.world)
        transport = httpx.ASGITransport(receiver([SECRET], stores.inbox, stores.clock))
        async with app, httpx.AsyncClient(transport=transport, base_url="http://bot.example") as client:
            trigger_loops = TriggerLoops(app, stores, mirrors(directory), defaults)
            hooks = Hooks(fake_github.world, client, SECRET)
            clients, handle = GitHubClients(app), trigger_loops.handler.handle
            poller = Poller(clients, AppRegistration(app), stores, handle)
            yield EventHarness(fake_github, engine, stores, trigger_loops, hooks, directory, app, poller)


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


def later(harness: EventHarness, **time: float) -> None:
    harness.world.tick(timedelta(**time).total_seconds())
