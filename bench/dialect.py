"""One move of a script in the words of whoever asks: a call of a tool that the request offers, found by its shape."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from bench.script import Act, Bash, Edit, Finish, Move, View

Call = tuple[str, dict[str, Any]]
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""How a harness that has nothing but a shell is told of the end (mini-swe-agent's word for it)."""
_FILLED = {"security_risk": "LOW"}


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools of a request by name, each with its JSON schema."""

    tools: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "OfferedTools":
        functions = [tool["function"] for tool in body.get("tools") or []]
        return cls({function["name"]: function["parameters"] for function in functions})

    def having(self, *names: str, without: Sequence[str] = ()) -> str | None:
        """The first tool that takes all of these arguments."""
        for tool, schema in self.tools.items():
            takes = schema.get("properties", {})
            if all(name in takes for name in names) and not any(name in takes for name in without):
                return tool
        return None


def call(move: Move, offered: OfferedTools, root: PurePosixPath) -> tuple[str, str]:
    """Name and arguments. `root` is where the harness keeps the checkout, for tools that want absolute paths."""
    name, arguments = _native(move.act, offered, root) or _by_shell(move.act, offered)
    schema = offered.tools[name]
    for wanted in schema.get("required", []):
        if wanted not in arguments:
            arguments[wanted] = _FILLED.get(wanted) or move.report
    return name, json.dumps(arguments, ensure_ascii=False)


def _native(act: Act, offered: OfferedTools, root: PurePosixPath) -> Call | None:
    """The tool that was made for it, or None where there is none."""
    if isinstance(act, Finish):
        return _finish(act, offered)
    if isinstance(act, View):
        return _view(act, offered, root)
    if isinstance(act, Edit):
        return _edit(act, offered, root)
    return None


def _finish(act: Finish, offered: OfferedTools) -> Call | None:
    if tool := offered.having("summary", "reproduction"):
        return tool, {"summary": act.summary, "reproduction": act.reproduction}
    if "finish" in offered.tools:
        return "finish", {"message": act.summary}
    return None


def _view(act: View, offered: OfferedTools, root: PurePosixPath) -> Call | None:
    if tool := offered.having("path", "start", "end"):
        lines = {"start": act.start, "end": act.end} if act.start else {}
        return tool, {"path": act.path, **lines}
    if tool := offered.having("command", "path", "view_range"):
        lines_of = {"view_range": [act.start, act.end]} if act.start else {}
        return tool, {"command": "view", "path": str(root / act.path), **lines_of}
    return None


def _edit(act: Edit, offered: OfferedTools, root: PurePosixPath) -> Call | None:
    if tool := offered.having("path", "old_text", "new_text"):
        return tool, {"path": act.path, "old_text": act.old, "new_text": act.new}
    if tool := offered.having("command", "path", "old_str", "new_str"):
        place = {"command": "str_replace", "path": str(root / act.path)}
        return tool, {**place, "old_str": act.old, "new_str": act.new}
    return None


def _by_shell(act: Act, offered: OfferedTools) -> Call:
    tool = offered.having("command", without=("path", "commands"))
    if tool is None:
        raise ValueError(f"none of {', '.join(offered.tools)} takes a command")
    return tool, {"command": shell(act)}


def shell(act: Act) -> str:
    """The shortest that a model would write where it has a shell and nothing else."""
    if isinstance(act, Bash):
        return act.command
    if isinstance(act, Finish):
        return SUBMIT
    path = shlex.quote(act.path)
    if isinstance(act, View):
        return f"nl -ba {path} | sed -n '{act.start},{act.end}p'" if act.start else f"cat -n {path}"
    text = "\n".join(act.after)
    gone = f"{act.line},{act.line + len(act.before) - 1}d"
    if not act.after:
        return f"sed -i '{gone}' {path}"
    remove = f" -e '{gone}'" if act.before else ""
    return f"sed -i -e '{act.line - 1}r /dev/stdin'{remove} {path} <<'EOF'\n{text}\nEOF"
