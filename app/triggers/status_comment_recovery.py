"""Restores a job from its last status comment in the Action, which keeps no database between events.

A waiting plan can be approved, a question answered, and a paused job continued; each starts a new job with what people
said. A job in another workflow run counts as running until that run ends.
"""

import asyncio
from collections.abc import Iterable, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.core.errors import AgentFixError
from app.core.examples import JudgedExample, PlanExamples
from app.core.job import Job, JobResult
from app.core.plan import Plan, parse_plan_file
from app.core.processes import this_process
from app.core.task import IssueRef
from app.github.base import ForgeError, up_to_marker
from app.github.calls import CANCEL_RUN, GET_RUN
from app.github.models import IssueComment, WorkflowRunResponse
from app.github.reader import RepositoryReader
from app.jobs.context import JobAim, JobContext
from app.jobs.status import WORKED_ON
from app.jobs.store import RecoveredJobs
from app.jobs.trigger_log import Trigger
from app.publish.effects import Receipt, UpdateStatusComment
from app.publish.status_text import StatusCommentState, read_status, shows_status
from app.repo.git_format import is_full_id
from app.triggers.commands import parse
from app.triggers.decisions import EventFacts, IssueState, JobRequest, TriggerContext
from app.triggers.events import CommentEvent, TriggerEvent
from app.triggers.github_clients import GitHubClients, RepositoryContext, read_config
from app.triggers.job_creator import JobDraft, base_branch
from app.triggers.prompt_context import PromptContext, load_prompt_context
from app.triggers.rules import destination_of
from app.triggers.stores import ServerDefaults, Stores

AGAIN: Final = (
    "A new workflow run has nothing of the earlier one, so the job starts again, with the comments since then."
)
ENDED_WITHOUT_REPORT: Final = "Its workflow run ended without a report."
_RECOVERABLE: Final = frozenset({"awaiting_approval", "answered", "reproduced", "needs_input", "paused", *WORKED_ON})
_AIMS_KEPT_BY_RETRY: Final[frozenset[JobAim]] = frozenset({"plan", "reproduce", "conflicts", "ci", "fix_checks"})
"""Jobs that `/agent retry` repeats as they were, also if they have ended; all others are started again as a fix."""


@dataclass(frozen=True, slots=True)
class RecoveredStatus:
    """The last job of an issue, as people were told of it. `elsewhere`: another run works on it at this moment."""

    posted: StatusCommentState
    issue_ref: IssueRef
    elsewhere: bool

    @property
    def is_lost(self) -> bool:
        """Nobody works on it any more, and nobody has said so."""
        return self.posted.state in WORKED_ON and not self.elsewhere


