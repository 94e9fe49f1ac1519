"""Handles an edit with outdated context: the changed lines match, and the lines around them except for one."""

from collections.abc import Iterator, Sequence

from app.agent.edit_matching.alignment import Alignment, FileLines, alignments
from app.agent.edit_matching.fitting import (
    AmbiguousMatchError,
    EditMatch,
    LineChange,
    NoMatchError,
    WantedEdit,
    changes,
    differences,
    normalized_line,
    places,
)

_MAX_CANDIDATES = 300


def with_stale_context(lines: Sequence[str], wanted: WantedEdit) -> tuple[EditMatch, str] | None:
    """The only possible place of the change. Raises AmbiguousMatchError if there are several."""
    have, want = FileLines([normalized_line(line) for line in lines]), [normalized_line(line) for line in wanted.old]
    touched = _touched(wanted)
    if wanted.new and any(True for _ in places(have.lines, [normalized_line(line) for line in wanted.new])):
        return None  # the edit was made before
    candidates = (
        alignment for anchor in _anchors(have, want, touched) for alignment in alignments(have, want, touched, anchor)
    )
    agreeing = [alignment for alignment in candidates if alignment.agrees]
    if not agreeing:
        return None
    others = [alignment for alignment in agreeing if alignment.contradicts(agreeing[0])]
    if others:
        raise AmbiguousMatchError(
            sorted({agreeing[0].place, *(alignment.place for alignment in others)}), "stale context"
        )
    if not agreeing[0].missing_line_is_clear:
        return None
    merged = _merged(lines, wanted, agreeing[0])
    return (EditMatch(agreeing[0].place, merged), "stale context") if merged else None


def _anchors(have: FileLines, want: Sequence[str], touched: Sequence[int]) -> Iterator[int]:
    """Touched lines to search by, rarest first, limited to a number of places."""
    space = _MAX_CANDIDATES
    for index in sorted(touched, key=lambda index: have.times[want[index]]):
        space -= have.times[want[index]]
        if space < 0:
            return
        yield index


def _touched(wanted: WantedEdit) -> list[int]:
    """Old lines that are removed, and those next to new ones."""
    touched: set[int] = set()
    for begin, end, _, _ in differences(wanted):
        touched |= set(range(begin, end)) if end > begin else {begin - 1, begin}
    return sorted(index for index in touched if 0 <= index < len(wanted.old) and wanted.old[index].strip())


def _merged(lines: Sequence[str], wanted: WantedEdit, alignment: Alignment) -> list[LineChange]:
    """The changes, if every removed line exists and every new one has one place; empty otherwise."""
    for begin, end, _, _ in differences(wanted):
        if not (alignment.replaced(begin, end) if end > begin else alignment.inserted(begin)):
            return []
    try:
        return changes(lines, wanted, alignment.at)
    except NoMatchError:
        return []
