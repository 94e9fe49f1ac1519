"""An argument parser whose errors say what was probably meant."""

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from app.core.errors import ExitCode

_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
_CHOICE = re.compile(
    r"argument (?P<what>.*?): invalid choice: (?P<given>'.*'|\".*\") \(choose from (?P<all>.*)\)", re.DOTALL
)
_MISSING = re.compile(r"the following arguments are required: (.*)", re.DOTALL)


class CommandParser(argparse.ArgumentParser):
    """Refuses wrong arguments in one line, with the nearest right one, and names the command for help."""

    def parse_known_args(  # type: ignore[override]  # argparse has an overload for each kind of namespace
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Arguments that a subcommand does not know are its own error, so that its options are suggested."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        print(f"agent-fix: {self._sentence(message)}", file=sys.stderr)
        print(f"           `{self.prog} --help` shows what there is.", file=sys.stderr)
        self.exit(ExitCode.USAGE)

    def _sentence(self, message: str) -> str:
        if unknown := _UNKNOWN.fullmatch(message):
            word = unknown[1].split(" ")[0].partition("=")[0]
            if not word.startswith("-"):
                return f"`{self.prog}` takes no argument {shlex.quote(word)}."
            return f"There is no option {word}.{_meant(word, self._option_string_actions)}"
        if choice := _CHOICE.fullmatch(message):
            given, names = choice["given"][1:-1], re.findall(r"'([^']*)'", choice["all"])
            kind = "command" if choice["what"] in {"COMMAND", "ACTION"} else f"value for {choice['what']}"
            return f"{shlex.quote(given)} is no {kind}.{_meant(given, names) or ' Known: ' + ', '.join(names) + '.'}"
        if missing := _MISSING.fullmatch(message):
            return f"{missing[1]} is missing."
        return f"{message[:1].upper()}{message[1:]}."


def _meant(word: str, names: Sequence[str] | dict[str, argparse.Action]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  # imported only for an error, so that the start is fast

    found = get_close_matches(word, list(names), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(found)}?" if found else ""
