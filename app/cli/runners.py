"""`agent-fix runners`: lists coding agents, whether they work here, newer versions, and failures."""

import argparse
import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

from app.agent.external.recipe import NATIVE, AgentRecipe, recipes, unknown_runner_error
from app.agent.external.selftest import SelftestResult
from app.config.settings import Settings, python_interpreter, read_settings
from app.core.errors import ExitCode
from app.core.record import Record
from app.pipeline.wiring.external_agent import find_python, python_downloads, selftest_runner
from app.sandbox.setup.package_clients import ask
from app.sandbox.setup.plan import find_tool_for_sandbox

TIMEOUT = 60.0
"""Seconds for a package client: it asks an index over the network."""
OURS = "our own loop, with any model"
UNKNOWN = "?"
_PIP = re.compile(r"\S+ \(([\w.!+-]+)\)")


class RunnerRow(Record):
    """One runner. `lacks` is empty if it can work here, `newest` if nobody asked for it, `tested_version` without a
    selftest."""

    name: str
    title: str
    version: str = ""
    lacks: str = ""
    newest: str = ""
    tested_version: str = ""
    selftest: SelftestResult | None = None

    @property
    def behind(self) -> bool:
        return bool(self.newest) and self.newest != self.version

    @property
    def is_ok(self) -> bool:
        """True for the newest version, if it was tested and works."""
        return not self.behind and not self.lacks and (self.selftest is None or self.selftest.passed)


def runners_command(arguments: argparse.Namespace) -> int:
    """`check` ends with 1 if something is newer upstream, broken or untested: for a scheduled workflow."""
    settings = read_settings(arguments.state)
    known = recipes(settings.runners)
    if arguments.action == "check":
        chosen = [_chosen(name, known) for name in arguments.names] or list(known.values())
        lines = asyncio.run(RunnerCheck(settings, arguments).of(chosen))
        code = ExitCode.OK if all(line.is_ok for line in lines) else ExitCode.INTERNAL
    else:
        lines = [RunnerRow(name=NATIVE, title=OURS), *(_line(recipe, settings) for recipe in known.values())]
        _print(lines, arguments)
        code = ExitCode.OK
    if arguments.json:
        print(json.dumps([line.model_dump() for line in lines], indent=2))
    return code


def _chosen(name: str, known: dict[str, AgentRecipe]) -> AgentRecipe:
    if name not in known:
        raise unknown_runner_error(name, known)
    return known[name]


class RunnerCheck:
    """One look at what is upstream, and at what works: the pinned versions, or the newest."""

    def __init__(self, settings: Settings, arguments: argparse.Namespace) -> None:
        self._settings = settings
        self._arguments = arguments

    async def of(self, chosen: Sequence[AgentRecipe]) -> list[RunnerRow]:
        """Queries versions in parallel; tests one by one and reports each result."""
        found = await asyncio.gather(*(self._newest(recipe) for recipe in chosen))
        lines = []
        for recipe, version in zip(chosen, found, strict=True):
            line = _line(recipe, self._settings).model_copy(update={"newest": version})
            lines.append(await self._with_selftest(recipe, line))
            _print(lines[-1:], self._arguments)
        return lines

    async def _with_selftest(self, recipe: AgentRecipe, line: RunnerRow) -> RunnerRow:
        if self._arguments.versions or line.lacks:
            return line
        other = self._arguments.newest and line.newest not in ("", UNKNOWN)
        tested_recipe = recipe.at(line.newest) if other else recipe
        result = await selftest_runner(tested_recipe, self._settings)
        return line.model_copy(update={"tested_version": tested_recipe.version, "selftest": result})

    async def _newest(self, recipe: AgentRecipe) -> str:
        ours = python_interpreter()
        found = await asyncio.to_thread(find_python, recipe, self._settings, ours)
        return await newest(recipe, found or ours)


async def newest(recipe: AgentRecipe, python: Path) -> str:
    """The newest version according to this machine's package client; `?` if that gives no answer."""
    if recipe.client == "npm":
        output = await ask(["npm", "view", recipe.package, "version"], seconds=TIMEOUT)
        return (output or "").strip() or UNKNOWN
    output = await ask([str(python), "-I", "-m", "pip", "index", "versions", recipe.package], seconds=TIMEOUT)
    found = _PIP.match(output or "")  # as JSON only the newest of pips tell it
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
    state = f"needs {line.lacks}, which is not installed here" if line.lacks else _selftest_outcome(line)
    if line.newest == UNKNOWN:
        newer = "; could not look for a newer version"
    else:
        newer = f"; newest is {line.newest}" if line.behind else "; the newest" if line.newest else ""
    return f"{line.name:<16} {line.version:<10} {line.title:<32} {state}{newer}"


def _selftest_outcome(line: RunnerRow) -> str:
    result = line.selftest
    if result is None:
        return "usable here"
    version = "" if line.tested_version == line.version else f"{line.tested_version} "
    if result.passed:
        return f"{version}works ({result.calls} calls, {result.seconds:.0f} s)"
    return f"{version}BROKEN: it never {result.stopped_at}. {result.reason}"
