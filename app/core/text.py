"""Removes hidden characters and hidden markup from text, so that the model sees exactly what people see.

Of Markdown this is what a rendered page does not show: comments, attributes, link definitions, entities. Code is
displayed as written, so it is left alone. A CommonMark parser decides what is code, because a fence inside a list or an
HTML block may end elsewhere than it appears to, and a guess would let text hide.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

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
_PIECE = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]{1,1000}")
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


def normalised(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """The text in a Unicode normal form, by pieces, because the time grows with the square of a run of accents."""
    return _PIECE.sub(lambda match: unicodedata.normalize(form, match[0]), text)


def visible(text: str) -> VisibleText:
    """Remove from Markdown everything that the rendered page would not show; normalise to NFC and `\\n` line ends."""
    text = _MARKDOWN_LINE_ENDS.sub("\n", text).translate(_NO_MARKDOWN_LINE_ENDS)
    text, characters = _without_hidden(text)
    text, markup = _strip_hidden_markup(text)
    return VisibleText(normalised(text), characters + markup)


def one_line(text: str) -> str:
    """Text for a title or a log line: nothing hidden, every run of white space replaced by one space."""
    cleaned, _ = _without_hidden(_COMPLETE_ESCAPES.sub("", _LINE_ENDS.sub("\n", text)))
    return normalised(" ".join(cleaned.split()))


def plain(output: str) -> str:
    """A command's output as a terminal would show it: no escape sequences, control or invisible characters.

    If a line was rewritten with carriage returns (a progress bar), its last version is kept.
    """
    text = _ESCAPES.sub("", _RARE_LINE_ENDS.sub("\n", output))
    text = "\n".join(_last_writing(line) if "\r" in line else line for line in text.split("\n"))
    if "\b" in text:
        text = _backspaced(text)
    return _without_hidden(text)[0]


def storable(text: str) -> str:
    """Text that can be sent and stored: the halves of a surrogate pair are joined, lone ones (bytes of odd file names,
    a part of an emoji) become U+FFFD, and NUL, which Postgres refuses, is left out."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "")


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


