"""What the model is shown beside the issue, as data: conversation, diff, commits, threads, failing checks; all bounded.

Everything loses its hidden characters here, and whatever is left out is told: to the model where it is missing, and to
people in the notes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.core.task import TaskSection
from app.core.text import one_line, plain, visible
from app.github.models import ChangedFile, CheckResult, IssueComment, PullRequestCommit, PullRequestReview, ReviewThread
from app.triggers.conversation import TITLES, UNKNOWN_AUTHORS, CommentAuthors, grouped, quoted_comments
from app.triggers.events import DiffThread

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


@dataclass(slots=True)
class PromptSections:
    """Collected for one job. `hidden` are characters that nobody would have seen."""

    all: list[TaskSection] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hidden_characters: int = 0

    def conversation(
        self,
        comments: Sequence[IssueComment],
        reviews: Sequence[PullRequestReview] = (),
        authors: CommentAuthors = UNKNOWN_AUTHORS,
    ) -> None:
        """The conversation so far, grouped by author; if not all of it fits, people with write access come first."""
        quoted = [
            (each, f"{each.heading}\n{self._clip(self._clean(each.body), MAX_OF_ONE)}")
            for each in quoted_comments(comments, reviews)
        ]
        groups = grouped(quoted, authors, most=MAX_COMMENTS, limit=MAX_CONVERSATION)
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
            text = f"{about}\n{self._clip(plain(file.diff), MAX_OF_A_FILE)}".rstrip()
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
                    self._clip(self._clean(each.summary), MAX_OF_ONE),
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
            f"{one_line(each.author_name)}: {self._clip(self._clean(each.body), MAX_OF_ONE // 2)}"
            for each in thread.comments[-10:]
        ]
        return "\n".join([head, self._hunk(thread.diff), *lines])

    def _hunk(self, hunk: str) -> str:
        """Its end: the commented line is the last one."""
        return _end(plain(hunk), MAX_OF_A_HUNK)

    def _clean(self, text: str) -> str:
        shown = visible(text)
        self.hidden_characters += shown.removed
        return shown.text.strip()

    def _clip(self, text: str, limit: int) -> str:
        more = len(text) - limit
        return text if more <= 0 else f"{text[:limit].rstrip()}\n(… {more:,} more characters are left out)"

    def _add(self, title: str, parts: Iterable[str]) -> None:
        if text := "\n\n".join(part for part in parts if part.strip()):
            self.all.append(TaskSection(title=title, text=text))


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
