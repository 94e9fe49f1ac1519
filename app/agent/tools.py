"""Carries out the tools inside the sandbox; every result is a text for the model.

Files are read, written and shown by commands in the sandbox: the host never opens a path of the model's.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from app.agent import search
from app.agent.actions import Action, BashAction, EditAction, RestoreAction, SearchAction, ViewAction, WriteAction
from app.agent.edit_matching import EditError, numbered, replace
from app.agent.observation import OVERSHOOT, headline, observe
from app.agent.step import Outcome
from app.core.job import Progress
from app.core.tracing import span
from app.repo.syntax import first_error
from app.sandbox.base import WORKSPACE, CompletedCommand, Sandbox
from app.sandbox.changes import Baseline, restore_path

OUTPUTS = "/tmp/output"  # noqa: S108  # inside the sandbox, whose /tmp is its own
_BOM = b"\xef\xbb\xbf"
_AROUND = 3
_AROUND_EDIT = 1
"""Lines shown on each side of an edit."""
_MAX_SENT_LINES, _MAX_CHANGED_LINES = 10, 60
"""Changed lines that are shown of an edit: where they are as the model sent them, and where not."""
_PAGERS = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
_SHELL = 'command -v bash > /dev/null && exec bash -c "$1"; exec sh -c "$1"'
_VOLATILE = re.compile(r"\b\d+(\.\d+)?\s?(ms|s|sec|seconds?)\b|0x[0-9a-f]+|\d\d:\d\d:\d\d(\.\d+)?|\d+-\d+\.txt")
LARGEST = 2_000_000
"""Bytes of a file that can be edited or viewed."""
_FILE_SECONDS = 30.0
_MAX_RESTORED = 20

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
_LIST = f"""
cd -- "$1" || exit 47
find . -mindepth 1 -maxdepth 2 {search.PRUNE_GENERATED} \
    -exec printf '%s/ (not listed)\\0' {{}} + -o -type d -exec printf '%s/\\0' {{}} + -o -print0
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


class FileExcerpt(NamedTuple):
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


async def read_file(sandbox: Sandbox, path: str) -> bytes:
    """All bytes of a file. Raises FileError."""
    content = await _read_beginning(sandbox, path)
    if len(content) > LARGEST:
        raise FileError(f"{display_path(path)} is larger than {LARGEST:,} bytes; use bash on it.")
    return content


async def _read_beginning(sandbox: Sandbox, path: str) -> bytes:
    """At most LARGEST + 1 bytes. Raises FileError."""
    done = await _sh(sandbox, _READ, workspace_path(path), str(LARGEST + 1))
    _check(done, path)
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


async def write_file(sandbox: Sandbox, path: str, content: bytes) -> None:
    """Create or replace a file atomically; keeps its mode and creates missing directories."""
    _check(await _sh(sandbox, _WRITE, workspace_path(path), stdin=content), path)


async def _sh(sandbox: Sandbox, script: str, *arguments: str, stdin: bytes = b"") -> CompletedCommand:
    argv = ["sh", "-c", script, "sh", *arguments]
    return await sandbox.exec(argv, timeout=_FILE_SECONDS, stdin=stdin, separate_stderr=True)


def _check(done: CompletedCommand, path: str) -> None:
    name = display_path(path)
    if done.timed_out:
        raise FileError(f"{name} could not be reached within {_FILE_SECONDS:g} s.")
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


async def view_file(sandbox: Sandbox, action: ViewAction, limit: int) -> tuple[str, str]:
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
    return _shown_lines(excerpt, action, end, limit)


def _directory(names: list[str], path: str, limit: int) -> tuple[str, str]:
    name = display_path(path) if display_path(path) != "." else "/workspace"
    text = "\n".join(names[:_MAX_NAMES])[:limit]
    listed = text.count("\n") + 1 if text else 0
    more = f"\n(… and {len(names) - listed:,} more; view a directory inside it)" if listed < len(names) else ""
    return f"{name}, a directory:\n{text or '(empty)'}{more}", f"{len(names):,} names"


def _shown_lines(excerpt: FileExcerpt, action: ViewAction, end: int | None, limit: int) -> tuple[str, str]:
    name = display_path(action.path)
    content = excerpt.content
    if name.startswith("/proc/"):
        content = content.replace(b"\0", b"\n")
    if b"\0" in content[:8_192]:
        return f"{name} is a binary file of {excerpt.size:,} bytes.", "binary"
    if excerpt.size == 0:
        return f"{name} is an empty file.", "empty"
    if not content:
        raise FileError(f"{name} has only {excerpt.lines:,} lines; line {action.start:,} is behind its end.")
    lines = content.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    if len(lines) > 1 and (excerpt.cut or lines[-1] == ""):
        lines.pop()
    text, last = _numbered(lines, action.start, limit)
    span = f"lines {action.start}-{last} of {excerpt.lines}"
    rest = f"\n(… go on with start={last + 1})" if last < min(end or excerpt.lines, excerpt.lines) else ""
    return f"{name}, {span}{_marks(content)}:\n{text}{rest}", span


