"""`agent-fix completion`: a script for the shell's own completion of commands and options."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from app.cli import parser
from app.core.errors import ExitCode


def completion_command(arguments: argparse.Namespace) -> int:
    """Print a script for the shell's own completion of commands and options."""
    commands = parser()
    for action in _actions(commands):
        if action.type is Path or action.dest == "issue":
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
    print(shtab.complete(commands, arguments.shell))
    return ExitCode.OK


def _actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:  # argparse has no public list
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)
