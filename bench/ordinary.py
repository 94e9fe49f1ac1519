"""A script of ordinary outputs: commands on the project's own files, drawn at random from a seed.

Most turns of real work print some hundred tokens: a passage of a file, matches, the end of a test run. The sizes are
drawn from a log-normal distribution with a median of 600 tokens; nothing in them depends on who is measured.
"""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.script import Finish, Script

MEDIAN, SPREAD = 600, 0.8
_LINE = 9
"""Tokens of a line of this project, on average."""
_LARGEST = 6_000
_WORDS = ("token", "group", "where", "value", "match", "stream", "indent", "comment", "keyword", "identifier")
_TASK = """\
# Formatting is slow for long statements

`sqlparse.format(sql, reindent=True)` takes seconds for statements of some thousand tokens. Find out where the time
goes, and remove what is done more than once. The output stays the same.
"""


def ordinary(source: Path, seed: int, count: int = 99) -> Script:
    """So many steps over the files of `source`; every eighth is an edit, which adds a test."""
    finish = Finish("Repeated work was removed.", "python -m pytest -q tests/test_format.py")
    return Script(_TASK, finish, list(_steps(source, random.Random(seed), count)), f"ordinary, seed {seed}")


def _steps(source: Path, chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    files = sorted(
        path.relative_to(source).as_posix() for part in ("sqlparse", "tests") for path in source.glob(f"{part}/**/*.py")
    )
    files = [path for path in files if len((source / path).read_text("utf-8").splitlines()) > 60]
    for number in range(1, count + 1):
        lines = max(int(min(MEDIAN * math.exp(chance.gauss(0, SPREAD)), _LARGEST) / _LINE), 2)
        path, word = chance.choice(files), chance.choice(_WORDS)
        length = len((source / path).read_text("utf-8").splitlines())
        start = chance.randint(1, max(length - lines, 1))
        commands = (
            f"sed -n '{start},{start + lines - 1}p' {path}",
            f"cat {path} | head -n {start + lines - 1} | tail -n {lines}",
            f"grep -rn {word} sqlparse tests | head -n {max(lines // 2, 2)}",
            f"python -m pytest {chance.choice([each for each in files if 'test_' in each])} -v 2>&1 | tail -n {lines}",
        )
        say = f"Step {number}: now {word} in {path}."
        if number % 8 == 0:
            text = (
                f"\n\ndef test_{word}_{number}():\n    assert sqlparse.format('select {number}') == 'select {number}'\n"
            )
            yield {"say": say, "edit": {"path": "tests/test_format.py", "end": True, "insert": text}}
        else:
            yield {"say": say, "bash": chance.choices(commands, weights=(5, 2, 2, 1))[0]}
