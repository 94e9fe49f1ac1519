"""Files inside the sandbox, read, written and shown by commands there: the host never opens a path of the model's."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from app.agent.actions import ViewAction
from app.sandbox.base import WORKSPACE, CompletedCommand, Sandbox

LARGEST = 2_000_000
"""Bytes of a file that can be edited or viewed."""
_SECONDS = 30.0

_MISSING, _DIRECTORY, _SPECIAL, _UNREADABLE = 44, 45, 46, 47
_LOOK = """
p=$1
[ -e "$p" ] || exit 44
[ -d "$p" ] && exit 45
[ -f "$p" ] || exit 46
[ -r "$p" ] || exit 47
"""
# Uses few programs, because starting one takes longer than its work. For a file: line feeds and bytes, last byte,
# lines.
_READ = _LOOK + 'exec head -c "$2" -- "$p"\n'
_LINES = (
    _LOOK
    + """
wc -lc < "$p"
tail -c 1 -- "$p"
tail -n "+$2" -- "$p" | head -n "$3" | head -c "$4"
"""
)
_LIST = """
cd -- "$1" || exit 47
find . -mindepth 1 -maxdepth 2 \\( -name .git -o -name node_modules -o -name __pycache__ -o -name .venv \\) -prune \
    -exec printf '%s/ (not listed)\\0' {} + -o -type d -exec printf '%s/\\0' {} + -o -print0
"""
# Written to a temporary file and renamed, so that a crash leaves the old or the new file. For a link the target is
# written, the mode is kept, and `mv` never moves *into* a directory.
_WRITE = """
set -e
p=$1
[ -L "$p" ] && p=$(readlink -f -- "$p")
[ -d "$p" ] && exit 45
[ ! -e "$p" ] || [ -f "$p" ] || exit 46
d=${p%/*}/
[ -d "$d" ] || mkdir -p -- "$d"
t=$(mktemp -- "${d}.write.XXXXXXXX")
trap 'rm -f -- "$t"' EXIT
cat > "$t"
if [ -e "$p" ]; then chmod --reference="$p" -- "$t"; else chmod 644 -- "$t"; fi
mv -f -- "$t" "$p"
trap - EXIT
"""


class FileError(Exception):
    """The file cannot be read or written; the message is for the model."""

    def __init__(self, message: str, *, missing: bool = False, directory: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        self.directory = directory


@dataclass(frozen=True, slots=True)
class FileExcerpt:
    """Lines of a file (`cut`: not all requested ones), and the file's total lines and bytes."""

    content: bytes
    lines: int
    size: int
    cut: bool


def workspace_path(path: str) -> str:
    """The path for commands in /workspace: relative if inside, and never like an option."""
    path = path.strip()
    pure = PurePosixPath(path)
    if pure.is_relative_to(WORKSPACE) and ".." not in pure.parts:
        pure = pure.relative_to(WORKSPACE)
    return f"./{pure}" if not pure.is_absolute() else str(pure)


def display_path(path: str) -> str:
    """The path for people and the model."""
    return workspace_path(path).removeprefix("./")


def inside(path: str) -> bool:
    """True if a file at this path can be part of the patch."""
    at = PurePosixPath(workspace_path(path))
    return not at.is_absolute() and ".." not in at.parts


async def read(sandbox: Sandbox, path: str) -> bytes:
    """All bytes of a file. Raises FileError."""
    done = await _sh(sandbox, _READ, workspace_path(path), str(LARGEST + 1))
    _check(done, path)
    if len(done.output) > LARGEST:
        raise FileError(f"{display_path(path)} is larger than {LARGEST:,} bytes; use bash on it.")
    return done.output


async def read_lines(sandbox: Sandbox, path: str, start: int, count: int, most: int) -> FileExcerpt:
    """`count` lines from line `start` (1-based), at most `most` bytes."""
    done = await _sh(sandbox, _LINES, workspace_path(path), str(start), str(count), str(most))
    _check(done, path)
    sizes, _, content = done.output.partition(b"\n")
    feeds, size = (int(number) for number in sizes.split()[:2])
    last, content = content[:1], content[1:]
    return FileExcerpt(content, feeds + (last not in {b"", b"\n"}), size, cut=len(content) >= most)


async def list_directory(sandbox: Sandbox, path: str) -> list[str]:
    """Names two levels deep, directories with a slash; large generated directories are named but not entered."""
    done = await _sh(sandbox, _LIST, workspace_path(path))
    _check(done, path)
    names = done.output.decode("utf-8", "replace").split("\0")[:-1]
    return sorted(name.removeprefix("./") for name in names)


async def write(sandbox: Sandbox, path: str, content: bytes) -> None:
    """Create or replace a file atomically; keeps its mode and creates missing directories."""
    _check(await _sh(sandbox, _WRITE, workspace_path(path), stdin=content), path)


async def _sh(sandbox: Sandbox, script: str, *arguments: str, stdin: bytes = b"") -> CompletedCommand:
    argv = ["sh", "-c", script, "sh", *arguments]
    return await sandbox.exec(argv, timeout=_SECONDS, stdin=stdin, separate_stderr=True)


def _check(done: CompletedCommand, path: str) -> None:
    name = display_path(path)
    if done.timed_out:
        raise FileError(f"{name} could not be reached within {_SECONDS:g} s.")
    reasons = {
        _MISSING: f"There is no file {name}.",
        _DIRECTORY: f"{name} is a directory.",
        _SPECIAL: f"{name} is no regular file.",
        _UNREADABLE: f"{name} cannot be read: permission denied.",
    }
    if done.exit_code in reasons:
        code = done.exit_code
        raise FileError(reasons[code], missing=code == _MISSING, directory=code == _DIRECTORY)
    if done.exit_code:
        message = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FileError(f"{name}: {message[:300] or f'exit {done.exit_code}'}")


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
        excerpt = await read_lines(sandbox, action.path, action.start, count, limit * 4)
    except FileError as error:
        if not error.directory:
            raise
        return _directory(await list_directory(sandbox, action.path), action.path, limit)
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
