"""Copies of JavaScript tests that have to fail."""

from random import Random

import pytest

from app.repo.syntax import first_error
from app.verify.frameworks import FrameworkName
from app.verify.launcher.script import ScriptCopies

PATH = "test/cart.test.js"
HEAD = "const test = require('node:test')\nconst assert = require('node:assert')\n"


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("() => assert.strictEqual(total([2, 3]), 5)", "total([2, 3])"),
        ("() => check(total([2, 3]) ?? 5)", "throw new Error"),
        ("async () => await check({})", "throw new Error"),
        ("() => { check(5) }", "throw new Error"),
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_every_form_of_function_gets_a_copy_that_fails(body: str, changed: str, in_place: bool) -> None:
    test = f"test('adds', {body})\n"
    copies = ScriptCopies("node", {PATH: (HEAD + test).encode()}, Random(1))
    made = copies.made([f"{PATH}::adds"], in_place=in_place)
    assert set(made.altered.values()) == {f"{PATH}::adds"}
    (written,) = (file for file in made.files if b"node:assert" in (file.content or b""))
    content = (written.content or b"").decode()
    assert first_error(PATH, content.encode()) is None
    calls = [line for line in content.splitlines() if changed in line]
    assert any(line.partition(",")[2] != test.strip().partition(",")[2] for line in calls)


@pytest.mark.parametrize(
    ("framework", "path", "text", "begins", "ending"),
    [
        ("node", "test/a.test.js", HEAD, "const { test } = require('node:test');\n\ntest('", ".test.js"),
        ("node", "test/a.test.mjs", "", "import { test } from 'node:test';\n\ntest('", ".test.mjs"),
        ("jest", "src/a-test.js", "test('x', () => {});\n", "\ntest('", "-test.js"),
        (
            "jest",
            "a.js",
            "import '@jest/globals';\n",
            "import { test } from '@jest/globals';\n\ntest('",
            ".js",
        ),
        ("vitest", "src/a.unit.test.ts", "", "import { test } from 'vitest';\n\ntest('", ".unit.test.ts"),
        ("mocha", "test/a.js", "describe('s', () => {\n  it('x', () => {});\n});\n", "\nit('", ".js"),
        ("mocha", "test/a.js", "suite('s', () => {\n  test('x', () => {});\n});\n", "\ntest('", ".js"),
        ("mocha", "test/a.e2e.spec.js", "", "\nit('", ".e2e.spec.js"),
    ],
)
def test_the_failing_test_is_written_as_the_tests_beside_it(
    framework: FrameworkName, path: str, text: str, begins: str, ending: str
) -> None:
    made = ScriptCopies(framework, {path: text.encode()}, Random(1)).plain_failure([f"{path}::x"])
    (file,) = made.files
    assert (file.content or b"").decode().startswith(begins)
    assert file.path.endswith(ending)
    assert "." not in file.path.removesuffix(ending)
