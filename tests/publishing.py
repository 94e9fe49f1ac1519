"""A publisher's process on the fake GitHub, with jobs whose work is done and everybody at work on them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from app.commission import Commission
from app.forge.github.connection import App, RepositoryId
from app.forge.github.forge import GitHubForge, open_forge
from app.forge.github.identity import Bot, who_we_are
from app.gitstore import GitStore
from app.job import Job
from app.jobs.queue import Limits, Queue
from app.jobs.roster import Commissioned, Roster
from app.jobs.store import JobBlobs, JobStore
from app.jobs.tables import sqlite_engine
from app.model.sql_ledger import SqlLedger
from app.model.sql_ledger import metadata as ledger_tables
from app.patch import FileChange, Patch
from app.plan import Plan
from app.publish.comments import commit_message, pull_request_body, pull_request_title
from app.publish.drafts import Drafts
from app.publish.facts import facts_of
from app.publish.granting import Granting
from app.publish.herald import Herald
from app.publish.intent import OpenDraftPullRequest, Place, PushCommits, Recipe
from app.publish.intents import Intents, Standing
from app.publish.publisher import Publisher
from app.publish.quarantine import Quarantine
from app.publish.settling import Settling
from app.redact import Redactor
from app.result import Result
from tests.commissions import commission, job, trigger
from tests.fakes.github.ground import Ground, served
from tests.pull_requests import verification

HALF = {"app/money.py": "half = 0.25\n"}
MANY = Limits(jobs=10, per_repository=10)


@dataclass
class Desk:
    """One publisher and one worker, on the ground's clock."""

    ground: Ground
    app: App
    bot: Bot
    engine: Engine
    directory: Path
    secrets: tuple[str, ...] = ()
    jobs: list[str] = field(default_factory=list)
    unlearned: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = JobStore(self.engine, self.now)
        self.store.create_tables()
        ledger_tables.create_all(self.engine)
        self.queue = Queue(self.engine, self.now)
        self.roster = Roster(self.engine, self.now)
        self.intents = Intents(self.engine, self.now)
        self.intents.create_tables()
        self.granting = Granting(
            self.roster,
            lambda name: JobBlobs(self.engine, name),
            Quarantine(Redactor(self.secrets)),
            self.now,
            Drafts(self.roster, self.intents),
        )
        self.publisher = Publisher(self.intents, self.open, self.granting.grant, "p1")
        self.settling = Settling(self.store, self.roster, self.intents, self.mirror, unlearn=self.unlearn)
        account = partial(SqlLedger, self.engine, cap=0)
        self.herald = Herald(self.store, self.roster, self.intents, account, self.now, public_url="https://bot.example")

    def unlearn(self, repository: int, job: str) -> int:
        self.unlearned.append((repository, job))
        return 1

    def now(self) -> datetime:
        return self.ground.world.now

    def mirror(self, repository: int) -> GitStore:
        return GitStore(self.directory / "mirrors" / f"r{repository}.git")

    async def open(self, place: Place) -> GitHubForge:
        repository = RepositoryId(place.repository, place.owner, place.name)
        return await open_forge(self.app, place.installation, repository, self.mirror(place.repository), place.number)

    def place(self, number: int = 0) -> Place:
        ground = self.ground
        return Place(
            installation=ground.installation.id,
            repository=ground.repo.id,
            owner=ground.repo.owner.login,
            name=ground.repo.name,
            number=number or ground.issue.number,
        )

    async def admit(self, *, base: str = "", aim: str = "fix", job_changes: Mapping[str, Any] | None = None,
                    number: int = 0, **changes: Any) -> Job:  # fmt: skip
        """A job of the issue, or of a pull request where `number` is given; its base is in the mirror."""
        where = self.place(number)
        base = base or self.ground.repo.branches["main"]
        await (await self.open(where)).branches.bring(base)
        name = f"j{len(self.jobs) + 1}"
        made = job(name, where)
        assert made.task.origin is not None
        origin = made.task.origin.model_copy(
            update={"actor": self.ground.owner.id, "is_pull_request": changes.get("pull") is not None}
        )
        issue = made.task.issue.model_copy(update={"title": "Totals are a cent too low"})
        task = made.task.model_copy(update={"base": base, "origin": origin, "issue": issue})
        update = {"task": task, "created_at": self.now()} | dict(job_changes or {})
        made = made.model_copy(update=update)
        decided = commission(where, aim=aim, author=self.bot.person, **changes)
        asked = trigger(f"{name}/asked", where)
        assert self.queue.admit(made, decided, asked, ready=True) == name
        self.jobs.append(name)
        return made

    def commissioned(self, name: str) -> Commissioned:
        found = self.roster.get(name)
        assert found is not None
        return found

    async def work(self, made: Job, files: Mapping[str, str | bytes | None] | None = None, **changes: Any) -> str:
        """What a worker does: claim, make the commit, wish, hand over. Returns the wish's key."""
        claim = self.queue.claim("w1", MANY)
        assert claim is not None
        where = self.commissioned(made.id).commission
        patch = patch_of(made.task.base, HALF if files is None else files)
        digest = JobBlobs(self.engine, made.id).put(patch.model_dump_json().encode())
        recipe = Recipe(
            patch=digest,
            message=commit_message(made.task, "Half cents go up.", skip_ci=where.config.ci == "manual"),
            author=where.author,
            date=made.created_at,
            parents=where.parents,
        ).model_copy(update=changes.pop("recipe", {}))
        commit = commit_of(self.mirror(where.place.repository), patch, recipe)
        self.store.enter(made.id, "publishing")
        result = self.result(made, where, commit, digest).model_copy(update=changes.pop("result", {}))
        wish = self.wish(made, where, result, recipe).model_copy(update=changes)
        key = self.intents.want(made.id, claim.epoch, where.place, wish)
        self.queue.hand_over(claim, result.model_dump(mode="json"))
        self.queue.release(claim)
        return key

    def result(self, made: Job, where: Commission, commit: str, patch: str) -> Result:
        changes = self.mirror(where.place.repository).diff_stat(made.task.base, commit)
        return Result(
            exit_status="pr_updated" if where.goal == "same_branch" else "pr_opened",
            plan=Plan(summary="Half cents are rounded down.", steps=("Round half up.", "Add a test.")),
            verification=verification(),
            summary="Half cents go up.",
            branch=made.branch,
            commit=commit,
            changes=changes,
            patch=patch,
            diff=JobBlobs(self.engine, made.id).put(b"diff --git a/app/money.py b/app/money.py\n"),
            turns=7,
        )

    def wish(self, made: Job, where: Commission, result: Result, recipe: Recipe) -> OpenDraftPullRequest | PushCommits:
        if where.goal == "same_branch":
            return PushCommits(branch=made.branch, commit=result.commit, recipe=recipe, expected=where.expected)
        assert result.verification is not None
        return OpenDraftPullRequest(
            branch=made.branch,
            commit=result.commit,
            recipe=recipe,
            base=where.base_ref,
            title=pull_request_title(made.task, where.config),
            body=pull_request_body(facts_of(made, result, result.verification)),
        )

    async def publish(self) -> int:
        """Everything that is due; returns how much that was."""
        count = 0
        while await self.publisher.publish_next():
            count += 1
        return count

    async def everything(self) -> None:
        """Until nobody has anything to do at this moment."""
        while await self.herald.tell() + await self.publish() + await self.settling.settle():
            pass

    def comments(self, number: int = 0) -> list[str]:
        issue = self.ground.repo.issues[number or self.ground.issue.number]
        return [self.ground.repo.comments[comment].body for comment in issue.comments]

    def ended(self, name: str) -> tuple[str, Result]:
        """A job's final state and result."""
        row = self.commissioned(name).row
        return row.state, Result.model_validate(row.result)

    def standing(self, key: str) -> Standing:
        found = self.intents.standing(key)
        assert found is not None
        return found


def patch_of(base: str, files: Mapping[str, str | bytes | None]) -> Patch:
    changes = []
    for path, content in sorted(files.items()):
        data = content.encode() if isinstance(content, str) else content
        changes.append(FileChange(path=path, mode="100644", content=data))
    return Patch(base=base, changes=tuple(changes))


def commit_of(store: GitStore, patch: Patch, recipe: Recipe) -> str:
    return store.commit(patch, message=recipe.message, author=recipe.author, date=recipe.date, parents=recipe.parents)


@asynccontextmanager
async def desk_at(ground: Ground, directory: Path, *, secrets: tuple[str, ...] = ()) -> AsyncIterator[Desk]:
    """API in this process, git over loopback HTTP, rows in SQLite."""
    with served(ground.github) as site:
        async with ground.app(site=site) as app:
            engine = sqlite_engine(directory / "state.db", synced=False)
            try:
                yield Desk(ground, app, await who_we_are(ground.door(app)), engine, directory, secrets)
            finally:
                engine.dispose()
