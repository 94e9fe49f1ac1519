"""A held-back test is a variation only if it uses a value that neither issue nor example has."""

import pytest

from app.core.examples import SourceText
from app.verify.sources.literals import uses_unseen_values

ISSUE = "# Cents are lost\n\n`split(100, 3)` gives `[33, 33, 33]`, `title('hello')` is not shown.\n"
EXAMPLE = SourceText(path="tests/test_it.py", text="def test_it():\n    assert split(100, 3) == [34, 33, 33]\n")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("assert split(100, 3) == [34, 33, 33]", False),
        ("assert sum(split(100, 3)) == 100", False),
        ("assert split(100, 3)[1] == 33", False),
        ("assert split(0x64, 3) == [34, 33, 33], 'seven'", False),
        ('"""All of 77."""\n    assert split(1e2, 3.0) == [34, 33, 33]', False),
        ("assert title('hello') == 'h' + 'ello'", False),
        ("with raises(ValueError, match='seven'):\n        split(100, 3)", False),
        ("assert split(11, 3) == [4, 4, 3]", True),
        ("assert split(-100, 3)", True),
        ("assert title('hello you')", True),
        ("assert title(f'hello{100}you')", True),
        ("assert split(LARGE, 3)", True),
        ("assert check(100)", True),
        ("assert other(100)", False),
        ("for total in range(5, 50):\n        assert split(total, 3)", True),
    ],
)
def test_python(statement: str, expected: bool) -> None:
    around = (
        "LARGE = 10_000\n\n\ndef check(total):\n    return split(total, 7)\n\n\n"
        'def other(total):\n    """Of 9."""\n\n\n'
    )
    text = f"{around}def test_more():\n    {statement}\n\n\ndef test_guard():\n    assert split(9, 9) == 1\n"
    assert (
        uses_unseen_values("test_more", SourceText(path="tests/test_more.py", text=text), ISSUE, EXAMPLE, "test_it")
        is expected
    )


def test_the_values_of_parameters_and_of_set_up_count() -> None:
    mark = "@pytest.mark.parametrize('total, people', [({0}, 3)])"
    marked = f"import pytest\n\n\n{mark}\ndef test_more(total, people):\n    split(total, people)\n"
    set_up = "    def setUp(self):\n        self.total = {0}\n\n"
    case = f"class Case(TestCase):\n{set_up}    def test_more(self):\n        split(self.total)\n"
    for text in (marked, case):
        for value, expected in (("100", False), ("71", True)):
            file = SourceText(path="tests/test_more.py", text=text.format(value))
            assert uses_unseen_values("test_more", file, ISSUE, EXAMPLE, "test_it") is expected


@pytest.mark.parametrize(("value", "expected"), [("100", False), ("71", True), ("`hello`", False), ("'two'", True)])
@pytest.mark.parametrize(
    ("path", "name", "text"),
    [
        ("test/more.test.js", "all of it", "const x = require('../x');\ntest('all of it', () => {{\n  x({0});\n}});\n"),
        (
            "src/more.test.ts",
            "all of it",
            "import x from '../x';\nit('all of it', async function () {{\n  x({0});\n}});\nit('other', () => x(9));\n",
        ),
    ],
)
def test_javascript(path: str, name: str, text: str, value: str, expected: bool) -> None:
    assert uses_unseen_values(name, SourceText(path=path, text=text.format(value)), ISSUE) is expected


@pytest.mark.parametrize(("value", "expected"), [("100", False), ("71", True), ('"hello"', False), ('"two"', True)])
@pytest.mark.parametrize(
    ("path", "name", "text"),
    [
        (
            "a/more_test.go",
            "TestMore",
            'package a\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {{\n\tx({0})\n}}\n',
        ),
        ("tests/more.rs", "more", "use a::x;\n\n#[test]\nfn more() {{\n    x({0});\n}}\n"),
    ],
)
def test_compiled(path: str, name: str, text: str, value: str, expected: bool) -> None:
    assert uses_unseen_values(name, SourceText(path=path, text=text.format(value)), ISSUE) is expected


def test_the_values_of_common_helpers_are_not_those_of_the_example() -> None:
    helper = "def failing(times):\n    left = [times]\n    left[0] -= 1\n    return left\n\n\n"
    example = SourceText(path="tests/test_it.py", text=f"{helper}def test_it():\n    retry(failing(9), 3)\n")
    for statement, expected in (("retry(failing(9), 1)", True), ("failing(9)", False)):
        more = SourceText(path="tests/test_more.py", text=f"{helper}def test_more():\n    {statement}\n")
        assert uses_unseen_values("test_more", more, "`retry(f, 3)` returns None.", example, "test_it") is expected


def test_nothing_is_known_of_a_language_without_a_grammar() -> None:
    assert not uses_unseen_values("more", SourceText(path="tests/more.kt", text="fun more() { x(71) }\n"), ISSUE)
