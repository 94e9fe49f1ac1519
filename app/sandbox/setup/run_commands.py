"""Runs a set-up's commands by groups, and says what failed or was left out."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from app.core.errors import SetupError
from app.core.text import clip, one_line, plain
from app.sandbox.base import CompletedCommand, Executor, OnOutput, SetupPlan
from app.sandbox.setup.ecosystems.base import ABSENT

COMMAND_SECONDS = 1800.0
COMMAND_CHARACTERS = 200
"""Of a failed command, in its error."""
OUTPUT_CHARACTERS = 2_000
"""Of a failed command's output, from its end, in its error."""
_ABSENT_LINE = re.compile(rf"^[\w@./~-]{{1,214}}{re.escape(ABSENT)}$", re.MULTILINE | re.ASCII)
MAX_ABSENT = 20


def _as_step(command: str) -> list[str]:
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
            argv = [*starter, *_as_step(command)]
            done = await sandbox.exec(argv, timeout=COMMAND_SECONDS, on_output=on_output)
            absent |= dict.fromkeys(_ABSENT_LINE.findall(done.output.decode(errors="replace"))[:MAX_ABSENT])
            if not done.ok:
                failures.append(setup_failure(command, done, explain()))
                break
    if len(failures) == len(groups):
        raise failures[0]
    return (*(failure.message for failure in failures), *absent)


def to_repeat(left_out: Sequence[str]) -> bool:
    """Whether something failed, so that the next job tries again; a dependency that no index has is not a failure."""
    return not all(map(is_absent, left_out))


def is_absent(sentence: str) -> bool:
    """Whether it names a dependency that was left out, and no failure."""
    return _ABSENT_LINE.fullmatch(sentence) is not None


def write_left_out(path: Path, sentences: Sequence[str]) -> None:
    path.write_text(json.dumps(list(sentences)), "utf-8")


def read_left_out(path: Path) -> tuple[str, ...]:
    """The stored sentences; empty if there was no set-up."""
    return tuple(json.loads(path.read_text("utf-8"))) if path.exists() else ()


def setup_failure(command: str, done: CompletedCommand, explanation: str = "") -> SetupError:
    late = f"took longer than {COMMAND_SECONDS:.0f} seconds"
    ended = late if done.timed_out else f"ended with exit code {done.exit_code}"
    output = plain(done.output[-4 * OUTPUT_CHARACTERS :].decode(errors="replace")).strip()
    if len(output) > OUTPUT_CHARACTERS:
        output = output[-OUTPUT_CHARACTERS:].partition("\n")[2] or output[-OUTPUT_CHARACTERS:]
    shown = clip(one_line(command), COMMAND_CHARACTERS)
    return SetupError(
        f"The set-up command `{shown}` {ended}{f'; {explanation}' if explanation else ''}.\n{output}",
        hint="Change `setup:` in .github/agent-fix.yml, or fix what the output reports.",
    )
