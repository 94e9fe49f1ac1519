"""Loads what a new job's model reads, from GitHub, as it was before the trigger."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeVar

from app.core.task import TaskSection
from app.core.text import beginning_of, hidden_characters, one_line, plain, visible, without_quotes
from app.github.models import (
    ChangedFile,
    CheckResult,
    DiffThread,
    IssueComment,
    PullRequestCommit,
    PullRequestReview,
    ReviewThread,
)
from app.github.reader import FAILED
from app.jobs.context import ThreadRef
from app.triggers.decisions import JobRequest, TriggerContext
from app.triggers.github_clients import RepositoryContext, optional

Rank = Literal["asked", "maintainer", "opened", "other"]
TITLES: dict[Rank, str] = {
    "asked": "What the person who asked said before",
    "maintainer": "What people with write access said before",
    "opened": "What the person who opened this said before",
    "other": "What others said before",
}
"""The ranks of commenters: the first are shown first, and get space first."""
MAX_COMMENTS = 60
MAX_OF_ONE = 4_000
MAX_CONVERSATION = 40_000
MAX_OF_A_FILE = 8_000
MAX_DIFF = 40_000
MAX_THREADS = 30
MAX_OF_A_HUNK = 1_500
MAX_COMMITS = 30
MAX_CHECKS = 5
MAX_OF_A_LOG = 6_000
"""Characters (four are a token), except where things are counted."""
NEW_LINE = "\n"
T = TypeVar("T")
MAX_ASKED_FOR = 12
"""Authors whose permission is asked for a conversation; those who spoke last of all."""


class QuotedComment(NamedTuple):
    """One comment or review, and when it was written; `about` is a review's state."""

    at: datetime
    author: int
    name: str
    body: str
    about: str = ""

    @property
    def heading(self) -> str:
        about = f" ({self.about})" if self.about else ""
        return f"{one_line(self.name)}{about}, {self.at:%Y-%m-%d %H:%M} UTC:"


class CommentGroup(NamedTuple):
    """The comments of one kind of author, oldest first, and how many older ones are left out."""

    rank: Rank
    shown: tuple[str, ...]
    left_out: int


def quoted_comments(comments: Iterable[IssueComment], reviews: Iterable[PullRequestReview] = ()) -> list[QuotedComment]:
    """All comments and reviews that contain text, in order."""
    quoted = [QuotedComment(each.created_at, each.author, each.author_name, each.body) for each in comments]
    quoted += [
        QuotedComment(each.submitted_at, each.author, each.author_name, each.body, each.state) for each in reviews
    ]
    return sorted((each for each in quoted if each.body.strip()), key=lambda each: each.at)


def grouped(
    comments: Sequence[tuple[QuotedComment, str]], ranks: Mapping[int, Rank], *, most: int, limit: int
) -> list[CommentGroup]:
    """Group comments by their authors' rank: account id → rank, "other" for the rest and for deleted accounts.

    `comments` holds the comments with the texts to show, in order. Each rank's newest comments get space before a lower
    rank's.
    """
    groups = []
    known = {**ranks, 0: "other"}
    for rank in TITLES:
        texts = [text for each, text in comments if known.get(each.author, "other") == rank]
        shown: list[str] = []
        for text in reversed(texts):
            if most == 0 or len(text) > limit:
                break
            shown.append(text)
            most, limit = most - 1, limit - len(text)
        if texts:
            groups.append(CommentGroup(rank, tuple(reversed(shown)), len(texts) - len(shown)))
    return groups


# What the model is shown beside the issue, as data: conversation, diff, commits, threads, failing checks; all bounded.
#
# Everything loses its hidden characters here, and whatever is left out is named: to the model where it is missing, and
# to people in the notes.


