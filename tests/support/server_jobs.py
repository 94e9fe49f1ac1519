"""Jobs of a server as tests need them: at a place, asked for by a trigger, with what the test is about."""

from datetime import UTC, datetime
from typing import Any

from app.config.repository import RepoConfig
from app.core.job import Budget, Job
from app.core.task import Issue, IssueRef, Person, Task, TaskOrigin
from app.jobs.context import JobContext
from app.jobs.trigger_log import Trigger

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOT = Person(name="agent-fix[bot]", email="1+agent-fix[bot]@users.noreply.forge.example")


def issue_ref(number: int = 3, repository: int = 2) -> IssueRef:
    return IssueRef(installation=1, repository=repository, owner="ada", name="sample", number=number)


def job_context(where: IssueRef | None = None, **changes: Any) -> JobContext:
    values: dict[str, Any] = {
        "issue_ref": where or issue_ref(),
        "aim": "fix",
        "trigger": "issue",
        "login": "ada",
        "author": BOT,
        "config": RepoConfig(),
        "publish_target": "new_branch",
        "base_ref": "main",
    }
    return JobContext.model_validate(values | changes)


def job(name: str, where: IssueRef | None = None, **changes: Any) -> Job:
    where = where or issue_ref()
    origin = TaskOrigin(
        installation=where.installation,
        repository=where.repository,
        number=where.number,
        is_pull_request=False,
        actor=7,
    )
    task = Task(
        repository=f"{where.owner}/{where.name}",
        issue=Issue(title="Totals are wrong", body="They are.", number=where.number),
        base="a" * 40,
        base_ref="main",
        slug="totals-are-wrong",
        origin=origin,
    )
    values: dict[str, Any] = {
        "id": name,
        "task": task,
        "branch": f"agent-fix/issue-{where.number}-totals-are-wrong",
        "budget": Budget(),
        "model": "scripted/one",
        "created_at": START,
    }
    return Job.model_validate(values | changes)


def trigger(key: str, where: IssueRef | None = None, *, verb: str = "fix", at: datetime = START) -> Trigger:
    where = where or issue_ref()
    return Trigger(key=key, repository=where.repository, number=where.number, actor=7, verb=verb, at=at)
