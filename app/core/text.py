"""Removes hidden characters and markup from text, so that the model sees exactly what people see."""

import re
import unicodedata
from typing import NamedTuple

from app.core.markup import strip_hidden

_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs"})
_KEPT_CONTROLS = frozenset("\n\t")
_BLANK = (  # these draw nothing although their category says letter, mark or symbol
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul Jamo fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x2800, 0x2800),  # Braille blank
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0x16FE4, 0x16FE4),  # Khitan filler
    (0x1D159, 0x1D159),  # musical null notehead
    (0xE0000, 0xE0FFF),  # tags and the variation selectors supplement
)
_LINE_ENDS = re.compile("\r\n|[\r\u0085\u2028\u2029]")
_MARKDOWN_LINE_ENDS = re.compile("\r\n?")
_NO_MARKDOWN_LINE_ENDS = str.maketrans(dict.fromkeys("\u0085\u2028\u2029", " "))
"""Line ends for Unicode but not for CommonMark: a quote or a code block continues after them."""
_RARE_LINE_ENDS = re.compile("\r\n|[\u0085\u2028\u2029]")

_STRING_SEQUENCE = r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\n\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\)?"
_CONTROL_SEQUENCE = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_OTHER_ESCAPE = r"\x1b[ -/]*[0-~]?"
_COMPLETE_ESCAPES = re.compile(rf"{_CONTROL_SEQUENCE}|(?:\x1b\]|\x9d)[^\n\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\)")
"""Without those that would hide all that follows, which a page shows."""
_ESCAPES = re.compile(f"{_STRING_SEQUENCE}|{_CONTROL_SEQUENCE}|{_OTHER_ESCAPE}")


class VisibleText(NamedTuple):
    """Text as a reader of the rendered page sees it, and how many characters were taken out."""

    text: str
    removed: int


def is_hidden(character: str) -> bool:
    """True for a character that draws nothing, other than a line end or tab.

    As a result, emoji lose their joiners and colour selectors, and some Indic and Persian words lose joiners; letters
    stay.
    """
    if character in _KEPT_CONTROLS:
        return False
    code = ord(character)
    return unicodedata.category(character) in _DROPPED_CATEGORIES or any(low <= code <= high for low, high in _BLANK)


def visible(text: str) -> VisibleText:
    """Remove from Markdown everything that the rendered page would not show; normalise to NFC and `\\n` line ends."""
    text = _MARKDOWN_LINE_ENDS.sub("\n", text).translate(_NO_MARKDOWN_LINE_ENDS)
    text, characters = _without_hidden(text)
    text, markup = strip_hidden(text, is_hidden)
    return VisibleText(unicodedata.normalize("NFC", text), characters + markup)


def one_line(text: str) -> str:
    """Text for a title or a log line: nothing hidden, every run of white space replaced by one space."""
    cleaned, _ = _without_hidden(_COMPLETE_ESCAPES.sub("", _LINE_ENDS.sub("\n", text)))
    return unicodedata.normalize("NFC", " ".join(cleaned.split()))


def plain(output: str) -> str:
    """A command's output as a terminal would show it: no escape sequences, control or invisible characters.

    If a line was rewritten with carriage returns (a progress bar), its last version is kept.
    """
    text = _ESCAPES.sub("", _RARE_LINE_ENDS.sub("\n", output))
    text = "\n".join(_last_writing(line) if "\r" in line else line for line in text.split("\n"))
    if "\b" in text:
        text = _backspaced(text)
    return _without_hidden(text)[0]


def head_and_tail(text: str, most: int) -> str:
    """The text, or about `most` characters from both ends in whole lines, with a note of how much was left out."""
    if len(text) <= most:
        return text
    head, tail = text[: most * 3 // 4], text[len(text) - most // 4 :]
    head = head.rpartition("\n")[0] or head
    tail = tail.partition("\n")[2] or tail
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n\n[{left_out:,} of {len(text):,} characters are left out here]\n\n{tail}"


def _without_hidden(text: str) -> tuple[str, int]:
    hidden = {character for character in set(text) if is_hidden(character)}
    if not hidden:
        return text, 0
    shown = text.translate(dict.fromkeys(map(ord, hidden)))
    return shown, len(text) - len(shown)


def _last_writing(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def _backspaced(text: str) -> str:
    shown: list[str] = []
    for character in text:
        if character != "\b":
            shown.append(character)
        elif shown and shown[-1] != "\n":
            shown.pop()
    return "".join(shown)


def count(number: int, noun: str) -> str:
    """`1 test`, `1,200 tests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bounded(text: str, limit: int) -> str:
    """The first `limit` characters, with the number of the others on a line of its own."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit].rstrip()}\n(… {more:,} more characters are left out)"


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"
