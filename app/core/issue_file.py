"""An issue as a file of Markdown: the first line is its title, the rest its body; labels may precede it.

---
labels: [enhancement, shop]
---
The title
"""

import codecs
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

from app.core.errors import ExitCode, IssueError
from app.core.task import Issue
from app.core.text import hidden_characters, one_line, visible
from app.core.yaml_and_toml import Value, front_matter, read_yaml

MAX_BYTES = 256 * 1024
MAX_LABELS = 100
MAX_TITLE = 256
"""GitHub's own limit; of a longer first line the title is the beginning, and the body keeps all of it."""

_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]+|$)|[ \t]+#+[ \t]*$")
_UNDERLINE = re.compile(r"^(?:=+|-+)[ \t]*$")
_PAGE = re.compile(r"(https?://[^/\s]+)/(\w[\w-]*)/([\w.-]+)/(?:issues|pull)/([0-9]{1,10})/?(?:[?#].*)?")
_NUMBER = re.compile(r"#?([0-9]{1,10})")
_REMOTE = re.compile(
    r"(?:(?P<web>https?)://(?:[^@/]*@)?(?P<site>[^/@]+)|(?:ssh|git)://(?:[^@/]*@)?(?P<host>[^/:]+)(?::\d+)?)"
    r"/(?P<path>.+)|(?:[^@/]*@)?(?P<scp>[^/:]+):(?!/)(?P<scp_path>.+)"
)
_SHORT = re.compile(r"()(\w[\w-]*)/([\w.-]+)#([0-9]{1,10})")


class IssueAddress(NamedTuple):
    """An issue on GitHub. `server` is empty if it was written as OWNER/NAME#N."""

    server: str
    owner: str
    name: str
    number: int

    def is_on(self, site: str) -> bool:
        """Whether it is on this GitHub, as OWNER/NAME#N is on any: a token is never sent to another server."""
        return not self.server or urlsplit(self.server).netloc.casefold() == urlsplit(site).netloc.casefold()

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}#{self.number}"


def where_issue(text: str, origin: Callable[[], str] | None = None) -> Path | IssueAddress:
    """Parse the value of `--issue`: a page's URL, OWNER/NAME#N, a number, or else a file (`-` is standard input).

    A number is an issue of the repository whose URL `origin` returns. Raises IssueError.
    """
    if origin is not None and (number := _NUMBER.fullmatch(text)) and not Path(text).exists():
        return _at_origin(int(number[1]), origin())
    found = _PAGE.fullmatch(text) or _SHORT.fullmatch(text)
    if found and not Path(text).exists():
        return IssueAddress(found[1], found[2], found[3], int(found[4]))
    if text.startswith(("http://", "https://")):
        raise unreadable(
            f"{text} is not the address of an issue", "Write it like https://github.com/OWNER/NAME/issues/3"
        )
    return Path(text)


def _at_origin(number: int, url: str) -> IssueAddress:
    """The issue with this number in the repository of a remote's URL, in any of git's spellings."""
    found = _REMOTE.fullmatch(url)
    owner, slash, name = (found["path"] or found["scp_path"] if found else "").strip("/").partition("/")
    name = name.removesuffix(".git")
    if found is None or not slash or not name or "/" in name:
        is_not = f"its remote `origin` is {url!r}, no repository on GitHub" if url else "it has no remote `origin`"
        raise unreadable(
            f"Issue {number} cannot be looked up in this repository: {is_not}",
            f"Name it with its repository: --issue OWNER/NAME#{number}",
        )
    site = found["site"] or found["host"] or found["scp"]
    return IssueAddress(f"{found['web'] or 'https'}://{site}", owner, name, number)


def issue_of(title: str, body: str, *, number: int, labels: Iterable[str], milestone: str = "") -> Issue:
    """Build an Issue from GitHub's title and body, without hidden characters."""
    shown, text = visible(title), visible(body)
    return Issue(
        title=one_line(shown.text) or f"#{number}",
        body=text.text.strip(),
        number=number,
        hidden_characters=hidden_characters(title) + hidden_characters(body),
        labels=tuple(labels),
        milestone=milestone,
    )


