"""The table of executors, and which of them are offered to an author."""

import pytest

from app.core.examples import RUNS, Run
from app.verify.examples.executors import EXECUTORS, HELP, languages_here
from app.verify.examples.launch import Project
from tests.support.examples import example
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


PACKAGES = {
    "package.json": b'{"scripts": {"bench": "vitest bench --config bench.ts", "test": "vitest run"}}',
    "vitest.config.ts": b"export default { test: { projects: ['packages/*'] } }",
    "packages/low/vitest.config.ts": b"export default {}",
    "bench.ts": b"",
    "packages/bench/package.json": b'{"name": "bench"}',
    "packages/bench/a.test.ts": b"import { test } from 'vitest'",
    "packages/low/package.json": b'{"name": "@top/low"}',
    "packages/low/src/deep/b.spec.ts": b"import { test } from 'vitest'",
    "packages/low/src/deep/helper.ts": b"",
    "e2e/c.spec.tsx": b"import { test } from '@playwright/test'",
    "ui/__tests__/Button.tsx": b"import { it } from 'vitest'",
}


@pytest.mark.parametrize(
    ("program", "path", "moved"),
    [
        ("import { a } from '@top/low/sub'", "packages/low/src/deep/alpine.spec.ts", "'@top/low/sub'"),
        ("import { a } from './packages/low/src'", "packages/low/src/deep/alpine.spec.ts", "'./..'"),
        ("vi.mock('./packages/low/src/x')", "packages/low/src/deep/alpine.spec.ts", "vi.mock('./../x')"),
        ("import { B } from './ui/B'\nrender(<B />)", "ui/__tests__/alpine.tsx", "'./../B'"),
        ("import x from './e2e/x'", "packages/bench/alpine.test.ts", "'./../../e2e/x'"),
    ],
)
def test_a_program_in_a_host_lies_beside_the_nearest_test_of_that_host(program: str, path: str, moved: str) -> None:
    launch = EXECUTORS["vitest"](Project(MemoryTree(PACKAGES)), example("vitest", program), "alpine")
    assert path in launch.files
    assert moved in launch.files[path].replace("'../", "'./../").replace("'..'", "'./..'")
    assert "--config" not in launch.command
    assert launch.command.startswith("cd './'")


def test_first_comments_stay_first_and_mocks_stay_outside_the_body() -> None:
    program = "// @vitest-environment jsdom\n/** more */\nimport { a } from 'a'\nvi.mock('b')\nconst c = await a()\n"
    launch = EXECUTORS["vitest"](Project(MemoryTree({})), example("vitest", program), "alpine")
    lines = launch.files["alpine.test.js"].splitlines()
    assert lines[:3] == ["// @vitest-environment jsdom", "/** more */", "import './alpine-printed.mjs';"]
    assert lines[4:] == [
        "import { a } from 'a'",
        "vi.mock('b')",
        "theProgram('program', async () => { globalThis[Symbol.for('printed')]();",
        "const c = await a()",
        "}, 60_000);",
    ]
