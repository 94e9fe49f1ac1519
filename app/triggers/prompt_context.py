"""Loads what a new job's model reads, from GitHub, as it was before the trigger."""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from app.core.markup import without_quotes
from app.core.text import visible
from app.github.checks import FAILED
from app.github.errors import NoAccess
from app.github.models import IssueComment, PullRequest, PullRequestReview, ReviewThread
from app.jobs.context import ThreadRef
from app.triggers.conversation import CommentAuthors
from app.triggers.decisions import JobRequest
from app.triggers.event_facts import RepositoryContext
from app.triggers.prompt_sections import PromptSections

T = TypeVar("T")
MAX_ASKED_FOR = 12
"""Authors whose permission is asked for a conversation; those who spoke last of all."""


@dataclass(frozen=True, slots=True)
class PromptContext:
    """Sections for the model, and the review threads to answer."""

    sections: PromptSections = field(default_factory=PromptSections)
    threads: tuple[ThreadRef, ...] = ()
    failing_checks: tuple[str, ...] = ()
    """The names of the failing checks."""


async def load_prompt_context(
    job_request: JobRequest, repo_context: RepositoryContext, pull: PullRequest | None, before: datetime
) -> PromptContext:
    """Load what existed at that moment; the model sees nothing that was written or edited since."""
    sections, readers = PromptSections(), repo_context.readers
    if pull is None:
        comments = await readers.facts.comments(job_request.origin.number, before)
        others = _others(comments, repo_context)
        sections.conversation(others, authors=await _speakers(job_request, repo_context, others))
        return PromptContext(sections)
    number = pull.number
    comments, reviews, files, commits, threads, checks = await asyncio.gather(
        readers.facts.comments(number, before),
        readers.facts.reviews(number, before),
        readers.facts.changed_files(number),
        readers.pulls.commits(number),
        readers.threads.of(number, before, including=is_asking(job_request), review=review_of(job_request)),
        _allowed(readers.checks.of(pull.head)),
    )
    open_threads = tuple(each for each in threads if not each.resolved)
    about = tuple(each for each in open_threads if is_about(job_request, each))
    failing = tuple(each for each in checks or () if each.conclusion in FAILED)
    if job_request.thread is not None and not about:
        sections.lines(job_request.thread)
    sections.threads(open_threads, about=frozenset(each.root for each in about))
    sections.checks(failing)
    sections.diff(files)
    sections.commits(commits)
    others = _others(comments, repo_context)
    reviewed = [each for each in reviews if each.author != repo_context.ours.bot.user]
    sections.conversation(others, reviewed, await _speakers(job_request, repo_context, [*others, *reviewed]))
    return PromptContext(sections, refs_of(about), tuple(each.name for each in failing))


def _others(comments: tuple[IssueComment, ...], repo_context: RepositoryContext) -> list[IssueComment]:
    """Leave out our own comments, which only report the state of jobs."""
    return [each for each in comments if each.author != repo_context.ours.bot.user]


async def _speakers(
    job_request: JobRequest, repo_context: RepositoryContext, comments: Sequence[IssueComment | PullRequestReview]
) -> CommentAuthors:
    """Check write access for the newest authors; a comment only states what its author was at the time."""
    requester = job_request.origin.actor
    people = dict.fromkeys(each.author for each in reversed(comments) if each.kind == "User")
    unknown = [author for author in people if author not in {0, requester}][:MAX_ASKED_FOR]
    may_write = await asyncio.gather(*(_may_write(repo_context, author) for author in unknown))
    maintainers = frozenset(author for author, may in zip(unknown, may_write, strict=True) if may)
    return CommentAuthors(requester, job_request.subject.author or 0, maintainers)


async def _may_write(repo_context: RepositoryContext, author: int) -> bool:
    """False if the account is gone or GitHub refuses the answer."""
    try:
        return (await repo_context.readers.facts.actor(author)).may_write
    except NoAccess:
        return False


def is_asking(job_request: JobRequest) -> tuple[int, ...]:
    """Comments whose threads are shown even without earlier comments."""
    kind, _, number = job_request.trigger.partition(":")
    return (int(number), job_request.thread.comment) if kind == "review_comment" and job_request.thread else ()


def review_of(job_request: JobRequest) -> int:
    """The id of the review that asks; 0 if there is none."""
    kind, _, number = job_request.trigger.partition(":")
    return int(number) if kind == "review" else 0


def is_about(job_request: JobRequest, thread: ReviewThread) -> bool:
    """True if the request was made in this thread or its review."""
    if review := review_of(job_request):
        return any(each.review == review for each in thread.comments)
    return job_request.thread is not None and thread.root == job_request.thread.comment


def refs_of(threads: Iterable[ReviewThread]) -> tuple[ThreadRef, ...]:
    """The parts of threads to answer that are stored."""
    return tuple(
        ThreadRef(comment=each.root, thread=each.id, path=each.path, start=each.start_line or each.line, end=each.line)
        for each in threads
    )


def comments_in(threads: Iterable[ReviewThread], review: int) -> Iterator[tuple[ReviewThread, str]]:
    """A review's comments on lines of the diff, each with its thread."""
    for thread in threads:
        for comment in thread.comments:
            if comment.review == review:
                yield thread, without_quotes(visible(comment.body).text).strip()


async def _allowed(request: Awaitable[T]) -> T | None:
    """None if the installation may not read it (checks, for example); the job starts without it."""
    try:
        return await request
    except NoAccess:
        return None
