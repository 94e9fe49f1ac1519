"""Replaces one passage of a text: exactly, or at the only place that matches apart from negligible differences."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from itertools import islice

from app.agent.edit_matching.fitting import AmbiguousMatchError, NoMatchError, WantedEdit
from app.agent.edit_matching.whole_lines import recover

_SHOWN_PLACES = 10
_SEARCHED_LINES = 20_000


class EditError(Exception):
    """The edit was not made; the message tells the model why and where to look."""


@dataclass(frozen=True, slots=True)
class EditResult:
    """The text after the edit; lines `first` to `last` are the replacement (`last < first`: lines were removed).

    `how` names the differences that were ignored; empty for an exact match.
    """

    text: str
    first: int
    last: int
    how: str = ""


def replace(text: str, old: str, new: str) -> EditResult:
    """Replace the only passage `old` in `text` by `new`. Raises EditError if the place is not unique.

    Line ends stay: in a file with CRLF, `old` and `new` may be written with LF.
    """
    if not old.strip():
        raise EditError("old_text is empty. Give the lines to replace, or use write for a new file.")
    crlf = "\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
    body = _lf(text) if crlf else text
    if crlf or ("\r\n" in old and "\r" not in text):
        old, new = _lf(old), _lf(new)
    edited = _exactly(body, old, new) or _by_lines(body, old, new)
    if edited is None:
        raise EditError(_not_found(body, old, new))
    if edited.text == body:
        raise EditError("new_text is what is already there: the edit would change nothing.")
    return with_changes(edited, text=edited.text.replace("\n", "\r\n")) if crlf else edited


def numbered(text: str, first: int, last: int) -> str:
    """The existing lines from `first` to `last`, with their numbers."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first, last = max(first, 1), min(last, len(lines))
    width = len(str(last))
    return "\n".join(f"{n:>{width}}\t{lines[n - 1]}" for n in range(first, last + 1))


def _lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _exactly(text: str, old: str, new: str) -> EditResult | None:
    places = list(islice(_occurrences(text, old), _SHOWN_PLACES + 1))
    if not places:
        return None
    if len(places) > 1:
        raise EditError(_several([text.count("\n", 0, place) + 1 for place in places], ""))
    start = places[0]
    first = text.count("\n", 0, start) + 1
    last = first + new.removesuffix("\n").count("\n") if new else first - 1
    return EditResult(text[:start] + new + text[start + len(old) :], first, last)


def _occurrences(text: str, part: str) -> Iterator[int]:
    """Every position of `part`, including overlapping ones: `aa` is in `aaa` twice."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def _by_lines(text: str, old: str, new: str) -> EditResult | None:
    """The only place where the lines match apart from negligible differences."""
    lines = text.split("\n")
    end = [lines.pop()] if lines[-1] == "" else []
    try:
        recovered = recover(lines, _wanted(old, new))
    except AmbiguousMatchError as several:
        raise EditError(_several([place + 1 for place in several.places], f" ({several.how} overlooked)")) from None
    except NoMatchError:
        raise EditError(
            "The indentation or the quotes of old_text and new_text differ from the file's. "
            "View the lines and try again."
        ) from None
    if recovered is None:
        return None
    found, how = recovered
    if not found.changes:
        return EditResult(text, found.place + 1, found.place + 1, how)
    for change in reversed(found.changes):
        lines[change.start : change.end] = change.lines
    first = found.changes[0].start + 1
    grown = sum(len(change.lines) - (change.end - change.start) for change in found.changes)
    return EditResult("\n".join([*lines, *end]), first, found.changes[-1].end + grown, how)


def _wanted(old: str, new: str) -> WantedEdit:
    if not old.endswith("\n"):
        return WantedEdit(old.split("\n"), new.split("\n"))
    return WantedEdit(old[:-1].split("\n"), new.removesuffix("\n").split("\n") if new else [])


def _several(places: Sequence[int], how: str) -> str:
    shown = ", ".join(str(line) for line in places[:_SHOWN_PLACES])
    more = " and more" if len(places) > _SHOWN_PLACES else ""
    return f"old_text is there more than once{how}: at lines {shown}{more}. Add lines around it until it is unique."


def _not_found(text: str, old: str, new: str) -> str:
    message = "old_text is not in the file."
    if new.strip() and len(new) > 20 and new in text:
        line = text.count("\n", 0, text.find(new)) + 1
        message += f" new_text is already there, at line {line}: perhaps this edit was made before."
    near = _nearest(text, old)
    if near is None:
        return f"{message} No line is like it; view the file first."
    size = min(old.count("\n") + 1, 20)
    return f"{message} The nearest lines are:\n{numbered(text, near - 2, near + size + 1)}"


def _nearest(text: str, old: str) -> int | None:
    """The first line (1-based) of the passage most like `old`, or None."""
    wanted = [line.strip() for line in old.split("\n")]
    anchor = max(range(len(wanted)), key=lambda index: len(wanted[index]))
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[anchor][:400])
    best, found = 0.6, None
    for number, line in enumerate(text.split("\n")[:_SEARCHED_LINES], start=1):
        matcher.set_seq1(line.strip()[:400])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, found = ratio, number
    return None if found is None else max(found - anchor, 1)
