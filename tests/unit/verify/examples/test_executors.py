"""The table of executors, and which of them are offered to an author."""

import pytest

from app.core.examples import RUNS, Run
from app.verify.examples.executors import EXECUTORS, HELP, languages_here
from tests.support.memory_tree import MemoryTree


def test_every_way_to_run_has_an_executor_and_one_line_of_help() -> None:
    assert set(EXECUTORS) == set(HELP) == set(RUNS)
    assert {run: len(text.split()) for run, text in HELP.items() if len(text.split()) > 25} == {}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["a.py"], ("python", "shell")),
        (["README"], ("shell",)),
        ([*(f"{n}.py" for n in range(99)), "docs/theme.js"], ("python", "shell")),
        (["go.mod", "a.go", "b.go", "web/a.ts"], ("go", "typescript", "shell")),
        (["package.json", "src/a.tsx", "src/b.tsx", "a.config.js"], ("typescript", "node", "vitest", "shell")),
    ],
)
def test_languages_are_those_of_the_files(paths: list[str], expected: tuple[Run, ...]) -> None:
    content = b'{"devDependencies": {"vitest": "1"}}'
    assert languages_here(MemoryTree({path: content if path == "package.json" else b"" for path in paths})) == expected
