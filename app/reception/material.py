"""What a new job is given to read, asked of the forge as it stood before the trigger."""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from app.commission import ThreadRef
from app.forge.errors import NoAccess
from app.forge.facts import CheckFacts, CommentFacts, PullRequestFacts, ReviewFacts, ThreadFacts
from app.forge.github.checks import FAILED
from app.markup import without_quotes
from app.orders import Order
from app.reception.circumstances import Place
from app.reception.conversation import Speakers
from app.reception.sections import Sections
from app.text import visible

T = TypeVar("T")
MOST_ASKED_FOR = 12
"""Authors whose permission is asked for a conversation; those who spoke last of all."""


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
        others = _others(comments, place)
        sections.conversation(others, speakers=await _speakers(order, place, others))
        return Material(sections)
    number = pull.number
    comments, reviews, files, commits, threads, checks = await asyncio.gather(
        readers.facts.comments(number, before),
        readers.facts.reviews(number, before),
        readers.facts.changed_files(number),
        readers.pulls.commits(number),
        readers.threads.of(number, before, asking=asking(order), review=review_of(order)),
        _allowed(readers.checks.of(pull.head)),
    )
    open_threads = tuple(each for each in threads if not each.resolved)
    about = tuple(each for each in open_threads if is_about(order, each))
    failing = tuple(each for each in checks or () if _fails(each, place))
    if order.thread is not None and not about:
        sections.lines(order.thread)
    sections.threads(open_threads, asked=frozenset(each.root for each in about))
    sections.checks(failing)
    sections.diff(files)
    sections.commits(commits)
    others = _others(comments, place)
    reviewed = [each for each in reviews if each.author != place.ours.bot.user]
    sections.conversation(others, reviewed, await _speakers(order, place, [*others, *reviewed]))
    return Material(sections, refs_of(about), tuple(each.name for each in failing))


def _others(comments: tuple[CommentFacts, ...], place: Place) -> list[CommentFacts]:
    """Our own comments tell how jobs stood; nobody needs to read that again."""
    return [each for each in comments if each.author != place.ours.bot.user]


async def _speakers(order: Order, place: Place, said: Sequence[CommentFacts | ReviewFacts]) -> Speakers:
    """Who may write is asked of the forge, for the newest authors; a comment tells only who its author was then."""
    asked = order.origin.actor
    people = dict.fromkeys(each.author for each in reversed(said) if each.kind == "User")
    unknown = [author for author in people if author not in {0, asked}][:MOST_ASKED_FOR]
    may_write = await asyncio.gather(*(_may_write(place, author) for author in unknown))
    maintainers = frozenset(author for author, may in zip(unknown, may_write, strict=True) if may)
    return Speakers(asked, order.subject.author or 0, maintainers)


async def _may_write(place: Place, author: int) -> bool:
    """False where the account is gone, or the answer is not for us: their words are then among the others'."""
    try:
        return (await place.readers.facts.actor(author)).may_write
    except NoAccess:
        return False


def asking(order: Order) -> tuple[int, ...]:
    """Comments whose threads are told even where nothing else was said in them before."""
    kind, _, number = order.trigger.partition(":")
    return (int(number), order.thread.comment) if kind == "review_comment" and order.thread else ()


def review_of(order: Order) -> int:
    """The review that asks; 0 where none does."""
    kind, _, number = order.trigger.partition(":")
    return int(number) if kind == "review" else 0


def is_about(order: Order, thread: ThreadFacts) -> bool:
    """Whether the request was made in it, or with it."""
    if review := review_of(order):
        return any(each.review == review for each in thread.comments)
    return order.thread is not None and thread.root == order.thread.comment


def refs_of(threads: Iterable[ThreadFacts]) -> tuple[ThreadRef, ...]:
    """What is kept of threads that are to be answered."""
    return tuple(
        ThreadRef(comment=each.root, thread=each.id, path=each.path, start=each.start_line or each.line, end=each.line)
        for each in threads
    )


def _fails(check: CheckFacts, place: Place) -> bool:
    return check.conclusion in FAILED and check.app != place.ours.bot.app


def said_in(threads: Iterable[ThreadFacts], review: int) -> Iterator[tuple[ThreadFacts, str]]:
    """What a review says on lines of the diff, each with its thread."""
    for thread in threads:
        for comment in thread.comments:
            if comment.review == review:
                yield thread, without_quotes(visible(comment.body).text).strip()


async def _allowed(asked: Awaitable[T]) -> T | None:
    """An installation may not let us read checks; the rest is worth a job all the same."""
    try:
        return await asked
    except NoAccess:
        return None
