"""Handles commands for an existing job: a message, approval, answer, higher limit or stop; each once, in order."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from app.core.errors import AgentFixError
from app.core.job import Budget
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.core.text import clip, one_line
from app.github.http_client import NotFoundOnGitHub
from app.github.models import Account, CommentEdit
from app.jobs.job_actions import raised_budget
from app.jobs.job_queries import JobWithContext
from app.jobs.triggers import MessageKind
from app.publish import replies
from app.publish.effects import UpdateStatusComment, key_of
from app.publish.status_text import read_plan
from app.triggers.decisions import JobRequest
from app.triggers.event_facts import TriggerContext
from app.triggers.github_clients import RepositoryContext
from app.triggers.job_creator import JobCreator, ReplyPoster, RetryLater, StateChanged
from app.triggers.job_draft import as_before
from app.triggers.prompt_context import comments_in, is_about, is_asking, refs_of, review_of
from app.triggers.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_COMMENT = re.compile(r"#issuecomment-([0-9]+)$")


@dataclass(frozen=True, slots=True)
class ApprovedPlanText:
    """The edited plan's text (empty if it was not edited), or the reason why it cannot be approved."""

    text: str = ""
    problem: str = ""
    editor: str = ""


async def approved_plan(
    job: JobWithContext, repo_context: RepositoryContext, stores: Stores, approved_at: datetime
) -> ApprovedPlanText:
    """The plan that people see in the status comment is the one they approve."""
    address = status_address(job.job.id, stores)
    found = _COMMENT.search(address)
    edit = await repo_context.reader.comment_edit(int(found[1])) if found else None
    if edit is None or edit.editor is None or edit.editor.id == repo_context.ours.user:
        return ApprovedPlanText()
    text = read_plan(edit.body)
    if text is None:
        return ApprovedPlanText()
    if problem := await _problem(edit, edit.editor, text, repo_context, approved_at):
        return ApprovedPlanText(problem=problem)
    return ApprovedPlanText(text=text, editor=edit.editor.login)


async def _problem(
    edit: CommentEdit, editor: Account, text: str, repo_context: RepositoryContext, approved_at: datetime
) -> str:
    if edit.edited_at is not None and edit.edited_at > approved_at:
        return replies.plan_edited_since()
    if not await _may_write(editor.id, repo_context):
        return replies.plan_edited_by_stranger(editor.login)
    try:
        parse_plan_file(text)
    except AgentFixError as error:
        return replies.unreadable_plan(error.message)
    return ""


async def _may_write(user: int, repo_context: RepositoryContext) -> bool:
    try:
        return (await repo_context.reader.actor(user)).may_write
    except NotFoundOnGitHub:
        return False


def plan_of(job: JobWithContext) -> str:
    """The plan that a job ended with, as text."""
    return render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))


def status_address(job: str, stores: Stores) -> str:
    """The URL of the status comment; empty if there is none yet."""
    status = stores.outbox.status(key_of(job, UpdateStatusComment(body="")))
    return status.receipt.url if status and status.receipt else ""


MAX_SAID = 20_000
"""Characters of one message to a job."""


