"""Handles commands for an existing job: a message, approval, answer, higher limit or stop; each once, in order."""

import asyncio
import re

from app.core.errors import AgentFixError
from app.core.job import Budget
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.core.text import clip, one_line
from app.jobs.job_actions import raised_budget
from app.jobs.store import JobWithContext
from app.jobs.triggers import MessageKind
from app.publish import replies
from app.publish.effects import AddReaction, UpdateStatusComment, key_of
from app.publish.outbox import name_without_job
from app.publish.status_text import read_plan
from app.triggers.decisions import JobRequest, TriggerAnswer, TriggerContext
from app.triggers.job_creator import JobCreator, RetryLater, StateChanged, as_before
from app.triggers.prompt_context import comments_in, is_about, is_asking, refs_of, review_of
from app.triggers.stores import Stores

_COMMENT = re.compile(r"#issuecomment-([0-9]+)$")
MAX_SAID = 20_000
"""Characters of one message to a job."""


class JobCommands:
    """Passes commands to active jobs. Returns the outcome if it is stored already, or an TriggerAnswer."""

    def __init__(self, stores: Stores, job_creator: JobCreator, defaults: Budget) -> None:
        self._stores = stores
        self._job_creator = job_creator
        self._defaults = defaults

    async def handle(  # noqa: PLR0911  # one case a command
        self, request: JobRequest, context: TriggerContext
    ) -> str | TriggerAnswer:
        """Handle any command for a job."""
        job = context.found.job
        if job is None:
            if request.aim != "status":
                raise StateChanged("The job no longer exists.")
            return TriggerAnswer("reply no_job", replies.no_job())
        match request.aim:
            case "steer":
                return await self._steer(request, context, job)
            case "answer":
                text = await self._message_text(request, context, job)
                return await asyncio.to_thread(self._resume, request, context, job, "answer", text)
            case "approve":
                return await self._approve(request, context, job)
            case "continue":
                options = request.options
                if options.budget is None and options.extra is None and job.waiting_for == "money":
                    problem, command = (
                        "Its budget is spent; say how much more it may cost.",
                        "/agent continue --budget +3",
                    )
                    return TriggerAnswer("reply budget", replies.reply(problem, command))
                return await asyncio.to_thread(self._resume, request, context, job, "continue", request.text)
            case "stop":
                return await asyncio.to_thread(self._stop, context, job)
            case "status":
                address = await asyncio.to_thread(status_address, job.job.id, self._stores)
                words = replies.status(job.job.id, job.row.state, job.row.reason, address)
                return TriggerAnswer(f"status {job.job.id}", words)
        raise ValueError(f"{request.aim} is no command for a job")

    async def _steer(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str | TriggerAnswer:
        """Store a message: the agent gets it at its next turn, or when a paused job resumes."""
        if job.handed_over:
            raise RetryLater("The job is publishing its result and no longer reads messages.")
        text = await self._message_text(request, context, job)
        if not text:
            return TriggerAnswer("skip busy", replies.refused("A job is already working on it."))
        await asyncio.to_thread(self._add_message, context, job, "steer", text)
        outcome = f"steer {job.job.id}"
        if job.row.state == "awaiting_approval":
            return TriggerAnswer(outcome, replies.message_noted(job.row.state))
        await asyncio.to_thread(self._stores.triggers.record, context.trigger, outcome, job.job.id)
        return outcome

    async def _message_text(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str:
        """The message, with the lines of the diff it is about; the job will reply in those threads too."""
        review = review_of(request)
        if request.thread is None and not review:
            return request.text
        threads = await context.repo.reader.review_threads(
            context.trigger.number, context.trigger.at, including=is_asking(request), review=review
        )
        refs = refs_of(each for each in threads if not each.resolved and is_about(request, each))
        if refs and job.job_context.publish_target != "nowhere":
            await asyncio.to_thread(self._stores.job_queries.join_threads, job.job.id, refs)
        if request.thread is not None:
            return _on_line(request.text, request.thread.path, request.thread.end)
        lines = [_on_line(text, thread.path, thread.line) for thread, text in comments_in(threads, review)]
        return clip("\n\n".join(text for text in (request.text, *lines) if text.strip()), MAX_SAID)

    async def _approve(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str | TriggerAnswer:
        edited = await self._edited_plan(context, job)
        if isinstance(edited, TriggerAnswer):
            return edited
        plan, editor = edited
        if job.row.state == "awaiting_approval":
            text = await asyncio.to_thread(self._newest_plan, job, plan, editor)
            return await asyncio.to_thread(self._resume, request, context, job, "approve", text)
        plan = plan or render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))
        changes = {"aim": "fix", "job": "", "text": request.text or job.job.task.request}
        begin = as_before(request.model_copy(update=changes), job.job)
        return await self._job_creator.start(begin, context, plan_file=plan)

    async def _edited_plan(self, context: TriggerContext, job: JobWithContext) -> tuple[str, str] | TriggerAnswer:
        """The plan as edited in the status comment, and by whom: what people see there is what they approve.

        Both are empty if nobody edited it; an TriggerAnswer says why it cannot be approved.
        """
        reader = context.repo.reader
        found = _COMMENT.search(await asyncio.to_thread(status_address, job.job.id, self._stores))
        edit = await reader.comment_edit(int(found[1])) if found else None
        if edit is None or edit.editor is None or edit.editor.id == context.repo.ours.user:
            return "", ""
        text = read_plan(edit.body)
        if text is None:
            return "", ""
        if edit.edited_at is not None and edit.edited_at > context.trigger.at:
            return TriggerAnswer("reply plan", replies.plan_edited_since())
        if not await reader.may_write(edit.editor.id):
            return TriggerAnswer("reply plan", replies.plan_edited_by_stranger(edit.editor.login))
        try:
            parse_plan_file(text)
        except AgentFixError as error:
            return TriggerAnswer("reply plan", replies.unreadable_plan(error.message))
        return text, edit.editor.login

    def _newest_plan(self, job: JobWithContext, edited: str, editor: str) -> str:
        """The plan as edited in the comment, which becomes a version, or as edited through the API."""
        if edited:
            self._stores.plans.record(job.job.id, parse_plan_file(edited), editor)
        return edited or self._stores.plans.edited_text(job.job.id)

    def _resume(
        self, request: JobRequest, context: TriggerContext, job: JobWithContext, kind: MessageKind, text: str
    ) -> str | TriggerAnswer:
        """Store the message, then resume the job together with the trigger; not repeated after a crash in between."""
        self._add_message(context, job, kind, text)
        outcome, changed = f"{kind} {job.job.id}", None
        if kind == "continue":
            raised = raised_budget(job, request.options.budget, request.options.extra, self._defaults)
            changed = job.job.model_copy(update={"budget": raised})
        if self._stores.queue.resume(job.job.id, changed, trigger=context.trigger, outcome=outcome):
            return outcome
        if self._stores.triggers.decided(context.trigger.key):
            return "decided before"
        words = replies.reply("The job has continued or ended in the meantime.", "/agent status")
        return TriggerAnswer("reply too_late", words)

    def _stop(self, context: TriggerContext, job: JobWithContext) -> str:
        """Stop the job and the questions that are being answered beside it."""
        reason, trigger, queue = f"Stopped by {context.trigger.login}.", context.trigger, self._stores.queue
        self._acknowledge(context)
        for each in self._stores.job_queries.active_jobs(repository=context.repo.repository.id):
            if each.job_context.issue_ref.number == trigger.number and each.job.id != job.job.id:
                queue.stop(each.job.id, reason)
        queue.stop(job.job.id, reason, trigger=trigger)
        return f"stop {job.job.id}"

    def _add_message(self, context: TriggerContext, job: JobWithContext, kind: MessageKind, text: str) -> None:
        key, who = context.trigger.key, context.trigger.login
        self._stores.messages.add(job.job.id, kind, key=key, who=who, text=text)
        self._acknowledge(context)

    def _acknowledge(self, context: TriggerContext) -> None:
        """Add 👀 to what was written, if it accepts reactions."""
        if context.target is not None and not context.promised_job:
            seen = AddReaction(target=context.target, content="eyes")
            self._stores.outbox.add(name_without_job(context.trigger.key), 0, context.issue_ref, seen)


def status_address(job: str, stores: Stores) -> str:
    """The URL of the status comment; empty if there is none yet."""
    status = stores.outbox.status(key_of(job, UpdateStatusComment(body="")))
    return status.receipt.url if status and status.receipt else ""


def _on_line(text: str, path: str, line: int | None) -> str:
    where = f"{one_line(path)}:{line}" if line is not None else one_line(path)
    return f"(about {where})\n{text}" if text.strip() else ""
