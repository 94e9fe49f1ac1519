"""The conditions and statements that a patch adds, in the languages of the projects."""

import pytest

from app.verify.sources.new_conditions import new_conditions, removed_conditions, replaced_data
from tests.support.source_samples import analysis_of


def says(language: str, old: str, new: str, kind: str = "outcome") -> list[str]:
    found = new_conditions(language, old.encode(), new.encode())
    assert all(0 <= one.start < one.end <= len(new.encode()) for one in found)
    return [one.says for one in found if one.kind == kind]


SPLIT = "def f(a, b):\n    return a\n"


def test_a_condition_is_taken_apart() -> None:
    new = "def f(a, b):\n    if not (a < b and g(a)) or b:\n        return b\n    return a\n"
    parts = [text for text in ("a < b", "g(a)", "b") for _ in range(2)]
    assert says("python", SPLIT, new) == [
        f"`{part}` is always {outcome}" for part, outcome in zip(parts, ("false", "true") * 3, strict=True)
    ]


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("except:\n        pass", ["`except` replaced by `except Exception`"]),
        ("except (OSError, BaseException):\n        pass", ["`BaseException` replaced by `Exception`"]),
        ("except BaseException:\n        raise", []),
        ("except Exception:\n        pass", []),
    ],
)
def test_a_handler_of_everything_is_a_condition(handler: str, found: list[str]) -> None:
    assert says("python", SPLIT, f"def f(a, b):\n    try:\n        return a\n    {handler}\n") == found


def test_old_conditions_are_not_new() -> None:
    old = "def f(a, b):\n    if a > 3:\n        return b\n    return a\n"
    new = "def f(a, b):\n    if a > 3 and b is None:\n        return b\n    return a\n"
    assert says("python", old, new) == ["`b is None` is always false", "`b is None` is always true"]
    moved = "def g(a, b):\n    if a > 3:\n        return b\n\n\ndef f(a, b):\n    return g(a, b) or a\n"
    assert says("python", old, moved) == ["`g(a, b)` is always false", "`g(a, b)` is always true"]


@pytest.mark.parametrize(
    "text",
    [
        "while a < b:\n        a += 1",
        "while (a < b):\n        a += 1",
    ],
)
def test_a_loop_is_not_made_endless(text: str) -> None:
    found = says("python", SPLIT, f"def f(a, b):\n    {text}\n    return a\n")
    assert found == ["`a < b` is always false"]


@pytest.mark.parametrize(
    ("language", "text", "altered"),
    [
        ("python", "def f(a):\n    return 1 if a < 2 else a\n", "((a < 2) and False)"),
        ("python", "def f(a):\n    return [x for x in a if x]\n", "((x) and False)"),
        (
            "python",
            "def f(a):\n    match a:\n        case [x] if x > 1:\n            return x\n",
            "((x > 1) and False)",
        ),
        ("python", "def f(a):\n    return a <= 1 < 3\n", "((a <= 1 < 3) and False)"),
        ("python", "def f(a):\n    return (a == 'ä' and 1)\n", "((a == 'ä') and False)"),
        ("javascript", "function f(a) {\n  return !a ? 1 : 2;\n}\n", "((a) && false)"),
        ("typescript", "function f(a: number) {\n  for (let i = 0; i < a; i++) g();\n}\n", "((i < a) && false)"),
        (
            "go",
            "package x\n\nfunc f(a int) int {\n\tif ok := a > 1; ok {\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
            "((ok) && false)",
        ),
        (
            "rust",
            "fn f(a: u32) -> u32 {\n    match a {\n        x if x > 5 => 1,\n        _ => 2,\n    }\n}\n",
            "((x > 5) && false)",
        ),
        ("c", "int f(int a) {\n  return a == 1 ? 2 : 3;\n}\n", "((a == 1) && 0)"),
        (
            "java",
            "class A {\n  int f(int a) {\n    if (a >= 1) return 2;\n    return 3;\n  }\n}\n",
            "((a >= 1) && false)",
        ),
        ("ruby", "def f(a)\n  return 1 if a > 2\n  3\nend\n", "((a > 2) && false)"),
    ],
)
def test_conditions_of_each_language(language: str, text: str, altered: str) -> None:
    found = [one.altered for one in new_conditions(language, None, text.encode()) if one.kind == "outcome"]
    assert altered in found


@pytest.mark.parametrize(
    ("language", "text", "raising"),
    [
        ("python", "def f(a):\n    return 1 if a < 2 else a\n", "((a < 2) or 1 / 0)"),
        ("python", "def f(a):\n    return a * (a < 2)\n", ""),
        ("javascript", "function f(a) {\n  return a ? 1 : 2;\n}\n", "((a) || (() => { throw 0; })())"),
        (
            "go",
            "package x\n\nfunc f(a int) int {\n\tif a > 1 {\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
            "((a > 1) || func() bool { panic(0) }())",
        ),
        ("rust", "fn f(a: u32) -> u32 {\n    if a > 5 { 1 } else { 2 }\n}\n", "((a > 5) || panic!())"),
    ],
)
def test_branches_can_fail_where_they_have_an_outcome(language: str, text: str, raising: str) -> None:
    found = new_conditions(language, None, text.encode())
    assert [one.raising for one in found if one.says.endswith("true")] == [raising]


