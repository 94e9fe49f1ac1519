"""Reads and writes files inside the sandbox by commands there: the host never opens a path that the model chose."""

from dataclasses import dataclass
from pathlib import PurePosixPath

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
