"""What the model is shown beside the issue, as data: conversation, diff, commits, threads, failing checks; all bounded.

Everything loses its hidden characters here, and whatever is left out is told: to the model where it is missing, and to
people in the notes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from app.events import Thread
from app.forge.facts import ChangedFile, CheckFacts, CommentFacts, CommitFacts, ReviewFacts, ThreadFacts
from app.reception.conversation import NOBODY_KNOWN, TITLES, Speakers, grouped, spoken
from app.task import Section
from app.text import one_line, plain, visible

MOST_COMMENTS = 60
MOST_OF_ONE = 4_000
MOST_CONVERSATION = 40_000
MOST_OF_A_FILE = 8_000
MOST_DIFF = 40_000
MOST_THREADS = 30
MOST_OF_A_HUNK = 1_500
MOST_COMMITS = 30
MOST_CHECKS = 5
MOST_OF_A_LOG = 6_000
"""Characters (four are a token), except where things are counted."""
NEW_LINE = "\n"


@dataclass(slots=True)
class Sections:
    """Collected for one job. `hidden` are characters that nobody would have seen."""

    all: list[Section] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    hidden: int = 0

    def conversation(
        self,
        comments: Sequence[CommentFacts],
        reviews: Sequence[ReviewFacts] = (),
        speakers: Speakers = NOBODY_KNOWN,
    ) -> None:
        """What was said before, by who said it; where not all fits, people with write access have room first."""
        said = [
            (each, f"{each.heading}\n{self._clip(self._clean(each.body), MOST_OF_ONE)}")
            for each in spoken(comments, reviews)
        ]
        groups = grouped(said, speakers, most=MOST_COMMENTS, room=MOST_CONVERSATION)
        for group in groups:
            older = [f"({group.left_out} older left out)"] if group.left_out else []
            self._add(TITLES[group.rank], [*older, *group.shown])
        if left_out := sum(group.left_out for group in groups):
            self.notes.append(
                f"{len(said) - left_out} of {len(said)} comments were shown to the agent, those of people with write"
                f" access and the newest first; {left_out} {'was' if left_out == 1 else 'were'} left out."
            )

    def diff(self, files: Sequence[ChangedFile]) -> None:
        """What the pull request changes so far."""
        shown, room = [], MOST_DIFF
        for number, file in enumerate(files):
            about = f"{one_line(file.path)} ({file.status}, +{file.additions} -{file.deletions})"
            text = f"{about}\n{self._clip(plain(file.diff), MOST_OF_A_FILE)}".rstrip()
            room -= len(text)
            if room < 0:
                left = files[number:]
                shown.append("Left out, read them in the tree: " + ", ".join(one_line(each.path) for each in left[:50]))
                self.notes.append(f"The diff of {len(left)} of {len(files)} files was too long to be shown.")
                break
            shown.append(text)
        self._add("What the pull request changes so far", shown)

    def commits(self, commits: Sequence[CommitFacts]) -> None:
        """What happened on the branch, the oldest first."""
        newest = commits[-MOST_COMMITS:]
        lines = [
            f"{each.id[:10]} {_line(each.author)}: {_line(each.message.partition(NEW_LINE)[0])}" for each in newest
        ]
        older = len(commits) - len(newest)
        told = [f"({older} older left out)"] if older else []
        self._add("Commits on the branch", ["\n".join([*told, *lines])] if lines else [])

    def threads(self, threads: Sequence[ThreadFacts], *, asked: frozenset[int] = frozenset()) -> None:
        """Open review threads, those that the request is about first."""
        ordered = sorted(threads, key=lambda each: each.root not in asked)
        shown = [self._thread(each, about=each.root in asked) for each in ordered[:MOST_THREADS]]
        if len(ordered) > MOST_THREADS:
            self.notes.append(f"{len(ordered) - MOST_THREADS} more review threads were left out.")
        self._add("Open review threads", shown)

    def lines(self, thread: Thread) -> None:
        """The lines that an inline comment is about."""
        where = _where(thread.path, thread.start, thread.end)
        self._add("The request is about these lines", [f"{where}\n{self._hunk(thread.hunk)}"])

    def checks(self, checks: Sequence[CheckFacts]) -> None:
        """Failing checks with the ends of their logs."""
        shown = [
            "\n".join(
                part
                for part in (
                    f"{one_line(each.name)}: {each.conclusion}",
                    self._clip(self._clean(each.summary), MOST_OF_ONE),
                    _end(plain(each.log), MOST_OF_A_LOG),
                )
                if part
            )
            for each in checks[:MOST_CHECKS]
        ]
        if len(checks) > MOST_CHECKS:
            shown.append("More fail: " + ", ".join(one_line(each.name) for each in checks[MOST_CHECKS:][:30]))
        self._add("Failing checks", shown)

    def _thread(self, thread: ThreadFacts, *, about: bool) -> str:
        head = _where(thread.path, thread.start_line, thread.line)
        head += " (outdated)" if thread.outdated else ""
        head += " (the request is about this one)" if about else ""
        said = [
            f"{one_line(each.author_name)}: {self._clip(self._clean(each.body), MOST_OF_ONE // 2)}"
            for each in thread.comments[-10:]
        ]
        return "\n".join([head, self._hunk(thread.diff), *said])

    def _hunk(self, hunk: str) -> str:
        """Its end: the commented line is the last one."""
        return _end(plain(hunk), MOST_OF_A_HUNK)

    def _clean(self, text: str) -> str:
        shown = visible(text)
        self.hidden += shown.removed
        return shown.text.strip()

    def _clip(self, text: str, limit: int) -> str:
        more = len(text) - limit
        return text if more <= 0 else f"{text[:limit].rstrip()}\n(… {more:,} more characters are left out)"

    def _add(self, title: str, parts: Iterable[str]) -> None:
        if text := "\n\n".join(part for part in parts if part.strip()):
            self.all.append(Section(title=title, text=text))


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
