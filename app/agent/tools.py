"""Carries out the tools inside the sandbox; every result is a text for the model."""

import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from app.agent import files, search
from app.agent.actions import Action, BashAction, EditAction, SearchAction, ViewAction, WriteAction
from app.agent.edit_matching import EditError, numbered, replace
from app.agent.files import FileError, display_path
from app.agent.observation import headline, observe
from app.agent.step import Outcome
from app.core.job import Progress
from app.core.tracing import span
from app.repo.syntax import first_error
from app.sandbox.base import Sandbox

OUTPUTS = "/tmp/output"  # noqa: S108  # inside the sandbox, whose /tmp is its own
_BOM = b"\xef\xbb\xbf"
_AROUND = 3
_MAX_CHANGED_LINES = 60
_PAGERS = {"PAGER": "cat", "GIT_PAGER": "cat", "MANPAGER": "cat"}
_SHELL = 'command -v bash > /dev/null && exec bash -c "$1"; exec sh -c "$1"'
_VOLATILE = re.compile(r"\b\d+(\.\d+)?\s?(ms|s|sec|seconds?)\b|0x[0-9a-f]+|\d\d:\d\d:\d\d(\.\d+)?|\d+-\d+\.txt")


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

    def __init__(self, sandbox: Sandbox, progress: Progress) -> None:
        self._sandbox = sandbox
        self._progress = progress
        self._tools: dict[type[Action], Callable[[Any, ToolLimits], Awaitable[ToolResult]]] = {
            BashAction: self._bash,
            ViewAction: self._view,
            EditAction: self._edit,
            WriteAction: self._write,
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
                await files.write(self._sandbox, kept_in, seen.whole.encode())
            except FileError as error:
                text += f"\n(the whole output could not be kept: {error})"
        return ToolResult("ok", text, head)

    async def _view(self, action: ViewAction, allowance: ToolLimits) -> ToolResult:
        text, summary = await files.view(self._sandbox, action, allowance.characters)
        return ToolResult("ok", text, summary)

    async def _search(self, action: SearchAction, allowance: ToolLimits) -> ToolResult:
        text, summary = await search.search(self._sandbox, action.query, max(allowance.seconds, 1.0))
        return ToolResult("ok", text, summary)

    async def _edit(self, action: EditAction, allowance: ToolLimits) -> ToolResult:
        before = await files.read(self._sandbox, action.path)
        text, bom, whole = _decode(before, action.path)
        if not whole and not set(action.new_text) <= set(text) | set(map(chr, range(128))) | {"\ufffd"}:
            raise EditError(f"{display_path(action.path)} is not UTF-8: only ASCII text can be put into it by edit.")
        edited = replace(text, action.old_text.removeprefix("\ufeff"), action.new_text)
        if "\ufffd" in edited.text and "\ufffd" not in text:
            raise EditError("new_text has \ufffd where the file has a byte that is no text: leave such lines alone.")
        after = bom + edited.text.encode("utf-8", "surrogateescape")
        _refuse_broken(action.path, before, after)
        await files.write(self._sandbox, action.path, after)
        how = f" ({edited.how} overlooked)" if edited.how else ""
        span = _span(edited.first, edited.last)
        context = _context(edited.text, edited.first, edited.last)
        text = f"Edited {display_path(action.path)}, {span}{how}:\n{context}{_outside(action.path)}"
        return ToolResult("ok", text, f"{span} changed")

    async def _write(self, action: WriteAction, allowance: ToolLimits) -> ToolResult:
        before = await self._existing(action.path)
        after = _like(before, action.content.encode())
        if before == after:
            raise EditError(f"{display_path(action.path)} already has exactly this content.")
        note = _refuse_broken(action.path, before, after)
        await files.write(self._sandbox, action.path, after)
        lines = after.count(b"\n") + (not after.endswith(b"\n") and after != b"")
        verb = "Created" if before is None else "Replaced"
        return ToolResult(
            "ok", f"{verb} {display_path(action.path)}, {lines:,} lines.{note}{_outside(action.path)}", f"{lines} lines"
        )

    async def _existing(self, path: str) -> bytes | None:
        """A file's bytes, or None if there is nothing to compare with."""
        try:
            return await files.read(self._sandbox, path)
        except FileError as error:
            if error.directory:
                raise
            return None


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


def _refuse_broken(path: str, before: bytes | None, after: bytes) -> str:
    """Refuse a change after which a file no longer parses; a new file only gets a note."""
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


def _context(text: str, first: int, last: int) -> str:
    lines = text.replace("\r\n", "\n")
    if last - first < _MAX_CHANGED_LINES:
        return numbered(lines, first - _AROUND, last + _AROUND)
    half = _MAX_CHANGED_LINES // 2
    middle = f"(… {last - first + 1 - 2 * half} more changed lines)"
    return "\n".join(
        [numbered(lines, first - _AROUND, first + half - 1), middle, numbered(lines, last - half + 1, last + _AROUND)]
    )


def _span(first: int, last: int) -> str:
    if last < first:
        return f"lines removed at line {first}"
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _outside(path: str) -> str:
    return "" if files.inside(path) else "\n(It is outside /workspace: not part of the patch.)"
