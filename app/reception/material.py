"""What a new job is given to read, asked of the forge as it stood before the trigger."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from app.commission import ThreadRef
from app.forge.errors import NoAccess
from app.forge.facts import CheckFacts, CommentFacts, PullRequestFacts, ThreadFacts
from app.forge.github.checks import FAILED
from app.orders import Order
from app.reception.circumstances import Place
from app.reception.sections import Sections

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Material:
    """Sections for the model, and the threads that are to be answered."""

    sections: Sections = field(default_factory=Sections)
    threads: tuple[ThreadRef, ...] = ()
    failing: tuple[str, ...] = ()
    """Names of the checks that fail."""


async def material(order: Order, place: Place, pull: PullRequestFacts | None, before: datetime) -> Material:
    """Everything that stood at that moment, in these words; what was written or edited since is shown to no model."""
    sections, readers = Sections(), place.readers
    if pull is None:
        comments = await readers.facts.comments(order.origin.number, before)
        sections.conversation(_others(comments, place))
        return Material(sections)
    number = pull.number
    comments, reviews, files, commits, threads, checks = await asyncio.gather(
        readers.facts.comments(number, before),
        readers.facts.reviews(number, before),
        readers.facts.changed_files(number),
        readers.pulls.commits(number),
        readers.threads.of(number, before, asking=_asking(order), review=_review(order)),
        _allowed(readers.checks.of(pull.head)),
    )
    open_threads = tuple(each for each in threads if not each.resolved)
    about = tuple(each for each in open_threads if _is_about(order, each))
    failing = tuple(each for each in checks or () if _fails(each, place))
    if order.thread is not None and not about:
        sections.lines(order.thread)
    sections.threads(open_threads, asked=frozenset(each.root for each in about))
    sections.checks(failing)
    sections.diff(files)
    sections.commits(commits)
    sections.conversation(_others(comments, place), [each for each in reviews if each.author != place.ours.bot.user])
    refs = tuple(
        ThreadRef(comment=each.root, thread=each.id, path=each.path, start=each.start_line or each.line, end=each.line)
        for each in about
    )
    return Material(sections, refs, tuple(each.name for each in failing))


def _others(comments: tuple[CommentFacts, ...], place: Place) -> list[CommentFacts]:
    """Our own comments tell how jobs stood; nobody needs to read that again."""
    return [each for each in comments if each.author != place.ours.bot.user]


def _asking(order: Order) -> tuple[int, ...]:
    """Comments whose threads are told even where nothing else was said in them before."""
    kind, _, number = order.trigger.partition(":")
    return (int(number), order.thread.comment) if kind == "review_comment" and order.thread else ()


def _review(order: Order) -> int:
    """The review that asks; 0 where none does."""
    kind, _, number = order.trigger.partition(":")
    return int(number) if kind == "review" else 0


def _is_about(order: Order, thread: ThreadFacts) -> bool:
    if review := _review(order):
        return any(each.review == review for each in thread.comments)
    return order.thread is not None and thread.root == order.thread.comment


def _fails(check: CheckFacts, place: Place) -> bool:
    return check.conclusion in FAILED and check.app != place.ours.bot.app


async def _allowed(asked: Awaitable[T]) -> T | None:
    """An installation may not let us read checks; the rest is worth a job all the same."""
    try:
        return await asked
    except NoAccess:
        return None