def test_boundaries_are_the_signs_of_an_order() -> None:
    new = "def f(a, b):\n    return a[: b - 3] if a <= b else a\n"
    assert says("python", SPLIT, new, "boundary") == [
        "`<=` replaced by `<` in `a <= b`",
    ]


def test_statements_are_those_of_functions() -> None:
    new = 'X = 1\n\n\ndef f(a, b):\n    """Words."""\n    b = a\n    if b:\n        raise ValueError(b)\n    return a\n'
    assert says("python", SPLIT, new, "statement") == ["`b = a`", "`raise ValueError(b)`"]


def test_assertions_and_the_start_of_a_program_decide_nothing() -> None:
    new = 'def f(a, b):\n    assert a < b\n    return a\n\n\nif __name__ == "__main__":\n    f(1, 2)\n'
    assert says("python", SPLIT, new) == []


GUARDED = "def f(a, b):\n    if a < 0:\n        raise ValueError(a)  # never\n    c = b\n    return a\n"


@pytest.mark.parametrize(
    ("language", "old", "new"),
    [
        ("python", GUARDED, "def f(a, b):\n    c = b\n    return a\n"),
        ("python", GUARDED.replace("a < 0", "a < 0 and b"), GUARDED),
        ("python", GUARDED, GUARDED.replace("    c = b\n", "")),
        ("go", "func f(a int) {\n\tif a < 0 {\n\t\tpanic(a)\n\t}\n\tg(a)\n}\n", "func f(a int) {\n\tg(a)\n}\n"),
        ("javascript", "function f(a) {\n  check(a);\n  return a;\n}\n", "function f(a) {\n  return a;\n}\n"),
    ],
)
def test_removed_conditions_can_be_put_back(language: str, old: str, new: str) -> None:
    (one,) = removed_conditions(language, old.encode(), new.encode())
    assert (new[: one.start] + one.altered + new[one.end :]) == old


@pytest.mark.parametrize(
    "new",
    [
        GUARDED,
        GUARDED.replace("  # never", ""),
        GUARDED.replace("    c = b\n", "    c = b + 1\n"),
        GUARDED.replace("    c = b\n    return a\n", "    return g(a, b)\n\n\ndef g(a, b):\n    c = b\n    return a\n"),
    ],
)
def test_moved_and_rewritten_lines_are_not_removed(new: str) -> None:
    assert removed_conditions("python", GUARDED.encode(), new.encode()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    if b:\n        return 0\n    c = 1\n", "    c = 2\n"),
        ("    c = 1\n    if b:\n        return 0\n", "    c = 2\n"),
    ],
)
def test_a_branch_beside_a_change_is_put_back_alone(old: str, new: str) -> None:
    before, after = f"def f(b):\n{old}    return b\n", f"def f(b):\n{new}    return b\n"
    (one,) = removed_conditions("python", before.encode(), after.encode(), only=True)
    assert after[: one.start] + one.altered + after[one.end :] == before.replace("c = 1", "c = 2")
    assert len(removed_conditions("python", before.encode(), after.encode())) == 2


