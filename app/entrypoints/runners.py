"""`agent-fix runners`: which coding agents there are, which can work on this machine, and what is newer upstream."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from app.errors import ExitCode
from app.noun import Noun
from app.runners.recipe import Recipe, recipes
from app.sandbox.clients.base import ask
from app.sandbox.setup import find_visible
from app.sandbox.toolchains import newer_pythons
from app.settings import Settings, python_interpreter, read_settings

PATIENCE = 60.0
"""Seconds for a package client: it asks an index over the network."""
NATIVE = "our own loop, over any model"


class Line(Noun):
    """One runner as it is listed; `lacks` is empty where it can work here, `newest` where nobody asked."""

    name: str
    title: str
    version: str = ""
    lacks: str = ""
    newest: str = ""

    @property
    def behind(self) -> bool:
        return bool(self.newest) and self.newest != self.version


def runners_command(arguments: argparse.Namespace) -> int:
    """`check` ends with 1 where something is newer upstream or could not be asked: for a scheduled workflow."""
    settings = read_settings(arguments.state)
    known = recipes(settings.runners)
    lines = [Line(name="native", title=NATIVE), *(_line(recipe, settings) for recipe in known.values())]
    if arguments.action == "check":
        lines = [lines[0], *asyncio.run(_newest(lines[1:], list(known.values())))]
    if arguments.json:
        print(json.dumps([line.model_dump() for line in lines], indent=2))
    else:
        print("\n".join(map(_told, lines)))
    late = any(line.behind or line.newest == UNKNOWN for line in lines)
    return ExitCode.INTERNAL if arguments.action == "check" and late else ExitCode.OK


UNKNOWN = "?"


def _line(recipe: Recipe, settings: Settings) -> Line:
    return Line(name=recipe.name, title=recipe.title, version=recipe.version, lacks=lacking(recipe, settings))


def lacking(recipe: Recipe, settings: Settings) -> str:
    """What this machine would need; looked for and not tried."""
    if recipe.client == "npm":
        return ", ".join(tool for tool in ("node", "npm") if find_visible(tool) is None)
    least = int(recipe.least_python.partition(".")[2])
    if sys.version_info.minor >= least or any(minor >= least for minor in newer_pythons(settings.environment)):
        return ""
    return f"Python {recipe.least_python} or newer"


async def _newest(lines: Sequence[Line], known: Sequence[Recipe]) -> list[Line]:
    found = await asyncio.gather(*(newest(recipe, python_interpreter()) for recipe in known))
    return [line.model_copy(update={"newest": version}) for line, version in zip(lines, found, strict=True)]


async def newest(recipe: Recipe, python: Path) -> str:
    """The newest version that this machine's own package client knows of; `?` where it says nothing."""
    if recipe.client == "npm":
        told = await ask(["npm", "view", recipe.package, "version"], seconds=PATIENCE)
        return (told or "").strip() or UNKNOWN
    told = await ask([str(python), "-I", "-m", "pip", "index", "versions", recipe.package, "--json"], seconds=PATIENCE)
    try:
        return str(json.loads(told or "")["latest"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN


def _told(line: Line) -> str:
    state = f"needs {line.lacks}, not found here" if line.lacks else "usable here"
    newer = f"; newest is {line.newest}" if line.behind else "; the newest" if line.newest else ""
    return f"{line.name:<16} {line.version:<10} {line.title:<32} {state}{newer}"
