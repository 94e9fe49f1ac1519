"""Escapes other people's text for GitHub's Markdown, and keeps it readable (SECURITY S23 to S25).

`harmless_line` and `harmless_text` are for titles and commit messages, where nothing can be escaped.

GitHub looks for mentions, references and closing keywords in the *rendered* text, so no backslash or entity stops them:
whatever could be one becomes a code span, as do file names and identifiers. All other text is escaped. Invisible
characters and escape sequences are removed first (`app.core.text`).
"""

import re
import textwrap
from collections.abc import Iterable
from datetime import timedelta
from html import escape

from app.core.text import clip, one_line, plain

_LEADING = "([{<\"'*~>\u201c\u2018\u00ab"
_TRAILING = ")]}>\"'*~.,;:!?\u2026\u201d\u2019\u00bb"
_ACTIVE = re.compile(
    r"""(?ix)
      @                                  # mentions, teams, addresses, owner/repo@commit
    | \#\d | \bgh-\d                     # issues, pull requests, owner/repo#1
    | :// | \bwww\. | \b(?:mailto|xmpp): # links
    | \b[0-9a-f]{7,64}\b                 # commits
    | [^\s.]\.[^\W\d_]{2,} | ^[.\w-]*/[./\w-]   # hosts, file names, dotted names, paths
    | \w_\w | \w\(\) | ^--?\w            # identifiers, calls, options
    """
)
_KEYWORD = r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?|duplicate\s+of)"
_REFERENCE = r"(?:\#\d|gh-\d|[^\s/]{1,99}/[^\s/\#]{1,99}\#\d|https?://|www\.)"
_CLOSING = re.compile(rf"(?i)\b{_KEYWORD}\b[\s:]*{_REFERENCE}\S*")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"^(\s*)(?:[-*+•]|(\d{1,3})[.)])\s+(.*\S)")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)[\s#]*$")
_LINE_ENDS = re.compile("\r\n|[\x0b\x0c\x85\u2028\u2029]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "$": "&#36;"}
_SPECIAL = re.compile(r"[&<>$\\`*_\[\]~]")
MARKDOWN_LINK = re.compile(r"!?\[([^\[\]\n]{1,200})\]\((https?://[^\s()]{1,500})\)")
"""A link whose text hides where it leads; both parts are shown."""
_BLOCK_START = re.compile(r"^(?:[-+=#:!/|]|\d+(?=[.)]))")


def inline(text: str) -> str:
    """One line of prose, escaped; code spans stay, and whatever GitHub would act on becomes one."""
    return _inline(one_line(as_shown(text)))


def code_span(text: str) -> str:
    """A code span that shows exactly this text on one line."""
    content = as_shown(text).replace("\n", " ").replace("\t", " ").strip()
    if not content:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", content)), default=0))
    padding = " " if content[0] == "`" or content[-1] == "`" else ""
    return f"{fence}{padding}{content}{padding}{fence}"


def fenced(text: str, language: str = "text") -> str:
    """A code block that shows exactly this text; `language` comes from our templates only (`mermaid` is executed)."""
    content = as_shown(text).strip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", content)), default=0))
    return f"{fence}{language}\n{content}\n{fence}"


def cell(text: str) -> str:
    """Prose in a table cell, where a pipe ends the cell even inside code."""
    return inline(text).replace("|", "\\|")


def code_cell(text: str) -> str:
    """A code span in a table's cell."""
    return code_span(text).replace("|", "\\|")


def lines_cell(text: str, most: int) -> str:
    """The lines of an output as code spans below each other; `most` are its characters in all."""
    return "<br>".join(code_cell(line) for line in clip(text, most).splitlines() if line.strip())


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; the cells are Markdown already."""
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def paragraphs(*parts: str) -> str:
    """The parts that are not empty, with a blank line between them. They are Markdown already."""
    return "\n\n".join(filter(None, parts))


def alert(kind: str, *parts: str) -> str:
    """GitHub's coloured box (`NOTE`, `WARNING` …) with these paragraphs, as in `paragraphs`."""
    return "\n".join(f"> {line}".rstrip() for line in (f"[!{kind}]", *paragraphs(*parts).split("\n")))


def details(summary: str, body: str) -> str:
    """A folded part. `summary` comes from our templates only, `body` is Markdown."""
    return f"<details>\n<summary>{escape(one_line(summary), quote=False)}</summary>\n\n{body}\n\n</details>"


def prose(text: str) -> str:
    """Several paragraphs of other people's text: lists, headings and code stay recognisable, nothing is active."""
    blocks: list[str] = []
    lines = iter(as_shown(text).split("\n"))
    for line in lines:
        if opening := _FENCE.match(line):
            blocks.append(fenced("\n".join(_until(lines, opening[1]))))
        else:
            blocks.append(_line(line.replace("\t", "    ").rstrip()))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(blocks)).strip("\n")


def quoted(text: str) -> str:
    """Prose as a quotation, so that its origin is clear and no line starts with a command."""
    return "\n".join(f"> {line}".rstrip() for line in prose(text).split("\n"))


def _until(lines: Iterable[str], fence: str) -> Iterable[str]:
    for line in lines:
        if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            return
        yield line


def _line(line: str) -> str:
    if item := _ITEM.match(line):
        indent = "  " * min(len(item[1]) // 2, 2)
        return f"{indent}{f'{item[2]}.' if item[2] else '-'} {_inline(item[3])}"
    if heading := _HEADING.match(line):
        return f"**{_inline(heading[1])}**" if heading[1] else ""
    return _inline(line.strip())


def _inline(line: str) -> str:
    """Keep code spans, and treat the rest word by word."""
    pieces: list[str] = []
    at = 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [*_words(line[at : span.start()]), code_span(span[2])]
        at = span.end()
    pieces += _words(line[at:])
    return _start(_joined(pieces))


def _words(text: str) -> list[str]:
    text = MARKDOWN_LINK.sub(r"\1 (\2)", text)
    pieces: list[str] = []
    at = 0
    for closing in _CLOSING.finditer(text):
        pieces += _tokens(text[at : closing.start()])
        pieces += _wrapped(closing[0])
        at = closing.end()
    return pieces + _tokens(text[at:])


def _tokens(text: str) -> list[str]:
    pieces: list[str] = []
    for token in re.split(r"(\s+)", text):
        pieces += _wrapped(token) if _ACTIVE.search(token) else [_escaped(token)]
    return pieces


def _wrapped(token: str) -> list[str]:
    """Punctuation around a word stays outside its code span."""
    core = token.lstrip(_LEADING)
    before = token[: len(token) - len(core)]
    core = core.rstrip(_TRAILING)
    after = token[len(before) + len(core) :]
    if token.endswith("()" + after.removeprefix(")")) or core.count("(") > core.count(")"):
        closing = after[: 1 if after.startswith(")") else 0]
        core, after = core + closing, after[len(closing) :]
    if after.startswith("]") and core.count("[") > core.count("]"):
        core, after = f"{core}]", after[1:]
    return [_escaped(before), code_span(core), _escaped(after)]


def _joined(pieces: Iterable[str]) -> str:
    """Merge code spans that would otherwise touch."""
    text = ""
    for piece in filter(None, pieces):
        text += f" {piece}" if text.endswith("`") and piece.startswith("`") else piece
    return text


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), text)


