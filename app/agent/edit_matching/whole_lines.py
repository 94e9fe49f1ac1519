"""Finds whole lines that were not written exactly as in the file; strictest comparison first."""

import re
from collections.abc import Callable, Sequence

from app.agent.edit_matching.fitting import (
    AmbiguousMatchError,
    EditMatch,
    WantedEdit,
    changes,
    normalized_line,
    places,
    straight_quotes,
)
from app.agent.edit_matching.stale_context import with_stale_context

_NUMBER = re.compile(r"^\s*(\d+)([\t:|→])(?:(?<=[:|]) )?")


def recover(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """The only match, and the differences that were ignored. Raises AmbiguousMatchError or NoMatchError."""
    found = _whole(lines, wanted)
    if found is None and (bare := _without_numbers(wanted)) is not None:
        wanted = bare
        found = _whole(lines, bare)
        found = (found[0], "line numbers") if found else None
    return found or with_stale_context(lines, wanted)


def _whole(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """A match in which every line is present and consecutive."""
    for key, how in _KEYS:
        want = [key(line) for line in wanted.old]
        found = list(places([key(line) for line in lines], want))
        if len(found) > 1:
            raise AmbiguousMatchError(found, how)
        if found:
            place = found[0]
            pairs = list(enumerate(range(place, place + len(want))))
            return EditMatch(place, changes(lines, wanted, dict(pairs))), how
    return None


_KEYS: tuple[tuple[Callable[[str], str], str], ...] = (
    (str.rstrip, "white space at line ends"),
    (lambda line: straight_quotes(line.rstrip()), "curly quotes"),
    (lambda line: line.strip(), "indentation"),
    (normalized_line, "white space"),
)


def _without_numbers(wanted: WantedEdit) -> WantedEdit | None:
    """The edit without a view's line numbers, if every line was copied with its own number."""
    found = [_NUMBER.match(line) for line in wanted.old if line.strip()]
    numbers = [int(match[1]) for match in found if match]
    ends = {match[2] for match in found if match}
    if not numbers or len(numbers) < len(found) or numbers != sorted(set(numbers)) or len(ends) > 1:
        return None
    known = range(numbers[0], numbers[-1] + len(wanted.new) + 1)

    def bare(line: str) -> str:
        """A new line without the number that it may start with."""
        match = _NUMBER.match(line)
        return line[match.end() :] if match and {match[2]} == ends and int(match[1]) in known else line

    return WantedEdit([_NUMBER.sub("", line, count=1) for line in wanted.old], [bare(line) for line in wanted.new])
