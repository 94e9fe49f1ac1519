"""Builds what the GitHub Action's steps share: the server's parts over one state directory."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from app.config.workflow import Workflow
from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor
from app.github.base import GIVEN
from app.github.connection import RepositoryId
from app.github.reader import RepositoryReader
from app.jobs.store import JobWithContext, RecoveredJobQueries, RecoveredJobs
from app.publish.markdown import prose
from app.publish.status_text import KEPT_IN_RECORD, NOT_KEPT
from app.server.context import ServerContext
from app.server.github_access import connect
from app.server.publisher import PublisherContext, build_publisher, defaults_of
from app.triggers.events import Event, LabelAdded, TriggerEvent, decode, read
from app.triggers.github_clients import GitHubClients
from app.triggers.poller import label_added
from app.triggers.rules import LABEL, command_of
from app.triggers.status_comment_recovery import StatusCommentRecovery

_SAME_AS: Final = {"pull_request_target": "pull_request"}


@dataclass(frozen=True, slots=True)
class WorkflowEvent:
    """A workflow's event as a webhook delivery. `nothing` says why it requests nothing; it is empty otherwise."""

    name: str
    body: bytes
    event: Event | None
    nothing: str


def read_workflow_event(workflow: Workflow) -> WorkflowEvent:
    """Raises AgentFixError if the event file cannot be read. The installation is GIVEN: a workflow's event has none."""
    payload: dict[str, Any] = {}
    if workflow.event_file is not None:
        try:
            payload = decode(workflow.event_file.read_bytes())
        except (OSError, ValueError) as error:
            raise AgentFixError("The workflow's event file cannot be read.", code=ExitCode.USAGE) from error
    payload = {**payload, "installation": {"id": GIVEN}}
    name = _SAME_AS.get(workflow.event, workflow.event)
    body, event = json.dumps(payload).encode(), read(name, payload)
    if isinstance(event, str):
        nothing = f"this event does not start anything ({event.replace('_', ' ')})"
        return WorkflowEvent(name, body, None, nothing)
    requested = not isinstance(event, TriggerEvent) or command_of(event) is not None
    return WorkflowEvent(name, body, event, "" if requested else "it has no command for agent-fix")


CANCELLED: Final = "The workflow run was cancelled."


def write_outputs(workflow: Workflow, values: Mapping[str, str]) -> None:
    """The delimiter is random, so that no value can end itself and start another output."""
    if workflow.output is None:
        return
    with workflow.output.open("a", encoding="utf-8", errors="replace") as file:
        for name, value in values.items():
            mark = f"end-{secrets.token_hex(16)}"
            file.write(f"{name}<<{mark}\n{value}\n{mark}\n")


def write_summary(workflow: Workflow, text: str) -> None:
    if workflow.summary is not None:
        with workflow.summary.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")


def fail(workflow: Workflow, error: AgentFixError) -> None:
    """Show the error on the workflow's page, where people look first."""
    redactor = Redactor(workflow.settings.secrets)
    parts = (prose(redactor.redact(part)) for part in (error.message, error.hint) if part)
    write_summary(workflow, "## 💥 agent-fix failed\n\n" + "\n\n".join(parts))


AFTER_A_RESET = 120.0
"""Seconds for what waited until GitHub took requests again."""


class DrainLimits:
    """Paces a loop for this many seconds, or longer if GitHub has named a time to continue."""

    def __init__(
        self, seconds: float, *, at_most: float = 0.0, pause: float = 0.2, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`at_most` are the seconds that may be waited in all for a moment that GitHub named."""
        self._now = now
        self._until = now() + seconds
        self._last = now() + at_most
        self._pause = pause

    @property
    def over(self) -> bool:
        return self._now() >= self._until

    def wait_for(self, seconds: float) -> None:
        """Extend the deadline to AFTER_A_RESET seconds after that moment, unless it is later than `at_most` allows."""
        then = self._now() + seconds
        if then <= self._last:
            self._until = max(self._until, then + AFTER_A_RESET)

    async def wait(self) -> None:
        if self.over:
            raise AgentFixError(
                "GitHub did not answer in time.", code=ExitCode.INTERNAL, hint="Run the workflow again."
            )
        await asyncio.sleep(self._pause)


async def drain(publisher_context: PublisherContext, limits: DrainLimits, *, everything: bool = False) -> None:
    """Publish, finalize and post until nothing is due; with `everything`, until nothing is open."""
    server_context = publisher_context.server_context
    while True:
        done = int(await publisher_context.publisher.publish_next() is not None)
        done += await publisher_context.finalizer.finalize()
        found = await asyncio.to_thread(job_of_this_run, server_context)
        # Elapsed time alone needs no update when a step ends.
        if found is not None and found.posted_state != found.row.state:
            done += await publisher_context.status_updater.post_due()
        if done:
            continue
        if not everything:
            return
        waiting = await asyncio.to_thread(server_context.outbox.next_due)
        if waiting is not None:
            limits.wait_for((waiting - server_context.clock()).total_seconds())
        elif not await asyncio.to_thread(server_context.job_queries.handed_over_jobs):
            return
        await limits.wait()


def job_of_this_run(server_context: ServerContext) -> JobWithContext | None:
    """The job of this workflow run, if there is one."""
    newest = server_context.job_store().newest(1)
    return server_context.job_queries.get(newest[0].job.id) if newest else None


@dataclass(frozen=True, slots=True)
class ActionContext:
    """What a step that holds the token uses to read from and write to GitHub. It has no model."""

    publisher_context: PublisherContext
    job_queries: RecoveredJobQueries
    reader: RepositoryReader
    status_recovery: StatusCommentRecovery
    recovered_jobs: RecoveredJobs

    async def labelled(self, number: int, label: str = LABEL) -> LabelAdded | None:
        """The newest time the label was added to an issue, as its webhook would tell; None if never."""
        repository = await self.reader.repository()
        issue = await self.reader.issue(number)
        events = await self.reader.issue_events(number) if issue else ()
        put_on = [each for each in events if each.event == "labeled" and each.label.casefold() == label]
        return label_added(GIVEN, repository, issue, put_on[-1]) if issue and put_on else None


def unpublished_change_note(workflow: Workflow) -> str:
    """The sentence that says where an unpublished change is kept."""
    return KEPT_IN_RECORD if workflow.records else NOT_KEPT


@asynccontextmanager
async def open_workflow(workflow: Workflow) -> AsyncIterator[ActionContext]:
    settings = workflow.settings
    server_context = ServerContext(settings)
    server_context.prepare()
    # Earlier jobs are not in a workflow run's database, so they are read from GitHub.
    server_context.job_queries = job_queries = RecoveredJobQueries(server_context.engine, server_context.clock)
    async with connect(settings, workflow.owner, workflow.name, workflow.token) as connection:
        github_clients = GitHubClients(connection, settings.allowed_apps)
        recovered_jobs = RecoveredJobs(server_context.engine, server_context.clock)
        run, kept = int(workflow.run.partition("-")[0]), unpublished_change_note(workflow)
        yield ActionContext(
            build_publisher(server_context, connection, "", page=workflow.page, run=run, kept=kept),
            job_queries,
            github_clients.for_repository(GIVEN, RepositoryId(0, workflow.owner, workflow.name)),
            StatusCommentRecovery(github_clients, server_context, defaults_of(settings), recovered_jobs, run),
            recovered_jobs,
        )