def _numbered(lines: list[str], start: int, limit: int) -> tuple[str, int]:
    """Whole lines while they fit, at least one, and the number of the last."""
    width = len(str(start + len(lines) - 1))
    kept: list[str] = []
    space = limit
    for number, line in enumerate(lines, start=start):
        text = line.removesuffix("\r")
        if len(text) > _MAX_LINE_LENGTH:
            text = f"{text[:_MAX_LINE_LENGTH]} (… this line goes on)"
        row = f"{number:>{width}}\t{text}"
        space -= len(row) + 1
        if space < 0 and kept:
            break
        kept.append(row)
    return "\n".join(kept), start + len(kept) - 1


def _marks(content: bytes) -> str:
    """Unusual properties of a file, as in an editor's status line."""
    marks = []
    if b"\r\n" in content:
        marks.append("CRLF line ends")
    if content.startswith(_BOM):
        marks.append("byte order mark")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        if error.end < len(content) - 3:  # a cut excerpt may end in the middle of a character
            marks.append("not UTF-8")
    return f" ({', '.join(marks)})" if marks else ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of an action: for the model, and in one line for people."""

    outcome: Outcome
    text: str
    summary: str

    @property
    def fingerprint(self) -> str:
        """Equal for equal results; ignores durations, addresses and clock times."""
        stable = _VOLATILE.sub("", f"{self.outcome}\n{self.text}")
        return hashlib.sha256(stable.encode("utf-8", "replace")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Limits of one action: characters of observation, seconds, and the name for its whole output."""

    characters: int
    seconds: float
    label: str


class AgentTools:
    """Runs actions in one sandbox. A failing action is a result; only a lost sandbox raises (SandboxError)."""

    def __init__(self, sandbox: Sandbox, progress: Progress, base: Baseline | None = None) -> None:
        """`base` is what `restore` restores."""
        self._sandbox = sandbox
        self._base = base
        self._progress = progress
        self._tools: dict[type[Action], Callable[[Any, ToolLimits], Awaitable[ToolResult]]] = {
            BashAction: self._bash,
            ViewAction: self._view,
            EditAction: self._edit,
            WriteAction: self._write,
            RestoreAction: self._restore,
            SearchAction: self._search,
        }

    async def execute(self, action: Action, allowance: ToolLimits) -> ToolResult:
        try:
            about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
            with span(f"execute_tool {action.tool}", {**about, "gen_ai.tool.name": action.tool}) as traced:
                result = await self._tools[type(action)](action, allowance)
                traced.add({"agent_fix.outcome": result.outcome})
                return result
        except (EditError, FileError, search.SearchError) as error:
            reason = str(error)
            return ToolResult("failed", reason, reason.partition("\n")[0])

    async def _bash(self, action: BashAction, allowance: ToolLimits) -> ToolResult:
        seconds = min(action.timeout, max(allowance.seconds, 1.0))
        done = await self._sandbox.exec(
            ["sh", "-c", _SHELL, "sh", action.command],
            timeout=seconds,
            env=_PAGERS,
            on_output=lambda chunk: self._progress.report("output", chunk.decode("utf-8", "replace")),
        )
        head = headline(done, seconds)
        kept_in = f"{OUTPUTS}/{allowance.label}.txt"
        seen = observe(done.output, limit=allowance.characters, kept_in=kept_in, dropped=done.dropped)
        text = f"{head}\n{seen.text}"
        if seen.whole is not None:
            try:
                await write_file(self._sandbox, kept_in, seen.whole.encode())
            except FileError as error:
                text += f"\n(the whole output could not be kept: {error})"
        return ToolResult("ok", text, head)

    async def _view(self, action: ViewAction, allowance: ToolLimits) -> ToolResult:
        text, summary = await view_file(self._sandbox, action, allowance.characters)
        return ToolResult("ok", text, summary)

    async def _search(self, action: SearchAction, allowance: ToolLimits) -> ToolResult:
        text, summary = await search.search(self._sandbox, action.query, max(allowance.seconds, 1.0))
        return ToolResult("ok", text, summary)

    async def _edit(self, action: EditAction, allowance: ToolLimits) -> ToolResult:
        before = await read_file(self._sandbox, action.path)
        text, bom, whole = _decode(before, action.path)
        if not whole and not set(action.new_text) <= set(text) | set(map(chr, range(128))) | {"\ufffd"}:
            raise EditError(f"{display_path(action.path)} is not UTF-8: only ASCII text can be put into it by edit.")
        edited = replace(text, action.old_text.removeprefix("\ufeff"), action.new_text)
        if "\ufffd" in edited.text and "\ufffd" not in text:
            raise EditError("new_text has \ufffd where the file has a byte that is no text: leave such lines alone.")
        after = bom + edited.text.encode("utf-8", "surrogateescape")
        _syntax_note(action.path, before, after)
        await write_file(self._sandbox, action.path, after)
        how = f" ({edited.how} overlooked)" if edited.how else ""
        if edited.last < edited.first:
            changed = f"lines removed at line {edited.first}"
        else:
            several = edited.first != edited.last
            changed = f"lines {edited.first}-{edited.last}" if several else f"line {edited.first}"
        context = _context(edited.text, edited.first, edited.last, _MAX_CHANGED_LINES if how else _MAX_SENT_LINES)
        text = f"Edited {display_path(action.path)}, {changed}{how}:\n{context}{_outside(action.path)}"
        return ToolResult("ok", text, f"{changed} changed")

    async def _write(self, action: WriteAction, allowance: ToolLimits) -> ToolResult:
        before: bytes | None = None
        try:
            before = await _read_beginning(self._sandbox, action.path)
        except FileError as error:
            if not error.missing:
                raise
        after = _like(before, action.content.encode())
        if before == after:
            raise EditError(f"{display_path(action.path)} already has exactly this content.")
        note = _syntax_note(action.path, before, after)
        await write_file(self._sandbox, action.path, after)
        lines = after.count(b"\n") + (not after.endswith(b"\n") and after != b"")
        verb = "Created" if before is None else "Replaced"
        return ToolResult(
            "ok", f"{verb} {display_path(action.path)}, {lines:,} lines.{note}{_outside(action.path)}", f"{lines} lines"
        )

    async def _restore(self, action: RestoreAction, _allowance: ToolLimits) -> ToolResult:
        name = display_path(action.path)
        if self._base is None or not inside(action.path):
            raise FileError(f"{name} is not in /workspace, so there is nothing to restore.")
        paths = await restore_path(self._sandbox, self._base, name)
        if not paths:
            raise FileError(f"{name} has no changes that count: it is as before, or git ignores it.")
        shown = ", ".join(paths[:_MAX_RESTORED])
        more = f" and {len(paths) - _MAX_RESTORED:,} more" if len(paths) > _MAX_RESTORED else ""
        return ToolResult("ok", f"As before your work: {shown}{more}.", f"{len(paths):,} restored")


