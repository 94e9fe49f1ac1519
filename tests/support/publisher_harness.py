"""A publisher on the fake GitHub, with finished jobs and everything that publishes them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine

from app.core.job import Job, JobResult
from app.core.patch import FileChange, Patch
from app.core.plan import Plan
from app.core.redaction import Redactor
from app.core.task import IssueRef
from app.github.connection import AppConnection, RepositoryId
from app.github.effects import GitHubForge, open_forge
from app.github.models import BotAccount
from app.github.repository_api import find_bot_account
from app.jobs.context import JobContext
from app.jobs.queue import JobQueue, QueueLimits
from app.jobs.schema import prepare_tables
from app.jobs.store import JobBlobs, JobQueries, JobStore, JobWithContext
from app.jobs.tables import sqlite_engine
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import CommitRecipe, OpenDraftPullRequest, PushCommits
from app.publish.outbox import EffectStatus, Outbox
from app.publish.policy import PublishPolicy
from app.publish.publisher import JobFinalizer, Publisher
from app.publish.pull_request_text import PullRequestContent, commit_message, pull_request_body, pull_request_title
from app.publish.secret_scan import SecretScan
from app.publish.status_updater import StatusUpdater
from app.repo.git_store import GitStore
from tests.support.github.fake import FakeGitHubSetup, served
from tests.support.pull_requests import verification
from tests.support.server_jobs import job, job_context, trigger

HALF = {"app/money.py": "half = 0.25\n"}
MANY = QueueLimits(jobs=10, per_repository=10)


@dataclass
class PublisherHarness:
    """One publisher and one worker, on the ground's clock."""

    fake_github: FakeGitHubSetup
    app: AppConnection
    bot: BotAccount
    engine: Engine
    directory: Path
    secrets: tuple[str, ...] = ()
    jobs: list[str] = field(default_factory=list)
    unlearned: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        prepare_tables(self.engine)
        self.store = JobStore(self.engine, self.now)
        self.queue = JobQueue(self.engine, self.now)
        self.job_queries = JobQueries(self.engine, self.now)
        self.outbox = Outbox(self.engine, self.now)
        self.policy = PublishPolicy(
            self.job_queries,
            lambda name: JobBlobs(self.engine, name),
            SecretScan(Redactor(self.secrets)),
            self.now,
            self.outbox,
        )
        self.publisher = Publisher(self.outbox, self.open, self.policy.check, "p1")
        self.finalizer = JobFinalizer(
            self.store, self.job_queries, self.outbox, self.mirror, forget_lessons=self.forget_lessons
        )
        account = partial(SqlLedger, self.engine, cap=0)
        self.status_updater = StatusUpdater(
            self.store, self.job_queries, self.outbox, account, self.now, public_url="https://bot.example"
        )

    def forget_lessons(self, repository: int, job: str) -> int:
        self.unlearned.append((repository, job))
        return 1

    def now(self) -> datetime:
        return self.fake_github.world.now

    def mirror(self, repository: int) -> GitStore:
        return GitStore(self.directory / "mirrors" / f"r{repository}.git")

    async def open(self, place: IssueRef) -> GitHubForge:
        repository = RepositoryId(place.repository, place.owner, place.name)
        return await open_forge(self.app, place.installation, repository, self.mirror(place.repository), place.number)

    def place(self, number: int = 0) -> IssueRef:
        fake_github = self.fake_github
        return IssueRef(
            installation=fake_github.installation.id,
            repository=fake_github.repo.id,
            owner=fake_github.repo.owner.login,
            name=fake_github.repo.name,
            number=number or fake_github.issue.number,
        )

    async def admit(self, *, base: str = "", aim: str = "fix", job_changes: Mapping[str, Any] | None = None,
                    number: int = 0, **changes: Any) -> Job:  # fmt: skip
        """A job of the issue, or of a pull request where `number` is given; its base is in the mirror."""
        where = self.place(number)
        base = base or self.fake_github.repo.branches["main"]
        await (await self.open(where)).branches.fetch(base)
        name = f"j{len(self.jobs) + 1}"
        made = job(name, where)
        assert made.task.origin is not None
        origin = made.task.origin.model_copy(
            update={"actor": self.fake_github.owner.id, "is_pull_request": changes.get("pull") is not None}
        )
        issue = made.task.issue.model_copy(update={"title": "Totals are a cent too low"})
        update = {"base": base, "origin": origin, "issue": issue, "allowed_paths": changes.pop("allowed", ())}
        task = made.task.model_copy(update=update)
        update = {"task": task, "created_at": self.now()} | dict(job_changes or {})
        made = made.model_copy(update=update)
        decided = job_context(where, aim=aim, author=self.bot.person, **changes)
        asked = trigger(f"{name}/asked", where)
        assert self.queue.admit(made, decided, asked, ready=True) == name
        self.jobs.append(name)
        return made

    def job_with_context(self, name: str) -> JobWithContext:
        found = self.job_queries.get(name)
        assert found is not None
        return found

    async def work(self, made: Job, files: Mapping[str, str | bytes | None] | None = None, **changes: Any) -> str:
        """What a worker does: claim, make the commit, request the effect, hand over. Returns the effect's key."""
        claim = self.queue.claim("w1", MANY)
        assert claim is not None
        where = self.job_with_context(made.id).job_context
        patch = patch_of(made.task.base, HALF if files is None else files)
        digest = JobBlobs(self.engine, made.id).put(patch.model_dump_json().encode())
        recipe = CommitRecipe(
            patch=digest,
            message=commit_message(made.task, "Half cents go up.", skip_ci=where.config.ci == "manual"),
            author=where.author,
            date=made.created_at,
            parents=where.parents,
        ).model_copy(update=changes.pop("recipe", {}))
        commit = recipe.commit(self.mirror(where.issue_ref.repository), patch)
        self.store.enter(made.id, "publishing")
        result = self.result(made, where, commit, digest).model_copy(update=changes.pop("result", {}))
        effect = self.effect(made, where, result, recipe).model_copy(update=changes)
        key = self.outbox.add(made.id, claim.epoch, where.issue_ref, effect)
        self.queue.hand_over(claim, result.model_dump(mode="json"))
        self.queue.release(claim)
        return key

    def result(self, made: Job, where: JobContext, commit: str, patch: str) -> JobResult:
        changes = self.mirror(where.issue_ref.repository).diff_stat(made.task.base, commit)
        return JobResult(
            exit_status="pr_updated" if where.publish_target == "same_branch" else "pr_opened",
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

    def effect(
        self, made: Job, where: JobContext, result: JobResult, recipe: CommitRecipe
    ) -> OpenDraftPullRequest | PushCommits:
        if where.publish_target == "same_branch":
            return PushCommits(branch=made.branch, commit=result.commit, recipe=recipe, expected=where.expected)
        assert result.verification is not None
        return OpenDraftPullRequest(
            branch=made.branch,
            commit=result.commit,
            recipe=recipe,
            base=where.base_ref,
            title=pull_request_title(made.task, where.config),
            body=pull_request_body(PullRequestContent(made, result, result.verification)),
        )

    async def publish(self) -> int:
        """Everything that is due; returns how much that was."""
        count = 0
        while await self.publisher.publish_next():
            count += 1
        return count

    async def everything(self) -> None:
        """Until nobody has anything to do at this moment."""
        while await self.status_updater.post_due() + await self.publish() + await self.finalizer.finalize():
            pass

    def comments(self, number: int = 0) -> list[str]:
        issue = self.fake_github.repo.issues[number or self.fake_github.issue.number]
        return [self.fake_github.repo.comments[comment].body for comment in issue.comments]

    def ended(self, name: str) -> tuple[str, JobResult]:
        """A job's final state and result."""
        row = self.job_with_context(name).row
        return row.state, JobResult.model_validate(row.result)

    def effect_status(self, key: str) -> EffectStatus:
        found = self.outbox.status(key)
        assert found is not None
        return found


def patch_of(base: str, files: Mapping[str, str | bytes | None]) -> Patch:
    changes = []
    for path, content in sorted(files.items()):
        data = content.encode() if isinstance(content, str) else content
        changes.append(FileChange(path=path, mode="100644", content=data))
    return Patch(base=base, changes=tuple(changes))


@asynccontextmanager
async def publisher_harness(
    fake_github: FakeGitHubSetup, directory: Path, *, secrets: tuple[str, ...] = ()
) -> AsyncIterator[PublisherHarness]:
    """API in this process, git over loopback HTTP, rows in SQLite."""
    with served(fake_github.github) as site:
        async with fake_github.app(site=site) as app:
            engine = sqlite_engine(directory / "state.db", synced=False)
            try:
                yield PublisherHarness(
                    fake_github, app, await find_bot_account(fake_github.api(app)), engine, directory, secrets
                )
            finally:
                engine.dispose()