@pytest.mark.parametrize(
    ("language", "old", "new", "put_back"),
    [
        ("python", "def f(a):\n    check(a)\n    return 1\n", "def f(a):\n    return 2\n", "    check(a)\n"),
        (
            "python",
            "class A:\n    def f(self, a):\n        self.check(a)\n        return 1\n",
            "class A:\n    def f(self, a):\n        return 2\n",
            "        self.check(a)\n",
        ),
        (
            "python",
            "def f(a):\n    b = 1\n    if a < 0:\n        raise ValueError\n    return b\n",
            "def f(a):\n    b = 2\n    return b + 1\n",
            "    if a < 0:\n        raise ValueError\n",
        ),
        (
            "python",
            "def f(a):\n    return 1\n\n\ndef g(a):\n    return 3\n\n\ndef h(a):\n    return 4\n",
            "def f(a):\n    b = a\n    return b\n\n\ndef h(a):\n    return 4\n",
            "def g(a):\n    return 3\n",
        ),
        (
            "go",
            "func f(a int) int {\n\tcheck(a)\n\treturn 1\n}\n",
            "func f(a int) int {\n\treturn 2\n}\n",
            "\tcheck(a)\n",
        ),
        (
            "javascript",
            "function f(a) {\n  check(a);\n  return 1;\n}\n",
            "function f(a) {\n  return 2;\n}\n",
            "  check(a);\n",
        ),
        (
            "rust",
            "fn f(a: u8) -> u8 {\n    check(a);\n    1\n}\n",
            "fn f(a: u8) -> u8 {\n    2\n}\n",
            "    check(a);\n",
        ),
        ("python", "@admin\ndef f(a):\n    return 1\n", "def f(a, b=None):\n    return 1\n", "@admin\n"),
        ("python", "@kit.admin(1)\ndef f(a):\n    return 1\n", "def f(b):\n    return 1\n", "@kit.admin(1)\n"),
        ("python", "def f(a):\n    assert a\n    return 1\n", "def f(a):\n    return 2\n", "    assert a\n"),
        (
            "javascript",
            "class A {\n  f(a) {\n    this.#check(a);\n    return 1;\n  }\n}\n",
            "class A {\n  f(a) {\n    return 2;\n  }\n}\n",
            "    this.#check(a);\n",
        ),
        ("python", 'from a import b\n\n__all__ = ["b"]\nC = 1\n', "__all__ = []\nC = 1\n", "from a import b\n"),
    ],
)
def test_parts_that_are_lost_beside_a_change_are_put_back_alone(
    language: str, old: str, new: str, put_back: str
) -> None:
    assert put_back in [one.altered for one in removed_conditions(language, old.encode(), new.encode())]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def f(a):\n    check(a)\n    return 1\n", "def f(a):\n    check(a, 2)\n    return 2\n"),
        ("@one\ndef f(a):\n    return 1\n", "@one(2)\ndef f(a, b):\n    return 1\n"),
        ("def f(a):\n    a.sort()\n    return a[0]\n", "def f(a):\n    return min(a)\n"),
        ("def f(a):\n    return 1\n\n\ndef g(a):\n    return 3\n", "g = print\n\n\ndef f(a):\n    return 2\n"),
    ],
)
def test_calls_and_definitions_that_are_rewritten_are_not_lost(old: str, new: str) -> None:
    assert removed_conditions("python", old.encode(), new.encode()) == []


@pytest.mark.parametrize(
    ("language", "old", "new", "before"),
    [
        ("python", "LIMITS = {'guest': 1}\n", "LIMITS = {'guest': 9}\n", ["{'guest': 1}"]),
        ("python", "class A:\n    size: int = 1\n", "class A:\n    size: int = 2\n", ["1"]),
        (
            "python",
            "def f(a, *, b=1, c: int = 2):\n    pass\n",
            "def f(a, *, b=3, c: int = 4):\n    pass\n",
            ["1", "2"],
        ),
        ("python", "def f(a=[]):\n    return a\n", "def f(a=()):\n    return list(a)\n", []),
        ("python", "def f():\n    a = 1\n", "def f():\n    a = 2\n", []),
        ("python", "A = 1\nA = 2\n", "A = 1\nA = 3\n", []),
        ("python", "F = lambda: 1\n__version__ = '1'\n", "F = lambda: 2\n__version__ = '2'\n", []),
        ("python", "A = [1,\n 2]\n", "A = [1, 2]  # more\n", []),
        (
            "javascript",
            "const A = 1;\nexport const b = { c: 1 };\n",
            "const A = 2;\nexport const b = { c: 2 };\n",
            ["1", "{ c: 1 }"],
        ),
        ("javascript", "const a = require('./a');\n", "const a = require('./b');\n", []),
        ("go", "const A = 1\n\nvar (\n\tb = 2\n)\n", "const A = 3\n\nvar (\n\tb = 4\n)\n", ["1", "2"]),
        ("rust", "const A: u32 = 1;\nstatic B: u32 = 2;\n", "const A: u32 = 3;\nstatic B: u32 = 4;\n", ["1", "2"]),
    ],
)
def test_changed_values_can_be_put_back(language: str, old: str, new: str, before: list[str]) -> None:
    found = removed_conditions(language, old.encode(), new.encode(), only=True)
    assert [one.altered for one in found] == before
    for one in found:
        assert one.altered in new[: one.start] + one.altered + new[one.end :]


def test_replaced_lines_of_data_can_be_put_back() -> None:
    old, new = b'{\n  "guest": 1,\n  "admin": 9\n}', b'{\n  "guest": 9,\n  "admin": 9\n}'
    (one,) = replaced_data(old, new)
    assert new[: one.start] + one.altered.encode() + new[one.end :] == old
    assert replaced_data(b"a\n", b"a\nb\n") == []


def test_a_source_that_is_too_large_to_parse_is_no_source_without_conditions() -> None:
    large = "x = 1\n" * 800_000
    assert analysis_of({"a.py": large}, {"a.py": f"{large}if x == 1:\n    x = 2\n"}).new_conditions is None
    assert analysis_of({"a.js": large}, {"a.js": f"{large}x = 2\n"}).executable_lines is None
