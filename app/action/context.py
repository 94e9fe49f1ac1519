"""Builds what the GitHub Action's steps share: the server's parts over one state directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

from app.config.workflow import Workflow
from app.github.base import GIVEN
from app.github.connection import RepositoryId
from app.jobs.recovered import RecoveredJobQueries, RecoveredJobs
from app.publish.status_text import KEPT_IN_RECORD, NOT_KEPT
from app.server.wiring.context import ServerContext
from app.server.wiring.publisher import PublisherContext, build_publisher, defaults_of, stores_of
from app.server.wiring.workflow_connection import connect
from app.triggers.events import LabelAdded
from app.triggers.events_from_api import EventsFromApi
from app.triggers.github_clients import GitHubClients, RepositoryClients
from app.triggers.rules import LABEL
from app.triggers.status_comment_recovery import StatusCommentRecovery


class WorkflowServerContext(ServerContext):
    """The server's context for one workflow run. Earlier jobs are not in its database, so they are read from GitHub."""

    @cached_property
    def job_queries(self) -> RecoveredJobQueries:
        return RecoveredJobQueries(self.engine, self.clock)


@dataclass(frozen=True, slots=True)
class ActionContext:
    """What a step that holds the token uses to read from and write to GitHub. It has no model."""

    publisher_context: PublisherContext
    job_queries: RecoveredJobQueries
    readers: RepositoryClients
    status_recovery: StatusCommentRecovery
    recovered_jobs: RecoveredJobs

    async def labelled(self, number: int, label: str = LABEL) -> LabelAdded | None:
        """The newest time the label was added to an issue, as its webhook would tell; None if never."""
        repository = await self.readers.facts.repository()
        issue = await self.readers.facts.issue(number)
        events = await self.readers.comments.events(number) if issue else ()
        put_on = [each for each in events if each.event == "labeled" and each.label.casefold() == label]
        return EventsFromApi(GIVEN, repository).labelled(issue, put_on[-1]) if issue and put_on else None


def kept_at(workflow: Workflow) -> str:
    """The sentence that says where an unpublished change is kept."""
    return KEPT_IN_RECORD if workflow.records else NOT_KEPT


@asynccontextmanager
async def open_workflow(workflow: Workflow) -> AsyncIterator[ActionContext]:
    settings = workflow.settings
    server_context = WorkflowServerContext(settings)
    server_context.prepare()
    async with connect(settings, workflow.owner, workflow.name, workflow.token) as connection:
        github_clients, recovered_jobs = (
            GitHubClients(connection, settings.allowed_apps),
            RecoveredJobs(server_context.engine, server_context.clock),
        )
        run = int(workflow.run.partition("-")[0])
        yield ActionContext(
            build_publisher(server_context, connection, "", page=workflow.page, kept=kept_at(workflow)),
            server_context.job_queries,
            github_clients.for_repository(GIVEN, RepositoryId(0, workflow.owner, workflow.name)),
            StatusCommentRecovery(
                github_clients, stores_of(server_context), defaults_of(settings), recovered_jobs, run
            ),
            recovered_jobs,
        )
