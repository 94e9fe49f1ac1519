"""The plan that is approved: as it stands in the status comment, if the last to edit it was somebody who may."""

import re
from dataclasses import dataclass
from datetime import datetime

from app.errors import AgentFixError
from app.forge.facts import Account, EditFacts
from app.forge.github.line import Missing
from app.jobs.roster import Commissioned
from app.plan import Plan
from app.plan_text import parse_plan_file, render_plan_file
from app.publish import replies
from app.publish.intent import StatusComment, key_of
from app.publish.planned import read_plan
from app.reception.books import Books
from app.reception.circumstances import Place

_COMMENT = re.compile(r"#issuecomment-([0-9]+)$")


@dataclass(frozen=True, slots=True)
class Approved:
    """The edited plan's text, or empty where it was left as it was; or the words to say why it cannot be approved."""

    text: str = ""
    problem: str = ""


async def approved_plan(job: Commissioned, place: Place, books: Books, approved_at: datetime) -> Approved:
    """What people see is what they approve."""
    address = status_address(job.job.id, books)
    found = _COMMENT.search(address)
    edit = await place.readers.talk.edit(int(found[1])) if found else None
    if edit is None or edit.editor is None or edit.editor.id == place.ours.bot.user:
        return Approved()
    text = read_plan(edit.body)
    if text is None:
        return Approved()
    if problem := await _problem(edit, edit.editor, text, place, approved_at):
        return Approved(problem=problem)
    return Approved(text=text)


async def _problem(edit: EditFacts, editor: Account, text: str, place: Place, approved_at: datetime) -> str:
    if edit.edited_at is not None and edit.edited_at > approved_at:
        return replies.plan_edited_since()
    if not await _may_write(editor.id, place):
        return replies.plan_edited_by_stranger(editor.login)
    try:
        parse_plan_file(text)
    except AgentFixError as error:
        return replies.unreadable_plan(error.message)
    return ""


async def _may_write(user: int, place: Place) -> bool:
    try:
        return (await place.readers.facts.actor(user)).may_write
    except Missing:
        return False


def plan_of(job: Commissioned) -> str:
    """The plan that a job ended with, as a text."""
    return render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))


def status_address(job: str, books: Books) -> str:
    """Where the status comment is; empty while there is none."""
    standing = books.intents.standing(key_of(job, StatusComment(body="")))
    return standing.receipt.url if standing and standing.receipt else ""
