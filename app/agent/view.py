"""The view tool: shows a file's lines with numbers as far as they fit, or a directory's names."""

from app.agent import files
from app.agent.actions import ViewAction
from app.agent.files import FileError, FileExcerpt, display_path
from app.sandbox.base import Sandbox

_MAX_LINE_LENGTH = 2_000
_MAX_NAMES = 300
_MAX_LINES = 5_000
_BOM = "\ufeff"


async def view(sandbox: Sandbox, action: ViewAction, limit: int) -> tuple[str, str]:
    """The text to show (at most about `limit` characters), and a line about it. Raises FileError."""
    end = action.end if action.end is not None and action.end > 0 else None
    if end is not None and end < action.start:
        raise FileError(f"end {end} is before start {action.start}.")
    count = _MAX_LINES if end is None else min(end - action.start + 1, _MAX_LINES)
    try:
        excerpt = await files.read_lines(sandbox, action.path, action.start, count, limit * 4)
    except FileError as error:
        if not error.directory:
            raise
        return _directory(await files.list_directory(sandbox, action.path), action.path, limit)
    return _file(excerpt, action, end, limit)


def _directory(names: list[str], path: str, limit: int) -> tuple[str, str]:
    name = display_path(path) if display_path(path) != "." else "/workspace"
    text = "\n".join(names[:_MAX_NAMES])[:limit]
    listed = text.count("\n") + 1 if text else 0
    more = f"\n(… and {len(names) - listed:,} more; view a directory inside it)" if listed < len(names) else ""
    return f"{name}, a directory:\n{text or '(empty)'}{more}", f"{len(names):,} names"


def _file(excerpt: FileExcerpt, action: ViewAction, end: int | None, limit: int) -> tuple[str, str]:
    name = display_path(action.path)
    content = excerpt.content
    if name.startswith("/proc/"):
        content = content.replace(b"\0", b"\n")
    if b"\0" in content[:8_192]:
        return f"{name} is a binary file of {excerpt.size:,} bytes.", "binary"
    if not content:
        return _nothing(name, excerpt, action.start)
    lines = content.decode("utf-8", "replace").removeprefix(_BOM).split("\n")
    if len(lines) > 1 and (excerpt.cut or lines[-1] == ""):
        lines.pop()
    text, last = _numbered(lines, action.start, limit)
    span = f"lines {action.start}-{last} of {excerpt.lines}"
    rest = f"\n(… go on with start={last + 1})" if last < min(end or excerpt.lines, excerpt.lines) else ""
    return f"{name}, {span}{_marks(content)}:\n{text}{rest}", span


def _nothing(name: str, excerpt: FileExcerpt, start: int) -> tuple[str, str]:
    if excerpt.size == 0:
        return f"{name} is an empty file.", "empty"
    raise FileError(f"{name} has only {excerpt.lines:,} lines; line {start:,} is behind its end.")


def _numbered(lines: list[str], start: int, limit: int) -> tuple[str, int]:
    """Whole lines while they fit, at least one, and the number of the last."""
    width = len(str(start + len(lines) - 1))
    kept: list[str] = []
    space = limit
    for number, line in enumerate(lines, start=start):
        row = f"{number:>{width}}\t{_shorten(line.removesuffix(chr(13)))}"
        space -= len(row) + 1
        if space < 0 and kept:
            break
        kept.append(row)
    return "\n".join(kept), start + len(kept) - 1


def _shorten(line: str) -> str:
    return line if len(line) <= _MAX_LINE_LENGTH else f"{line[:_MAX_LINE_LENGTH]} (… this line goes on)"


def _marks(content: bytes) -> str:
    """Unusual properties of a file, as in an editor's status line."""
    marks = []
    if b"\r\n" in content:
        marks.append("CRLF line ends")
    if content.startswith(_BOM.encode()):
        marks.append("byte order mark")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        if error.end < len(content) - 3:  # a cut excerpt may end in the middle of a character
            marks.append("not UTF-8")
    return f" ({', '.join(marks)})" if marks else ""