def listed(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that was probably meant; empty if none is like it."""
    from difflib import get_close_matches  # noqa: PLC0415  # imported only for an error

    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as one text."""
    return frozenset(text.split())


def beginning_of(text: str, limit: int) -> str:
    """The first `limit` characters, with the number of the others on a line of its own."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit].rstrip()}\n(… {more:,} more characters are left out)"


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


MarkupKind = Literal["code", "html", "prose", "definition"]

_MAY_BE_MARKUP = re.compile(r"[<&]|!\[|\]:|\]\(|```|~~~")
_CLOSERS = {"<!--": "-->", "<?": "?>", "<![CDATA[": "]]>", "<!": ">"}
_TAG_NAME = r"[A-Za-z][A-Za-z0-9-]*"
_ATTRIBUTE = r"""\s+[A-Za-z_:][\w.:-]*(?:\s*=\s*(?:[^\s"'=<>`]+|'[^']*'|"[^"]*"))?"""
_HTML = (
    r"(?P<opener><!--|<\?|<!\[CDATA\[|<!(?=[A-Za-z]))"
    rf"|(?P<tag></?{_TAG_NAME}(?:{_ATTRIBUTE})*\s*/?>)"
    r"|(?P<entity>&(?:\#[xX][0-9A-Fa-f]{1,6}|\#[0-9]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});)"
)
_IN_HTML = re.compile(_HTML)
_IN_PROSE = re.compile(
    r"(?P<keep>\\[!-/:-@\[-`{-~]"  # an escape
    r"|(?P<ticks>(?<!`)`{1,8}(?!`))[^\n|]{1,2000}?(?<!`)(?P=ticks)(?!`)"  # a code span within one cell and line
    r"|<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*>)"  # an autolink
    rf"|{_HTML}"
    r"|(?P<image>!\[)[^\[\]\n]*(?=\])"
    r"""|(?P<title>\]\(\s{0,9}(?:<[^<>\n]*>|[^\s()<>]*))\s{1,9}(?:"[^"]*"|'[^']*'|\([^()]*\))\s{0,9}(?=\))"""
)
_SHOWN_ATTRIBUTE = re.compile(r"""\s(?:href|src)\s*=\s*(?:"[^"\s]*"|'[^'\s]*'|[^\s"'=<>`]+)""", re.IGNORECASE)
_INFO = re.compile(r"^(?P<fence>[\s>*+\-0-9.)]*(?:`{3,}|~{3,})[ \t]*[\w+#.-]{0,30})[^\n]*")


OWN_MARKS = re.compile(r"<!-- /?agent-fix:[^<>\n]{1,500} -->")
"""How our own texts are found again. The model does not get them either, but nobody needs to be told of them."""


def _strip_hidden_markup(markdown: str) -> tuple[str, int]:
    """Remove what the rendered page hides; return the Markdown and the number of characters removed."""
    if not _MAY_BE_MARKUP.search(markdown):
        return markdown, 0
    shown = "".join(_shown(kind, text) for kind, text in _segments(markdown))
    ours = sum(map(len, OWN_MARKS.findall(markdown))) - sum(map(len, OWN_MARKS.findall(shown)))
    return shown, len(markdown) - len(shown) - ours


def prose_lines(markdown: str, opening: re.Pattern[str]) -> list[int]:
    """Line numbers, from 0, of prose lines that begin with `opening`: not in code, quotes, lists, HTML or links."""
    lines = markdown.split("\n")
    candidates = {number: match for number, line in enumerate(lines) if (match := opening.match(line))}
    if not candidates:
        return []
    mark = next(sign for sign in map(chr, range(0xE000, 0xF8FF)) if sign not in markdown)
    for number, match in candidates.items():  # a marker in each candidate's place shows how the parser classifies it
        indent = len(match[0]) - len(match[0].lstrip(" "))
        lines[number] = f"{' ' * indent}{mark}{number}{mark}{lines[number][match.end() :]}"
    return [int(text.split(mark)[1]) for text in _line_beginnings("\n".join(lines)) if text.startswith(mark)]


def without_quotes(markdown: str) -> str:
    """The Markdown without quotes, which somebody else wrote."""
    if ">" not in markdown:
        return markdown
    quotes = (token.map for token in _parser().parse(markdown) if token.type == "blockquote_open" and token.map)
    quoted = {number for first, last in quotes for number in range(first, last)}
    return "\n".join(line for number, line in enumerate(markdown.split("\n")) if number not in quoted)


def image_addresses(markdown: str) -> tuple[str, ...]:
    """The addresses of the images that the rendered page shows, in order, without duplicates or images in code."""
    if "![" not in markdown and "<" not in markdown:
        return ()
    found: dict[str, None] = {}
    for block in _inline_parser().parse(markdown):
        for token in (block, *(block.children or ())):
            if token.type == "image":
                found[str(token.attrs.get("src", ""))] = None
            elif token.type in {"html_block", "html_inline"}:
                found |= dict.fromkeys(html_images(token.content))
    return tuple(filter(None, found))


_PICTURES = re.compile(r"!\[[^\[\]\n]{0,80}\]|<img\b[^<>]{0,600}>", re.IGNORECASE)
"""What an image usually has, a short description and a size, does not count as hidden."""
_MARKUP = re.compile(r"!\[[^\]]*\](?:\([^)]*\))?|<[^>]*>")


def hidden_characters(markdown: str) -> int:
    """How many characters `visible` removes that somebody should be told of."""
    shown, removed = visible(markdown)
    described = Counter(_PICTURES.findall(markdown)) - Counter(_PICTURES.findall(shown))
    usual = sum(len(each) - len(_bare_tag(each) if each[0] == "<" else "![]") for each in described.elements())
    return max(removed - usual, 0)


def has_words(markdown: str) -> bool:
    """False for a text that holds only images."""
    return re.search(r"\w", _MARKUP.sub("", markdown)) is not None


def html_images(page: str) -> tuple[str, ...]:
    """The addresses of all images in a piece of HTML, in order."""
    reader = _Images()
    reader.feed(page)
    return tuple(reader.found)


class _Images(HTMLParser):
    """Collects the `src` of `<img>` tags; the parser decodes entities and skips comments."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and (address := dict(attrs).get("src")):
            self.found.append(address.strip())

    def parse_html_declaration(self, i: int) -> int:
        """Skip the declaration as browsers do; the base class raises on some malformed ones."""
        return self.parse_bogus_comment(i)


def _line_beginnings(markdown: str) -> Iterator[str]:
    """The plain text at the start of each line of top-level paragraphs and headings."""
    tokens = _inline_parser().parse(markdown)
    for block, inline in pairwise(tokens):
        if inline.type == "inline" and block.level == 0 and block.type in {"paragraph_open", "heading_open"}:
            begins = True
            for child in inline.children or ():
                if begins and child.type == "text" and child.level == 0:
                    yield child.content
                begins = child.type in {"softbreak", "hardbreak"}


@cache
def _inline_parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415  30 ms, see below

    return MarkdownIt("commonmark", {"html": True})


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415  30 ms, and most issues have nothing to hide

    return MarkdownIt("commonmark", {"html": True}).disable("inline")


def _segments(markdown: str) -> Iterator[tuple[MarkupKind, str]]:
    """Split the text into runs of lines of the same kind, in order; each code block is a run of its own."""
    lines = markdown.split("\n")
    kinds, starts = _line_kinds(markdown, len(lines))
    start = 0
    for index in range(1, len(lines) + 1):
        if index == len(lines) or kinds[index] != kinds[start] or index in starts:
            end = "\n" if index < len(lines) else ""
            yield kinds[start], "\n".join(lines[start:index]) + end
            start = index


def _line_kinds(markdown: str, count: int) -> tuple[list[MarkupKind], set[int]]:
    """Each line's kind, and the line numbers at which a code block begins."""
    kinds: list[MarkupKind] = ["prose"] * count
    starts: set[int] = set()
    env: dict[str, Any] = {}
    for token in _parser().parse(markdown, env):
        if token.map and token.type in {"fence", "code_block", "html_block"}:
            first, last = token.map
            kinds[first:last] = ["html" if token.type == "html_block" else "code"] * (last - first)
            starts.add(first)
    for definition in [*env.get("references", {}).values(), *env.get("duplicate_refs", [])]:
        first, last = definition["map"]
        kinds[first:last] = ["definition"] * (last - first)
    return kinds, starts


def _shown(kind: MarkupKind, text: str) -> str:
    if kind == "definition":
        return ""
    if kind == "code":
        return _INFO.sub(lambda match: match["fence"], text)
    return "".join(_shown_parts(kind, text))


def _shown_parts(kind: MarkupKind, text: str) -> Iterator[str]:
    pattern = _IN_HTML if kind == "html" else _IN_PROSE
    never_closed: set[str] = set()
    position = 0
    while match := pattern.search(text, position):
        yield text[position : match.start()]
        position = match.end()
        opener = match["opener"]
        if not opener:
            yield _replacement(match)
            continue
        end = -1 if opener in never_closed else text.find(_CLOSERS[opener], match.start() + 2)
        if end >= 0:
            position = end + len(_CLOSERS[opener])
        elif kind == "html":  # hides the rest of its block
            return
        else:
            never_closed.add(opener)
            yield opener
    yield text[position:]


def _replacement(match: re.Match[str]) -> str:
    found = match.groupdict()
    if found["tag"]:
        return _bare_tag(found["tag"])
    if found["entity"]:
        return "" if all(map(is_hidden, html.unescape(match[0]))) else match[0]
    return found.get("keep") or found.get("image") or found.get("title") or ""


def _bare_tag(tag: str) -> str:
    name = re.match(rf"</?{_TAG_NAME}", tag)
    shown = "".join(_SHOWN_ATTRIBUTE.findall(tag))
    return f"{name[0] if name else '<'}{shown}{'/>' if tag.endswith('/>') else '>'}"
