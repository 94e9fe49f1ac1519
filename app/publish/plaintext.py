"""Makes other people's text harmless where it cannot be escaped: in titles and commit messages."""

import re
import textwrap
from datetime import timedelta

from app.core.text import one_line, plain
from app.publish.markdown import MARKDOWN_LINK

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
    (re.compile(r"(?m)(^|\s)([A-Za-z]+(?:-[A-Za-z]+)+)[ \t]*:"), r"\1\2 -"),
)
"""What a forge or CI acts on in plain text: mentions, references, links, skip marks, trailers.

Replacing is idempotent.
"""


def harmless_line(text: str, limit: int) -> str:
    """One line for a title or a subject, shortened at a word with an ellipsis."""
    line = _harmless(one_line(plain(text))).strip()
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"


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
