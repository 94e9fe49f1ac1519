"""What models make of the edits they mean, by kind: clean ones, those to be recovered, and those that have no place."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace as with_changes
from itertools import cycle
from typing import NamedTuple

from app.agent.edit_matching import straight_quotes
from tests.support.edits.corpus import Case, IntendedEdit, Source, intended_edits

CLEAN, RECOVERABLE, HOPELESS = "clean", "recoverable", "to be refused"
Make = Callable[[str, IntendedEdit, random.Random], Case | None]


class Kind(NamedTuple):
    """How a case of one kind is made; None where the passage does not lend itself to it."""

    group: str
    make: Make


def cases(sources: Sequence[Source], random_: random.Random, count: int) -> list[Case]:
    """As many edits, of all kinds in turn; the same random numbers give the same."""
    made: list[Case] = []
    for name in cycle(KINDS):
        if len(made) >= count:
            return made
        for _ in range(200):
            wanted = intended_edits(random_.choice(sources), random_)
            case = KINDS[name].make(name, wanted, random_) if wanted else None
            if case is not None:
                made.append(case)
                break
    return made


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _of(name: str, wanted: IntendedEdit, old: Sequence[str], new: Sequence[str]) -> Case | None:
    """A case, where it is not what the file has, and the passage is there once whatever is overlooked."""
    if _times(wanted.old, wanted.source.lines) > 1:
        return None
    if list(old) == wanted.old and KINDS[name].group == RECOVERABLE and "\r" not in wanted.source.text:
        return None
    return Case(name, wanted.source, _text(old), _text(new), wanted.text)


def _times(part: Sequence[str], lines: Sequence[str]) -> int:
    """How often lines are there, whatever is overlooked."""
    loosely, whole = (["".join(straight_quotes(line).split()) for line in some] for some in (part, lines))
    return f"\0{chr(0).join(whole)}\0".count(f"\0{chr(0).join(loosely)}\0")


def _exact(name: str, wanted: IntendedEdit, _: random.Random) -> Case:
    return Case(name, wanted.source, _text(wanted.old), _text(wanted.new), wanted.text)


def _without_end(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    old, new = "\n".join(wanted.old), "\n".join(wanted.new)
    return Case(name, wanted.source, old, new, wanted.text) if wanted.source.text.count(old) == 1 else None


def _from_the_first_letter(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    case = _without_end(name, wanted, random_)
    if case is None or wanted.around[0] == 0 or not wanted.old[0].strip():
        return None
    old, new = case.old.lstrip(" \t"), case.new.lstrip(" \t")
    return with_changes(case, old=old, new=new) if wanted.source.text.count(old) == 1 else None


def _resourced(wanted: IntendedEdit, text: str) -> IntendedEdit:
    return with_changes(wanted, source=with_changes(wanted.source, text=text))


def _crlf(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    if "\r" in wanted.source.text:
        return None
    return _exact(name, _resourced(wanted, wanted.source.text.replace("\n", "\r\n")), random_)


def _no_final_end(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    text = wanted.source.text.rstrip("\n")
    if "\r" in text or wanted.end >= text.count("\n"):
        return None
    return _exact(name, _resourced(wanted, text), random_)


def _tabs(lines: Sequence[str]) -> list[str]:
    return [re.sub(r"^(?: {4})+", lambda match: "\t" * (len(match[0]) // 4), line) for line in lines]


def _with_tabs(wanted: IntendedEdit) -> IntendedEdit | None:
    odd = any((len(line) - len(line.lstrip(" "))) % 4 for line in (*wanted.old, *wanted.new) if line.strip())
    if odd or "\t" in wanted.source.text or "\r" in wanted.source.text:
        return None
    made = _resourced(wanted, "\n".join(_tabs(wanted.source.lines)))
    made = with_changes(made, new=_tabs(wanted.new))
    return made if any(line.startswith("\t") for line in made.old) else None


def _in_tabs(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    made = _with_tabs(wanted)
    return _exact(name, made, random_) if made else None


def _odd_bytes_elsewhere(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    if wanted.begin < 2 or "\r" in wanted.source.text:
        return None
    lines = wanted.source.lines
    lines[0] += "  caf\udce9"
    return _exact(name, _resourced(wanted, "\n".join(lines)), random_)


def _blanks_in_old(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    return _of(name, wanted, [line + random_.choice(["", "  ", "\t"]) for line in wanted.old], wanted.new)


def _blanks_in_the_file(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    lines = wanted.source.lines
    spoiled = [line + random_.choice(["", " ", "  "]) for line in wanted.old]
    made = _resourced(wanted, "\n".join([*lines[: wanted.begin], *spoiled, *lines[wanted.end :]]))
    if "\r" in wanted.source.text or spoiled == wanted.old:
        return None
    return Case(name, made.source, _text(wanted.old), _text(wanted.new), made.text)


def _mixed_ends(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    if "\r" in wanted.source.text:
        return None
    lines = wanted.source.lines
    here = range(wanted.begin, wanted.end)
    mixed = [f"{line}\r" if index in here else line for index, line in enumerate(lines)]
    after = [*mixed[: wanted.begin], *(f"{line}\r" for line in wanted.new), *mixed[wanted.end :]]
    source = with_changes(wanted.source, text="\n".join(mixed))
    return Case(name, source, _text(wanted.old), _text(wanted.new), "\n".join(after))


def _curly(text: str) -> str:
    text = re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", text)
    return re.sub(r"'([^'\n]*)'", "\u2018\\1\u2019", text).replace("'", "\u2019")


def _curly_in_old(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    return _of(name, wanted, list(map(_curly, wanted.old)), list(map(_curly, wanted.new)))


def _curly_in_the_file(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    """The lines that are left alone keep their quotes."""
    lines, (before, after) = wanted.source.lines, wanted.around
    there = [*map(_curly, wanted.old[:before]), *wanted.old[before : len(wanted.old) - after]]
    there += map(_curly, wanted.old[len(wanted.old) - after :])
    if "\r" in wanted.source.text or there == wanted.old:
        return None
    text = "\n".join([*lines[: wanted.begin], *there, *lines[wanted.end :]])
    kept = [*there[:before], *wanted.new[before : len(wanted.new) - after], *there[len(there) - after :]]
    after_text = "\n".join([*lines[: wanted.begin], *kept, *lines[wanted.end :]])
    return Case(name, with_changes(wanted.source, text=text), _text(wanted.old), _text(wanted.new), after_text)


def _numbered(lines: Sequence[str], first: int, mark: str, width: int) -> list[str]:
    return [f"{number:>{width}}{mark}{line}" for number, line in enumerate(lines, start=first)]


def _numbers(mark: str, *, in_new: bool) -> Make:
    def make(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
        width = len(str(wanted.end))
        old = _numbered(wanted.old, wanted.begin + 1, mark, width)
        new = _numbered(wanted.new, wanted.begin + 1, mark, width) if in_new else wanted.new
        return _of(name, wanted, old, new)

    return make


def _deeper(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    more = " " * random_.choice([2, 4, 8])
    old, new = ([more + line if line.strip() else line for line in part] for part in (wanted.old, wanted.new))
    return _of(name, wanted, old, new)


def _less_deep(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    every = [line for line in (*wanted.old, *wanted.new) if line.strip()]
    shared = min(len(line) - len(line.lstrip(" ")) for line in every)
    if not shared:
        return None
    return _of(name, wanted, [line[shared:] for line in wanted.old], [line[shared:] for line in wanted.new])


def _spaces_for_tabs(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    made = _with_tabs(wanted)
    return Case(name, made.source, _text(wanted.old), _text(wanted.new), made.text) if made else None


def _tabs_for_spaces(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    if "\t" in wanted.source.text:
        return None
    every = [line for line in (*wanted.old, *wanted.new) if line.strip()]
    if any((len(line) - len(line.lstrip(" "))) % 4 for line in every):
        return None
    if not any(line.startswith("    ") for line in wanted.old):
        return None  # nothing says how wide a tab is
    return _of(name, wanted, _tabs(wanted.old), _tabs(wanted.new))


def _inner_blanks(name: str, wanted: IntendedEdit, _: random.Random) -> Case | None:
    def spaced(line: str) -> str:
        indent = line[: len(line) - len(line.lstrip())]
        return indent + re.sub(r"(\S) ([=({+]|\w)", r"\1  \2", line.lstrip(), count=1)

    return _of(name, wanted, list(map(spaced, wanted.old)), wanted.new)


def _context(wanted: IntendedEdit, random_: random.Random) -> int | None:
    """A line of the passage that the edit leaves alone and that says something."""
    before, after = wanted.around
    size = len(wanted.old)
    found = [i for i in (*range(before), *range(size - after, size)) if sum(map(str.isalnum, wanted.old[i])) >= 6]
    return random_.choice(found) if found and size >= 4 else None


def _stale(line: str, random_: random.Random) -> str:
    words = re.findall(r"[A-Za-z_]{3,}", line)
    return line.replace(random_.choice(words), "formerly", 1) if words else f"{line}  formerly"


def _mapped(wanted: IntendedEdit, index: int) -> int:
    """Where a line of context is in the new lines."""
    return index if index < wanted.around[0] else index - len(wanted.old) + len(wanted.new)


def _odd_bytes_around(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    index = _context(wanted, random_)
    if index is None or "\r" in wanted.source.text:
        return None
    lines, new = wanted.source.lines, list(wanted.new)
    lines[wanted.begin + index] += "  caf\udce9"
    new[_mapped(wanted, index)] += "  caf\udce9"
    made = with_changes(_resourced(wanted, "\n".join(lines)), new=new)
    old, new_text = (_text(part).replace("\udce9", "\ufffd") for part in (made.old, new))
    return Case(name, made.source, old, new_text, made.text)


def _both(first: Make, second: Make) -> Make:
    """Two things at once; the second is done to what the first made."""

    def make(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        case = first(name, wanted, random_)
        if case is None:
            return None
        sent, new = case.old.split("\n")[:-1], case.new.split("\n")[:-1]
        again = second(name, with_changes(wanted, new=new, sent=tuple(sent)), random_)
        return again and with_changes(again, expected=wanted.text)

    return make


def _refused(case: Case | None, text: str) -> Case | None:
    return case and with_changes(case, source=with_changes(case.source, text=text), expected=None)


def _twice(make: Make) -> Make:
    """The same passage, with what is around it, is there once more."""

    def made(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        lines = wanted.source.lines
        block = lines[max(wanted.begin - 4, 0) : wanted.end + 4]
        return _refused(make(name, wanted, random_), "\n".join([*lines, "", *block, ""]))

    return made


def _gone(make: Make) -> Make:
    """The lines to be changed are not there any more."""

    def made(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        lines, (before, after) = wanted.source.lines, wanted.around
        kept = [*lines[: wanted.begin + before], *lines[wanted.end - after :]]
        if _times(wanted.old[before : len(wanted.old) - after], kept):
            return None
        return _refused(make(name, wanted, random_), "\n".join(kept))

    return made


def _other_by_now(make: Make) -> Make:
    """Somebody else has changed the very lines."""

    def made(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        lines, (before, after) = wanted.source.lines, wanted.around
        if all(line in wanted.new for line in wanted.old):
            return None  # nothing goes: a line beside may have changed
        for index in range(wanted.begin + before, wanted.end - after):
            lines[index] = _stale(lines[index], random_)
        if _times(wanted.old[before : len(wanted.old) - after], lines):
            return None
        return _refused(make(name, wanted, random_), "\n".join(lines))

    return made


def _elsewhere(make: Make) -> Make:
    """The passage is gone; the line to be changed stands somewhere else, and nothing that was around it."""

    def made(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        lines, (before, after) = wanted.source.lines, wanted.around
        middle = lines[wanted.begin + before : wanted.end - after]
        kept = [*lines[: wanted.begin], *lines[wanted.end :]]
        far = [place for place in range(len(kept)) if abs(place - wanted.begin) > len(wanted.old) + 2]
        known = {line.strip() for line in kept if any(map(str.isalnum, line))}
        if not far or len(middle) > 1 or known & {line.strip() for line in wanted.old}:
            return None
        place = random_.choice(far)
        kept[place:place] = middle
        there = _times(wanted.old, kept) or "\n".join(wanted.old) in "\n".join(kept)
        return None if there else _refused(make(name, wanted, random_), "\n".join(kept))

    return made


def _like_another(make: Make) -> Make:
    """Another passage like it stays: a word around the change is another there, and what was written is elsewhere."""

    def made(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
        lines, index = wanted.source.lines, _context(wanted, random_)
        if index is None:
            return None
        far = "\n".join([*lines[: max(wanted.begin - 2, 0)], *lines[wanted.end + 2 :]])
        near = "\n".join(lines[max(wanted.begin - 2, 0) : wanted.end + 2])
        words = [word for word in re.findall(r"\w{5,}", lines[wanted.begin + index]) if near.count(word) == 1]
        known = [word for word in words if 0 < len(re.findall(rf"\b{word}\b", far)) <= 5]
        if not known:
            return None
        lines[wanted.begin + index] = lines[wanted.begin + index].replace(random_.choice(known), "otherwise")
        there = _times(wanted.old, lines) or "\n".join(wanted.old) in "\n".join(lines)
        return None if there else _refused(make(name, wanted, random_), "\n".join(lines))

    return made


def _made_before(name: str, wanted: IntendedEdit, random_: random.Random) -> Case | None:
    lines = [*wanted.source.lines[: wanted.begin], *wanted.new, *wanted.source.lines[wanted.end :]]
    there = _times(wanted.old, lines) or "\n".join(wanted.old) in "\n".join(lines)
    return None if there else _refused(_exact(name, wanted, random_), wanted.text)


KINDS: dict[str, Kind] = {
    "exact": Kind(CLEAN, _exact),
    "exact, no line end": Kind(CLEAN, _without_end),
    "from the first letter": Kind(CLEAN, _from_the_first_letter),
    "CRLF, written with LF": Kind(CLEAN, _crlf),
    "no final line end": Kind(CLEAN, _no_final_end),
    "tabs": Kind(CLEAN, _in_tabs),
    "bytes that are no UTF-8 elsewhere": Kind(CLEAN, _odd_bytes_elsewhere),
    "blanks at ends, in old_text": Kind(RECOVERABLE, _blanks_in_old),
    "blanks at ends, in the file": Kind(RECOVERABLE, _blanks_in_the_file),
    "mixed line ends": Kind(RECOVERABLE, _mixed_ends),
    "curly quotes, in old_text": Kind(RECOVERABLE, _curly_in_old),
    "curly quotes, in the file": Kind(RECOVERABLE, _curly_in_the_file),
    "line numbers of view": Kind(RECOVERABLE, _numbers("\t", in_new=True)),
    "line numbers in old_text only": Kind(RECOVERABLE, _numbers("\t", in_new=False)),
    "line numbers with colons": Kind(RECOVERABLE, _numbers(": ", in_new=True)),
    "deeper": Kind(RECOVERABLE, _deeper),
    "less deep": Kind(RECOVERABLE, _less_deep),
    "blanks for tabs": Kind(RECOVERABLE, _spaces_for_tabs),
    "tabs for blanks": Kind(RECOVERABLE, _tabs_for_spaces),
    "blanks inside lines": Kind(RECOVERABLE, _inner_blanks),
    "bytes that are no UTF-8 around": Kind(RECOVERABLE, _odd_bytes_around),
    "less deep, blanks at ends": Kind(RECOVERABLE, _both(_less_deep, _blanks_in_old)),
    "curly quotes, deeper": Kind(RECOVERABLE, _both(_curly_in_old, _deeper)),
    "there twice": Kind(HOPELESS, _twice(_exact)),
    "there twice but for blanks": Kind(HOPELESS, _twice(_blanks_in_old)),
    "there twice, less deep": Kind(HOPELESS, _twice(_less_deep)),
    "gone": Kind(HOPELESS, _gone(_exact)),
    "other by now": Kind(HOPELESS, _other_by_now(_exact)),
    "other by now, deeper": Kind(HOPELESS, _other_by_now(_deeper)),
    "gone, its lines elsewhere": Kind(HOPELESS, _elsewhere(_exact)),
    "gone, another like it": Kind(HOPELESS, _like_another(_exact)),
    "gone, another like it, less deep": Kind(HOPELESS, _like_another(_less_deep)),
    "made before": Kind(HOPELESS, _made_before),
}