def _start(line: str) -> str:
    """Escape the first character, so that no line starts a list, heading, rule, number or command."""
    found = _BLOCK_START.match(line)
    if found is None:
        return line
    if found[0].isdigit():
        return f"{found[0]}\\{line[found.end() :]}"
    return f"\\{line}"


def as_shown(text: str) -> str:
    """The text as a code block shows it: without escape sequences and hidden characters; `\\n` ends its lines."""
    return plain(_LINE_ENDS.sub("\n", text))


_WIDTH = 72
_MARKS = (
    (re.compile(r"@(?=\w)"), "@ "),
    (re.compile(r"#(?=\d)"), "# "),
    (re.compile(r"(?i)\bgh-(?=\d)"), "GH "),
    (MARKDOWN_LINK, r"\1 (\2)"),
    (re.compile(r"://"), "[:]//"),
    (re.compile(r"(?i)\bwww\.(?=\S)"), "www . "),
    (re.compile(r"(?i)\b(?=\d*[a-f])[0-9a-f]{7,64}\b"), lambda found: f"{found[0][:6]}…"),
    (re.compile(r"\[(?=[^\]]*(?:(?i:skip|\bci\b|actions))[^\]]*\])([^\]]*)\]"), r"(\1)"),
    (re.compile(r"\*{3}"), ""),
    (re.compile(r"(?i)\bbreaking[ -]+change(s?)\b"), r"incompatible change\1"),  # Conventional Commits
    (re.compile(r"(?m)(^|: |\s)([A-Za-z]+(?:\([^()\n]*\))?)!:"), r"\1\2:"),
    (re.compile(r"(?i)\+semver:"), "semver -"),  # GitVersion
    (re.compile(r"(?i)#(?=(?:major|minor|patch|none)\b)"), ""),  # github-tag-action
    (re.compile(r"(?im)^(\s*[a-z]+-as)\s*:"), r"\1 -"),  # release-please
    (re.compile(r"([$<>=])(?=[({])"), r"\1 "),
    (re.compile(r"(?m)(^|\s)([A-Za-z]+(?:-[A-Za-z]+)+)[ \t]*:"), r"\1\2 -"),
)
"""What a forge, CI or a release tool acts on in plain text: mentions, references, links, skip marks, trailers, marks of
a major release; and what a shell would execute, if a workflow pastes the text into a script.

Replacing is idempotent.
"""


def harmless_line(text: str, limit: int) -> str:
    """One line for a title or a subject, shortened at a word with an ellipsis."""
    line = _harmless(_OPERATORS.sub(_word_for, one_line(plain(text)).replace("`", "'"))).strip()
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"


_OPERATORS = re.compile(r"\s*(?:&+|\|+|;+)\s*")
"""Between the commands of a shell."""


def _word_for(operator: re.Match[str]) -> str:
    found = operator[0].strip()
    return ", " if found[0] == ";" else " and " if found[0] == "&" else " or " if len(found) > 1 else " / "


def harmless_text(text: str, limit: int) -> str:
    """Paragraphs for a commit message, wrapped, with a note if more than `limit` characters were cut."""
    cleaned = plain(text).strip()
    kept = cleaned if len(cleaned) <= limit else f"{cleaned[:limit].rpartition(' ')[0]} …"
    lines: list[str] = []
    for line in _harmless(kept).splitlines():
        item = re.match(r"\s*(?:[-*]|\d+[.)])\s+", line)
        indent = "  " if item else ""
        lines += textwrap.wrap(line.strip(), _WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return re.sub(r"\n{3,}", "\n\n", _harmless("\n".join(lines))).strip()


def duration(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(timedelta(seconds=seconds).total_seconds()), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _harmless(text: str) -> str:
    for pattern, replacement in _MARKS:
        text = pattern.sub(replacement, text)
    return text
