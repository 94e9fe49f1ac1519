"""Copies of JavaScript tests that have to fail."""

from random import Random

import pytest

from app.repo.syntax import first_error
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
