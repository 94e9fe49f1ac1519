"""`agent-fix runners`: lists coding agents, whether this machine has what they need, and newer versions."""

import argparse
import asyncio
import json
import re
from collections.abc import Sequence

from app.agent.external.recipe import NATIVE, AgentRecipe, recipes, unknown_runner_error
from app.config.settings import Settings, python_interpreter, read_settings
from app.core.errors import ExitCode
from app.core.record import Record
from app.pipeline.wiring.external_agent import find_python, python_downloads
from app.sandbox.setup.package_clients import ask
from app.sandbox.setup.plan import find_tool_for_sandbox

TIMEOUT = 60.0
"""Seconds for a package client: it asks an index over the network."""
OURS = "our own loop, with any model"
UNKNOWN = "?"
_PIP = re.compile(r"\S+ \(([\w.!+-]+)\)")


class RunnerRow(Record):
    """One runner. `lacks` is empty if it can work here, `newest` if nobody asked for it."""

    name: str
    title: str
    version: str = ""
    lacks: str = ""
    newest: str = ""

    @property
    def behind(self) -> bool:
        return bool(self.newest) and self.newest != self.version

    @property
    def is_ok(self) -> bool:
        """True for the newest version, if this machine has what it needs."""
        return not self.behind and not self.lacks


def runners_command(arguments: argparse.Namespace) -> int:
    """`check` ends with 1 if something is newer upstream or cannot work here: for a scheduled workflow."""
    settings = read_settings(arguments.state)
    known = recipes(settings.runners)
    if arguments.action == "check":
        if unknown := next((name for name in arguments.names if name not in known), None):
            raise unknown_runner_error(unknown, known)
        chosen = [known[name] for name in arguments.names] or list(known.values())
        lines = asyncio.run(check_runners(chosen, settings, arguments))
        code = ExitCode.OK if all(line.is_ok for line in lines) else ExitCode.INTERNAL
    else:
        lines = [RunnerRow(name=NATIVE, title=OURS), *(_line(recipe, settings) for recipe in known.values())]
        _print(lines, arguments)
        code = ExitCode.OK
    if arguments.json:
        print(json.dumps([line.model_dump() for line in lines], indent=2))
    return code


async def check_runners(
    chosen: Sequence[AgentRecipe], settings: Settings, arguments: argparse.Namespace
) -> list[RunnerRow]:
    """Look up versions in parallel."""
    found = await asyncio.gather(*(newest(recipe, settings) for recipe in chosen))
    rows = []
    for recipe, version in zip(chosen, found, strict=True):
        row = _line(recipe, settings).model_copy(update={"newest": version})
        rows.append(row)
        _print([row], arguments)
    return rows


async def newest(recipe: AgentRecipe, settings: Settings) -> str:
    """The newest version according to this machine's package client; `?` if that gives no answer."""
    if recipe.client == "npm":
        output = await ask(["npm", "view", recipe.package, "version"], seconds=TIMEOUT)
        return (output or "").strip() or UNKNOWN
    ours = python_interpreter()
    python = await asyncio.to_thread(find_python, recipe, settings, ours) or ours
    output = await ask([str(python), "-I", "-m", "pip", "index", "versions", recipe.package], seconds=TIMEOUT)
    found = _PIP.match(output or "")  # only recent versions of pip print JSON
    return found[1] if found else UNKNOWN


def _line(recipe: AgentRecipe, settings: Settings) -> RunnerRow:
    return RunnerRow(
        name=recipe.name, title=recipe.title, version=recipe.version, lacks=missing_tools(recipe, settings)
    )


def missing_tools(recipe: AgentRecipe, settings: Settings) -> str:
    """What this machine lacks for the runner; checked without running it."""
    if recipe.client == "npm":
        return ", ".join(tool for tool in ("node", "npm") if find_tool_for_sandbox(tool) is None)
    if find_python(recipe, settings, python_interpreter()) is not None:
        return ""
    return "" if python_downloads(settings.environment) is not None else f"Python {recipe.least_python} or newer"


def _print(lines: Sequence[RunnerRow], arguments: argparse.Namespace) -> None:
    if not arguments.json:
        print("\n".join(map(_describe, lines)), flush=True)


def _describe(line: RunnerRow) -> str:
    state = f"needs {line.lacks}, which is not installed here" if line.lacks else "usable here"
    if line.newest == UNKNOWN:
        newer = "; could not look for a newer version"
    else:
        newer = f"; newest is {line.newest}" if line.behind else "; the newest" if line.newest else ""
    return f"{line.name:<16} {line.version:<10} {line.title:<32} {state}{newer}"
