"""Runs a set-up's commands by groups, and says what failed or was left out."""

import asyncio
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.core.errors import SetupError
from app.core.text import clip, one_line, plain
from app.sandbox.base import CompletedCommand, Executor, OnOutput, SetupPlan
from app.sandbox.setup.ecosystems.base import ABSENT, WITHOUT_SCRIPTS

COMMAND_SECONDS = 1800.0
COMMAND_CHARACTERS = 200
"""Of a failed command, in its error."""
OUTPUT_CHARACTERS = 2_000
"""Of a failed command's output, from its end, in its error."""
_ABSENT_LINE = re.compile(
    rf"^(?:[\w@./~-]{{1,214}}{re.escape(ABSENT)}|{re.escape(WITHOUT_SCRIPTS)})$", re.MULTILINE | re.ASCII
)
MAX_ABSENT = 20
ENVIRONMENT: Mapping[str, str] = {
    "COMPOSER_CACHE_DIR": "/tmp/.cache/composer",  # noqa: S108 - a path inside the sandbox
    "PIP_CACHE_DIR": "/tmp/.cache/pip",  # noqa: S108
    "PYTHONDONTWRITEBYTECODE": "1",
    "UV_CACHE_DIR": "/tmp/.cache/uv",  # noqa: S108
    "YARN_CACHE_FOLDER": "/tmp/.cache/yarn",  # noqa: S108
    "npm_config_cache": "/tmp/.cache/npm",  # noqa: S108
}
"""Of its commands alone: what is downloaded and then unpacked elsewhere is not kept twice."""


RUNNING = "$ "
"""Begins the line of the output that says which command runs."""
NETWORK = "network of the set-up: "
_LONGEST_WORD = 120


def readable(command: str) -> str:
    """What a person is shown of a command: the first of several attempts, without the programs inside it."""
    first = command.partition(" || ")[0]
    try:
        words = shlex.split(first)
    except ValueError:
        return clip(one_line(first), COMMAND_CHARACTERS)
    if all("\n" not in word and len(word) <= _LONGEST_WORD for word in words):
        return clip(one_line(first), COMMAND_CHARACTERS)
    shown = ("…" if "\n" in word or len(word) > _LONGEST_WORD else word for word in words)
    return clip(one_line(" ".join(shown)), COMMAND_CHARACTERS)


def as_step(command: str) -> list[str]:
    """As a step of continuous integration: the first failing line ends it."""
    bash = shutil.which("bash", path="/usr/bin:/bin")
    shell = [bash, "-e", "-o", "pipefail"] if bash else ["/bin/sh", "-e"]
    return [*shell, "-c", command]


async def carry_out(
    setup: SetupPlan,
    sandbox: Executor,
    on_output: OnOutput | None,
    *,
    explain: Callable[[], str] = str,
    starter: Sequence[str] = (),
) -> tuple[str, ...]:
    """Run the commands; returns what failed in one group if another succeeded, and dependencies that they left out.

    `explain` is asked why one failed, and `starter` is a program that starts each. Raises SetupError if every group
    failed.
    """
    groups = setup.groups or (setup.commands,)
    failures, absent = [], dict[str, None]()
    for group in groups:
        for command in group:
            if on_output is not None:
                on_output(f"{RUNNING}{readable(command)}\n".encode())
            argv = [*starter, *as_step(command)]
            done = await sandbox.exec(argv, timeout=COMMAND_SECONDS, env=ENVIRONMENT, on_output=on_output)
            absent |= dict.fromkeys(_ABSENT_LINE.findall(done.output.decode(errors="replace"))[:MAX_ABSENT])
            if not done.ok:
                failures.append(setup_failure(command, done, explain()))
                break
    if len(failures) == len(groups):
        raise failures[0]
    refused = explain()
    # A file that is written to a tree from now on has a later second than all that was built: it is built again.
    await asyncio.sleep(1 - time.time() % 1)
    return (*(failure.message for failure in failures), *absent, *([f"{NETWORK}{refused}"] if refused else []))


def to_repeat(left_out: Sequence[str]) -> bool:
    """Whether something failed, so that the next job tries again."""
    return not all(map(is_note, left_out))


def is_note(sentence: str) -> bool:
    """Whether it is no failure: something that cannot be had was left out, or a host was refused."""
    return _ABSENT_LINE.fullmatch(sentence) is not None or sentence.startswith(NETWORK)


@dataclass(frozen=True, slots=True)
class SetupResult:
    """What becomes known of a set-up when its commands have run; see `Sandbox`."""

    left_out: tuple[str, ...] = ()
    created: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps([self.left_out, self.created]), "utf-8")

    @classmethod
    def read(cls, path: Path) -> "SetupResult":
        """Empty if there was no set-up."""
        return cls.parse(path.read_text("utf-8")) if path.exists() else cls()

    @classmethod
    def parse(cls, text: str) -> "SetupResult":
        """Raises ValueError if it is anything else."""
        try:
            left_out, created = json.loads(text)
        except (TypeError, RecursionError) as error:
            raise ValueError(text[:100]) from error
        if not all(
            isinstance(part, list) and all(isinstance(each, str) for each in part) for part in (left_out, created)
        ):
            raise ValueError(text[:100])
        return cls(tuple(left_out), tuple(created))


NO_RESULT = SetupResult()


_ERROR = re.compile(
    r"\b(?:error|fatal|cannot|can't|could not|no such|not found|denied|failed|refused)\b", re.IGNORECASE
)
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception): \S")
_AROUND = re.compile(r"\s*(?:at |File \"|Traceback|npm (?:error|ERR!) (?:A complete log|code|errno|path|syscall))")


def _cause(output: str) -> str:
    """The line that names the error in the program's own words: the last exception, else the first error."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _AROUND.match(line)]
    exceptions = [line for line in lines if _EXCEPTION.match(line)][-1:]
    named = exceptions or [line for line in lines if _ERROR.search(line)][:1] or lines[-1:]
    return clip(one_line(named[0]).rstrip(":"), COMMAND_CHARACTERS) if named else ""


def setup_failure(command: str, done: CompletedCommand, explanation: str = "") -> SetupError:
    late = f"took longer than {COMMAND_SECONDS:.0f} seconds"
    ended = late if done.timed_out else f"ended with exit code {done.exit_code}"
    output = plain(done.output[-4 * OUTPUT_CHARACTERS :].decode(errors="replace")).strip()
    if len(output) > OUTPUT_CHARACTERS:
        output = output[-OUTPUT_CHARACTERS:].partition("\n")[2] or output[-OUTPUT_CHARACTERS:]
    cause = f"{line}: " if (line := _cause(output)) else ""
    why = f"; {explanation}" if explanation else ""
    return SetupError(
        f"{cause}the set-up command `{readable(command)}` {ended}{why}.\n{output}",
        hint="Change `setup:` in .github/agent-fix.yml, or fix what the output reports.",
    )