class JobCommands:
    """Passes commands to active jobs."""

    def __init__(self, stores: Stores, job_creator: JobCreator, reply_poster: ReplyPoster, defaults: Budget) -> None:
        self._stores = stores
        self._job_creator = job_creator
        self._reply_poster = reply_poster
        self._defaults = defaults

    async def handle(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        """Handle any command for a job."""
        handlers: dict[str, Callable[[JobRequest, TriggerContext, JobWithContext], Awaitable[str]]] = {
            "steer": self._steer,
            "answer": self._answer,
            "approve": self._approve,
            "continue": self._continue,
        }
        job = trigger_context.found.job
        if job is None:
            if job_request.aim != "status":
                raise StateChanged("The job no longer exists.")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply no_job", replies.no_job())
        if job_request.aim in {"stop", "status"}:
            act = self._end if job_request.aim == "stop" else self._reply_status
            return await asyncio.to_thread(act, trigger_context, job)
        return await handlers[job_request.aim](job_request, trigger_context, job)

    async def _steer(self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext) -> str:
        if job.handed_over:
            raise RetryLater("The job is publishing its result and no longer reads messages.")
        return await asyncio.to_thread(
            self._send_message, job_request, trigger_context, job, await self._placed(job_request, trigger_context, job)
        )

    async def _placed(self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext) -> str:
        """The message, with the lines of the diff it is about; the job will reply in those threads too."""
        if job_request.thread is None and not review_of(job_request):
            return job_request.text
        review, asked_at = review_of(job_request), trigger_context.trigger.at
        threads = await trigger_context.repo_context.reader.review_threads(
            trigger_context.trigger.number, asked_at, including=is_asking(job_request), review=review
        )
        refs = refs_of(each for each in threads if not each.resolved and is_about(job_request, each))
        if refs and job.job_context.publish_target != "nowhere":
            await asyncio.to_thread(self._stores.job_queries.join_threads, job.job.id, refs)
        if job_request.thread is not None:
            return _on_line(job_request.text, job_request.thread.path, job_request.thread.end)
        lines = [_on_line(text, thread.path, thread.line) for thread, text in comments_in(threads, review)]
        return clip("\n\n".join(text for text in (job_request.text, *lines) if text.strip()), MAX_SAID)

    def _send_message(
        self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext, text: str
    ) -> str:
        """Store a message: the agent gets it at its next turn, or when a paused job resumes."""
        if not text:
            words = replies.refused("A job is already working on it.")
            return self._reply_poster.answer(trigger_context, "skip busy", words)
        self._message(trigger_context, job, "steer", text)
        self._reply_poster.acknowledge(trigger_context)
        outcome = f"steer {job.job.id}"
        if job.row.state == "awaiting_approval":
            return self._reply_poster.answer(trigger_context, outcome, replies.message_noted(job.row.state))
        return self._reply_poster.decide(trigger_context, outcome, job.job.id)

    async def _answer(self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext) -> str:
        text = await self._placed(job_request, trigger_context, job)
        return await asyncio.to_thread(self._resume, job_request, trigger_context, job, "answer", text)

    async def _approve(self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext) -> str:
        approved = await approved_plan(job, trigger_context.repo_context, self._stores, trigger_context.trigger.at)
        if approved.problem:
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply plan", approved.problem)
        if job.row.state == "awaiting_approval":
            text = await asyncio.to_thread(self._newest_plan, job, approved.text, approved.editor)
            return await asyncio.to_thread(self._resume, job_request, trigger_context, job, "approve", text)
        plan = approved.text or plan_of(job)
        begin = job_request.model_copy(
            update={"aim": "fix", "job": "", "text": job_request.text or job.job.task.request}
        )
        return await self._job_creator.start(as_before(begin, job.job), trigger_context, plan_file=plan)

    def _newest_plan(self, job: JobWithContext, edited: str, editor: str) -> str:
        """The plan as edited in the comment, which becomes a version, or as edited through the API."""
        if edited:
            self._stores.plans.record(job.job.id, parse_plan_file(edited), editor)
        return edited or self._stores.plans.edited_text(job.job.id)

    async def _continue(self, job_request: JobRequest, trigger_context: TriggerContext, job: JobWithContext) -> str:
        options = job_request.options
        if options.budget is None and options.extra is None and job.waiting_for == "money":
            words = replies.reply("Its budget is spent; say how much more it may cost.", "/agent continue --budget +3")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply budget", words)
        return await asyncio.to_thread(self._resume, job_request, trigger_context, job, "continue", job_request.text)

    def _resume(
        self,
        job_request: JobRequest,
        trigger_context: TriggerContext,
        job: JobWithContext,
        kind: MessageKind,
        text: str,
    ) -> str:
        """Store the message, then resume the job together with the trigger; not repeated after a crash in between."""
        self._message(trigger_context, job, kind, text)
        self._reply_poster.acknowledge(trigger_context)
        outcome = f"{kind} {job.job.id}"
        changed = None
        if kind == "continue":
            options = job_request.options
            raised = raised_budget(job, options.budget, options.extra, self._defaults)
            changed = job.job.model_copy(update={"budget": raised})
        if not self._stores.queue.resume(job.job.id, changed, trigger=trigger_context.trigger, outcome=outcome):
            if self._stores.triggers.decided(trigger_context.trigger.key):
                return "decided before"
            words = replies.reply("The job has continued or ended in the meantime.", "/agent status")
            return self._reply_poster.answer(trigger_context, "reply too_late", words)
        return outcome

    def _end(self, trigger_context: TriggerContext, job: JobWithContext) -> str:
        """Stop the job and the questions that are being answered beside it."""
        reason = f"Stopped by {trigger_context.trigger.login}."
        self._reply_poster.acknowledge(trigger_context)
        for each in self._stores.job_queries.active_jobs(repository=trigger_context.repo_context.repository.id):
            if each.job_context.issue_ref.number == trigger_context.trigger.number and each.job.id != job.job.id:
                self._stores.queue.stop(each.job.id, reason)
        self._stores.queue.stop(job.job.id, reason, trigger=trigger_context.trigger)
        return f"stop {job.job.id}"

    def _reply_status(self, trigger_context: TriggerContext, job: JobWithContext) -> str:
        address = status_address(job.job.id, self._stores)
        words = replies.status(job.job.id, job.row.state, job.row.reason, address)
        return self._reply_poster.answer(trigger_context, f"status {job.job.id}", words)

    def _message(self, trigger_context: TriggerContext, job: JobWithContext, kind: MessageKind, text: str) -> None:
        key, who = trigger_context.trigger.key, trigger_context.trigger.login
        self._stores.messages.add(job.job.id, kind, key=key, who=who, text=text)


def _on_line(text: str, path: str, line: int | None) -> str:
    where = f"{one_line(path)}:{line}" if line is not None else one_line(path)
    return f"(about {where})\n{text}" if text.strip() else ""