@dataclass(slots=True)
class PromptContext:
    """Sections for the model, collected for one job, and the review threads to answer."""

    sections: list[TaskSection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences for people, mostly about what was left out."""
    hidden_characters: int = 0
    """The number of invisible characters that were removed."""
    thread_refs: tuple[ThreadRef, ...] = ()
    failing_checks: tuple[str, ...] = ()
    """The names of the failing checks."""

    def conversation(
        self,
        comments: Sequence[IssueComment],
        reviews: Sequence[PullRequestReview] = (),
        ranks: Mapping[int, Rank] = MappingProxyType({}),
    ) -> None:
        """The conversation so far, grouped by author; if not all of it fits, people with write access come first."""
        quoted = [
            (each, f"{each.heading}\n{beginning_of(self._clean(each.body), MAX_OF_ONE)}")
            for each in quoted_comments(comments, reviews)
        ]
        groups = grouped(quoted, ranks, most=MAX_COMMENTS, limit=MAX_CONVERSATION)
        for group in groups:
            older = [f"({group.left_out} older left out)"] if group.left_out else []
            self._add(TITLES[group.rank], [*older, *group.shown])
        if left_out := sum(group.left_out for group in groups):
            self.notes.append(
                f"{len(quoted) - left_out} of {len(quoted)} comments were shown to the agent, those of people with"
                f" write access and the newest first; {left_out} {'was' if left_out == 1 else 'were'} left out."
            )

    def diff(self, files: Sequence[ChangedFile]) -> None:
        """What the pull request changes so far."""
        shown, remaining = [], MAX_DIFF
        for number, file in enumerate(files):
            about = f"{one_line(file.path)} ({file.status}, +{file.additions} -{file.deletions})"
            text = f"{about}\n{beginning_of(plain(file.diff), MAX_OF_A_FILE)}".rstrip()
            remaining -= len(text)
            if remaining < 0:
                left = files[number:]
                shown.append("Left out, read them in the tree: " + ", ".join(one_line(each.path) for each in left[:50]))
                self.notes.append(f"The diff of {len(left)} of {len(files)} files was too long to be shown.")
                break
            shown.append(text)
        self._add("What the pull request changes so far", shown)

    def commits(self, commits: Sequence[PullRequestCommit]) -> None:
        """What happened on the branch, the oldest first."""
        newest = commits[-MAX_COMMITS:]
        lines = [
            f"{each.id[:10]} {_line(each.author)}: {_line(each.message.partition(NEW_LINE)[0])}" for each in newest
        ]
        older = len(commits) - len(newest)
        left_out = [f"({older} older left out)"] if older else []
        self._add("Commits on the branch", ["\n".join([*left_out, *lines])] if lines else [])

    def threads(self, threads: Sequence[ReviewThread], *, about: frozenset[int] = frozenset()) -> None:
        """Open review threads, those that the request is about first."""
        ordered = sorted(threads, key=lambda each: each.root not in about)
        shown = [self._thread(each, about=each.root in about) for each in ordered[:MAX_THREADS]]
        if len(ordered) > MAX_THREADS:
            self.notes.append(f"{len(ordered) - MAX_THREADS} more review threads were left out.")
        self._add("Open review threads", shown)

    def lines(self, thread: DiffThread) -> None:
        """The lines that an inline comment is about."""
        where = _where(thread.path, thread.start, thread.end)
        self._add("The request is about these lines", [f"{where}\n{self._hunk(thread.hunk)}"])

    def checks(self, checks: Sequence[CheckResult]) -> None:
        """Failing checks with the ends of their logs."""
        shown = [
            "\n".join(
                part
                for part in (
                    f"{one_line(each.name)}: {each.conclusion}",
                    beginning_of(self._clean(each.summary), MAX_OF_ONE),
                    _end(plain(each.log), MAX_OF_A_LOG),
                )
                if part
            )
            for each in checks[:MAX_CHECKS]
        ]
        if len(checks) > MAX_CHECKS:
            shown.append("More fail: " + ", ".join(one_line(each.name) for each in checks[MAX_CHECKS:][:30]))
        self._add("Failing checks", shown)

    def _thread(self, thread: ReviewThread, *, about: bool) -> str:
        head = _where(thread.path, thread.start_line, thread.line)
        head += " (outdated)" if thread.outdated else ""
        head += " (the request is about this one)" if about else ""
        lines = [
            f"{one_line(each.author_name)}: {beginning_of(self._clean(each.body), MAX_OF_ONE // 2)}"
            for each in thread.comments[-10:]
        ]
        return "\n".join([head, self._hunk(thread.diff), *lines])

    def _hunk(self, hunk: str) -> str:
        """Its end: the commented line is the last one."""
        return _end(plain(hunk), MAX_OF_A_HUNK)

    def _clean(self, text: str) -> str:
        self.hidden_characters += hidden_characters(text)
        return visible(text).text.strip()

    def _add(self, title: str, parts: Iterable[str]) -> None:
        if text := "\n\n".join(part for part in parts if part.strip()):
            self.sections.append(TaskSection(title=title, text=text))


def _where(path: str, start: int | None, end: int | None) -> str:
    lines = "" if end is None else f":{end}" if start in {None, end} else f":{start}-{end}"
    return f"{one_line(path)}{lines}"


def _line(text: str) -> str:
    return one_line(plain(text))


def _end(text: str, limit: int) -> str:
    """Whole lines from the end."""
    text = text.strip()
    more = len(text) - limit
    if more <= 0:
        return text
    kept = text[-limit:]
    kept = kept.partition("\n")[2] or kept
    return f"({len(text) - len(kept):,} characters before this are left out …)\n{kept}"


async def load_prompt_context(request: JobRequest, trigger_context: TriggerContext) -> PromptContext:
    """Load what existed when it was requested; the model sees nothing that was written or edited since."""
    repo, pull, before = trigger_context.repo, trigger_context.facts.pull, trigger_context.trigger.at
    context, reader = PromptContext(), repo.reader
    if pull is None:
        comments = await optional(
            reader.comments(trigger_context.trigger.number, before), "the comments", context.notes
        )
        others = _others(comments, repo)
        context.conversation(others, ranks=await _ranks(request, trigger_context, others))
        return context
    number = pull.number
    comments, reviews, files, commits, threads, checks = await asyncio.gather(
        optional(reader.comments(number, before), "the comments", context.notes),
        optional(reader.reviews(number, before), "the reviews", context.notes),
        optional(reader.changed_files(number), "the changed files", context.notes),
        optional(reader.commits(number), "the commits", context.notes),
        reader.review_threads(number, before, including=asking_comments(request), review=review_of(request)),
        optional(reader.checks(pull.head, logs=MAX_CHECKS), "the checks", context.notes),
    )
    open_threads = tuple(each for each in threads if not each.resolved)
    about = tuple(each for each in open_threads if is_about(request, each))
    failing = tuple(each for each in checks if each.conclusion in FAILED)
    if request.thread is not None and not about:
        context.lines(request.thread)
    context.threads(open_threads, about=frozenset(each.root for each in about))
    context.checks(failing)
    context.diff(files)
    context.commits(commits)
    others = _others(comments, repo)
    reviewed = [each for each in reviews if each.author != repo.ours.user]
    context.conversation(others, reviewed, await _ranks(request, trigger_context, [*others, *reviewed]))
    context.thread_refs, context.failing_checks = refs_of(about), tuple(each.name for each in failing)
    return context


def _others(comments: tuple[IssueComment, ...], repo: RepositoryContext) -> list[IssueComment]:
    """Leave out our own comments, which only report the state of jobs."""
    return [each for each in comments if each.author != repo.ours.user]


async def _ranks(
    request: JobRequest, context: TriggerContext, comments: Sequence[IssueComment | PullRequestReview]
) -> dict[int, Rank]:
    """Check write access for the newest authors; a comment only states what its author was at the time."""
    requester = context.trigger.actor
    people = dict.fromkeys(each.author for each in reversed(comments) if each.kind == "User")
    unknown = [author for author in people if author not in {0, requester}][:MAX_ASKED_FOR]
    may_write = await asyncio.gather(*(context.repo.reader.may_write(author) for author in unknown))
    maintainers = [author for author, may in zip(unknown, may_write, strict=True) if may]
    ranks: dict[int, Rank] = {request.subject.author or 0: "opened"}
    ranks.update(dict.fromkeys(maintainers, "maintainer"))
    ranks[requester] = "asked"
    return ranks


def asking_comments(request: JobRequest) -> tuple[int, ...]:
    """Comments whose threads are shown even without earlier comments."""
    kind, _, number = request.trigger.partition(":")
    return (int(number), request.thread.comment) if kind == "review_comment" and request.thread else ()


def review_of(request: JobRequest) -> int:
    """The id of the review that asks; 0 if there is none."""
    kind, _, number = request.trigger.partition(":")
    return int(number) if kind == "review" else 0


def is_about(request: JobRequest, thread: ReviewThread) -> bool:
    """True if the request was made in this thread or its review."""
    if review := review_of(request):
        return any(each.review == review for each in thread.comments)
    return request.thread is not None and thread.root == request.thread.comment


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