def read_issue(path: Path, *, stdin: BinaryIO | None = None) -> Issue:
    """Read the issue from a file, or from standard input if the path is `-`.

    Raises IssueError with a code per reason.
    """
    if str(path) == "-":
        name = "standard input"
        content = (stdin or sys.stdin.buffer).read(MAX_BYTES + 1)
    else:
        name = str(path)
        content = _read(path)
    if len(content) > MAX_BYTES:
        raise _too_large(name, None)
    return parse_issue(content, name)


def parse_issue(content: bytes, name: str = "the issue") -> Issue:
    labels, markdown = _split_labels(_decode(content, name))
    text, _ = visible(markdown)
    if not text.strip():
        raise IssueError(
            f"{name} is empty", code=ExitCode.ISSUE_EMPTY, hint="Write the title on the first line, the rest below it"
        )
    first, _, rest = text.lstrip().partition("\n")
    title = one_line(_HEADING.sub("", first))
    if not title:
        raise IssueError(
            f"{name} has no title: its first line is only {first.strip()!r}",
            code=ExitCode.ISSUE_EMPTY,
            hint="Write the title on the first line",
        )
    underline, _, below = rest.partition("\n")
    body = (below if _UNDERLINE.match(underline) else rest).strip("\n")
    if len(title) > MAX_TITLE:
        title, body = title[: MAX_TITLE - 1].rstrip() + "…", f"{title}\n\n{body}"
    return Issue(title=title, body=body, hidden_characters=hidden_characters(markdown), labels=labels)


def _split_labels(text: str) -> tuple[tuple[str, ...], str]:
    """The labels in the front matter, and the text below it.

    Other keys, which exports contain, are ignored. Anything that does not look like front matter belongs to the issue's
    text.
    """
    yaml, rest = front_matter(text)
    document = read_yaml(yaml.encode())
    if document.problems or not isinstance(document.value, dict):
        return (), text
    return _labels(document.value.get("labels")), rest


def _labels(value: Value) -> tuple[str, ...]:
    """Labels from a YAML list or from one comma-separated string."""
    names = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else ()
    return tuple(filter(None, (one_line(str(name))[:100] for name in names)))[:MAX_LABELS]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise _too_large(str(path), path.stat().st_size)
            return content
    except FileNotFoundError as error:
        raise unreadable(f"{path} does not exist") from error
    except IsADirectoryError as error:
        raise unreadable(f"{path} is a directory", "Name the Markdown file that holds the issue") from error
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        raise unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def unreadable(message: str, hint: str = "") -> IssueError:
    """The error for an issue that cannot be read."""
    return IssueError(message, code=ExitCode.ISSUE_UNREADABLE, hint=hint)


def _too_large(name: str, size: int | None) -> IssueError:
    how_large = f"{size:,} bytes" if size and size > MAX_BYTES else f"more than {MAX_BYTES:,} bytes"
    return IssueError(
        f"{name} is {how_large}; an issue has at most {MAX_BYTES:,}",
        code=ExitCode.ISSUE_TOO_LARGE,
        hint="Keep the description and cut logs to the lines that matter",
    )


def _decode(content: bytes, name: str) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _binary(f"{name} is UTF-16 text", "save it as UTF-8")
    content = content.removeprefix(codecs.BOM_UTF8)
    if (nul := content.find(b"\0")) >= 0:
        raise _binary(f"{name} is binary: byte {nul + 1:,} is NUL", "an issue is Markdown text")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _binary(
            f"{name} is not UTF-8 text: byte {error.start + 1:,} cannot be decoded", "save it as UTF-8"
        ) from None


def _binary(message: str, hint: str) -> IssueError:
    return IssueError(message, code=ExitCode.ISSUE_BINARY, hint=hint)