def _decode(content: bytes, path: str) -> tuple[str, bytes, bool]:
    """Text and byte order mark of a file, and whether all of it is UTF-8; other bytes are restored on writing."""
    if b"\0" in content[:8_192]:
        raise EditError(f"{display_path(path)} is a binary file; use bash on it.")
    bom = _BOM if content.startswith(_BOM) else b""
    text = content[len(bom) :].decode("utf-8", "surrogateescape")
    return text, bom, text.isascii() or not any("\udc80" <= character <= "\udcff" for character in set(text))


def _like(before: bytes | None, content: bytes) -> bytes:
    """New content with the line ends and byte order mark of the file it replaces."""
    if before is None:
        return content
    ends = before.count(b"\n")
    if ends and ends == before.count(b"\r\n"):
        content = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if before.startswith(_BOM) and not content.startswith(_BOM):
        content = _BOM + content
    return content


def _syntax_note(path: str, before: bytes | None, after: bytes) -> str:
    """Of a new file that does not parse, a note. Raises EditError if the file parsed before."""
    problem = first_error(display_path(path), after)
    if problem is None:
        return ""
    lines = numbered(after.decode("utf-8", "replace"), problem.line - _AROUND, problem.line + _AROUND)
    if before is not None and first_error(display_path(path), before) is None:
        raise EditError(
            f"Not done: {display_path(path)} parses now and would not afterwards. Line {problem.line}: {problem.text}. "
            f"It would read:\n{lines}\nThe file is unchanged."
        )
    return f"\nIt does not parse. Line {problem.line}: {problem.text}\n{lines}"


def _context(text: str, first: int, last: int, most: int) -> str:
    lines = text.replace("\r\n", "\n")
    if last - first < most * OVERSHOOT:
        return numbered(lines, first - _AROUND_EDIT, last + _AROUND_EDIT)
    half = most // 2
    middle = f"(… {last - first + 1 - 2 * half} more changed lines)"
    return "\n".join(
        [
            numbered(lines, first - _AROUND_EDIT, first + half - 1),
            middle,
            numbered(lines, last - half + 1, last + _AROUND_EDIT),
        ]
    )


def _outside(path: str) -> str:
    return "" if inside(path) else "\n(It is outside /workspace: not part of the patch.)"