@dataclass(frozen=True, slots=True)
class StatusCommentRecovery:
    """Looks at one issue or pull request. `run` is the number of the workflow's run that we are in."""

    github_clients: GitHubClients
    stores: Stores
    defaults: ServerDefaults
    recovered_jobs: RecoveredJobs
    run: int

    async def recover(self, event: TriggerEvent) -> RecoveredStatus | None:
        """Restore the job from its comment into the database; None if there is no such comment, or no need of it."""
        reader = self.github_clients.for_repository(event.installation, event.repository)
        repo = await self.github_clients.context_of(reader, await reader.repository())
        found = await last_status(reader, event.subject.number, repo.ours.user, self.stores.clock())
        if found is None:
            return None
        status, address = found
        if status.state not in _RECOVERABLE and not (_is_retry(event) and status.aim in _AIMS_KEPT_BY_RETRY):
            return None
        elsewhere = status.state in WORKED_ON and status.run != self.run and await is_running(reader, status.run)
        drafted = await self._drafted(event, repo, status)
        if drafted is None:
            return None
        job, job_context = drafted
        await asyncio.to_thread(self._write, status, address, job, job_context, elsewhere=elsewhere)
        return RecoveredStatus(status, job_context.issue_ref, elsewhere)

    async def repair(self, reader: RepositoryReader, number: int) -> int:
        """How often a pull request was followed up without being asked: our statuses on it, except those that follow a
        command of somebody with write access."""
        bot_id = (await self.github_clients.ourselves(reader)).user
        comments = await reader.comments(number, self.stores.clock() + timedelta(days=1))
        asking = {each.author for each in comments if each.author != bot_id and parse(each.body) is not None}
        authorised = {author for author in asking if await reader.may_write(author)}
        return rounds_in(comments, bot_id, authorised)

    async def cancel(self, reader: RepositoryReader, run: int) -> bool:
        """End another run; False if the token may not."""
        try:
            await reader.api.change(dict, CANCEL_RUN, run)
        except ForgeError:
            return False
        return True

    async def _drafted(
        self, event: TriggerEvent, repo: RepositoryContext, status: StatusCommentState
    ) -> tuple[Job, JobContext] | None:
        """The job as if who speaks now had asked for it: it is their permission that counts."""
        reader, subject, now = repo.reader, event.subject, self.stores.clock()
        pull = await reader.pull_request(subject.number) if subject.is_pull_request else None
        config = await read_config(reader, self.defaults.operator)
        if isinstance(config, AgentFixError):
            return None
        request = JobRequest(
            aim="plan" if status.plan else "fix",
            subject=subject,
            trigger="" if subject.is_pull_request else "issue",
            destination=destination_of(event, pull),
        )
        base = pull.head if pull else await reader.head(base_branch(request, config, repo.repository))
        if base is None or not is_full_id(base):
            return None
        at = event.at if isinstance(event, CommentEvent) else now
        trigger = Trigger("", event.repository.id, subject.number, event.actor.id, "", at, login=event.actor.login)
        context = TriggerContext(repo, trigger, EventFacts(event, None, repo.ours, IssueState(), config, pull=pull))
        prompt_context = PromptContext()
        goes_on = status.state in {"paused", "needs_input"}
        if goes_on:
            prompt_context = await load_prompt_context(request, context)
        aim: JobAim = "plan" if status.plan else "fix"
        if status.state == "reproduced" or (_is_retry(event) and not status.plan):
            aim = next((each for each in _AIMS_KEPT_BY_RETRY if each == status.aim), "fix")
        draft = JobDraft(request, context, self.defaults, aim, base, now, prompt_context)
        job_context = draft.job_context()
        notes = (*job_context.notes, AGAIN) if goes_on else job_context.notes
        return draft.job().model_copy(update={"id": status.job}), job_context.model_copy(update={"notes": notes})

    def _write(
        self, status: StatusCommentState, address: str, job: Job, job_context: JobContext, *, elsewhere: bool
    ) -> None:
        state, known, result = status.state, True, None
        if status.state in WORKED_ON and not elsewhere:
            state, known, result = "error", False, JobResult(exit_status="error", reason=ENDED_WITHOUT_REPORT)
        elif status.plan:
            try:
                plan = parse_plan_file(status.plan)  # as people left it
            except AgentFixError:  # it is not approved, and who approves it is told why
                plan = Plan(summary="")
            state = "reproduced" if status.state == "reproduced" else "answered"
            found = PlanExamples(examples=tuple(JudgedExample(**dict(one)) for one in plan.examples))
            result = JobResult(exit_status=state, plan=plan, examples=found if state == "reproduced" else None)
        dumped = result.model_dump(mode="json") if result else None
        reason = result.reason if result else ""
        self.recovered_jobs.write(job, job_context, state, dumped, reason=reason, posted=known)
        outbox = self.stores.outbox
        outbox.add(job.id, 0, job_context.issue_ref, UpdateStatusComment(body=status.state))
        claim = outbox.claim(f"{this_process()}:recovery")
        if claim is not None:  # it is the only one there is
            outbox.done(claim, Receipt(url=address))


def _is_retry(event: TriggerEvent) -> bool:
    command = parse(event.text) if isinstance(event, CommentEvent) else None
    return command is not None and command.verb == "retry"


async def last_status(
    reader: RepositoryReader, number: int, bot_id: int, now: datetime
) -> tuple[StatusCommentState, str] | None:
    """What the newest status comment that is our own says, with its address."""
    comments = await reader.comments(number, now + timedelta(days=1))
    for each in reversed([each for each in comments if each.author == bot_id]):
        if found := read_status(each.body) or await _edited_status(reader, each):
            return found, each.url
    return None


async def _edited_status(reader: RepositoryReader, comment: IssueComment) -> StatusCommentState | None:
    """What a status comment says above the words of a person with write access, who edited it last.

    Without such a person, another workflow may have posted a stranger's text from the same account.
    """
    if not shows_status(comment.body):
        return None
    edit = await reader.last_edit(comment.node)
    if edit is None or not edit.editor_name or edit.editor == comment.author or not await reader.may_write(edit.editor):
        return None
    return read_status(up_to_marker(edit.body))


def rounds_in(comments: Iterable[IssueComment], bot_id: int, authorised: Set[int]) -> int:
    """Our statuses that follow no command of an authorised person."""
    follow_ups, was_requested = 0, False
    for each in comments:
        if each.author == bot_id and shows_status(each.body):
            follow_ups, was_requested = follow_ups + (not was_requested), False
        elif each.author in authorised:
            was_requested = was_requested or parse(each.body) is not None
    return follow_ups


async def is_running(reader: RepositoryReader, run: int) -> bool:
    """Whether a workflow's run has not ended yet."""
    found = await reader.api.find(WorkflowRunResponse, GET_RUN, run) if run else None
    return found is not None and found.status != "completed"
