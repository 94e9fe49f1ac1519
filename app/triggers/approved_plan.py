"""Finds the plan to approve: the text in the status comment, if its last editor has write access."""

import re
from dataclasses import dataclass
from datetime import datetime

from app.core.errors import AgentFixError
from app.core.plan import Plan
from app.core.plan_text import parse_plan_file, render_plan_file
from app.github.http_client import NotFoundOnGitHub
from app.github.models import Account, CommentEdit
from app.jobs.job_queries import JobWithContext
from app.publish import replies
from app.publish.effects import UpdateStatusComment, key_of
from app.publish.plan_comment import read_plan
from app.triggers.event_facts import RepositoryContext
from app.triggers.stores import Stores

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
    edit = await repo_context.readers.comments.edit(int(found[1])) if found else None
    if edit is None or edit.editor is None or edit.editor.id == repo_context.ours.bot.user:
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
        return (await repo_context.readers.facts.actor(user)).may_write
    except NotFoundOnGitHub:
        return False


def plan_of(job: JobWithContext) -> str:
    """The plan that a job ended with, as text."""
    return render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))


def status_address(job: str, stores: Stores) -> str:
    """The URL of the status comment; empty if there is none yet."""
    status = stores.outbox.status(key_of(job, UpdateStatusComment(body="")))
    return status.receipt.url if status and status.receipt else ""
