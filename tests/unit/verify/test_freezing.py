"""Independent tests before they count: what is refused, what is kept and why, and the sentence beside each."""

from dataclasses import replace

import pytest

from app.core.examples import SourceText
from app.core.verification import Outcome, Specification
from app.verify.specification import SpecificationBuilder, digest, file_of_test, issue_names_interface, sentence
from tests.support.memory_tree import MemoryTree
from tests.support.no_sandboxes import unopened
from tests.support.selected import Results, ScriptedRuns

TREE = MemoryTree(
    {
        "money.py": b"def half(cents):\n    return cents // 2\n",
        "tests/test_money.py": b"def test_even(): ...\n",
        "setup.cfg": b"",
    }
)
EXAMPLE = SourceText(path="tests/test_example.py", text="def test_reported():\n    assert half(5) == 3\n")
MORE = SourceText(
    path="tests/test_more.py",
    text="def test_large():\n    assert half(7) == 4\n\n\ndef test_even_stays():\n    assert half(4) == 2\n",
)
IDS = ("tests/test_example.py::test_reported", "tests/test_more.py::test_large", "tests/test_more.py::test_even_stays")
USUAL: Results = dict(zip(IDS, ("failed", "failed", "passed"), strict=True))


async def freeze(
    results: Results = USUAL,
    files: tuple[SourceText, ...] = (EXAMPLE, MORE),
    ids: tuple[str, ...] = IDS,
    *,
    text: str = "half(5) is 2",
    run: ScriptedRuns | None = None,
) -> tuple[Specification, str]:
    runs = replace(run or ScriptedRuns(ends=lambda name, before: results), project=unopened(TREE))
    return await SpecificationBuilder(runs, text).build(files, ids, ("tests/test_money.py::test_even",))


async def test_red_tests_and_guarding_tests_are_frozen() -> None:
    found, told = await freeze()
    assert [(test.id, test.role) for test in found.tests] == [(IDS[0], "shows"), (IDS[1], "shows"), (IDS[2], "guards")]
    assert found.example == EXAMPLE.path
    assert found.digest == digest((EXAMPLE, MORE), IDS)
    assert (found.runs, found.absent, found.outdated) == (5, "", ("tests/test_money.py::test_even",))
    assert f"{IDS[2]}: passes on the base and must keep passing." in told
    assert Specification.model_validate_json(found.model_dump_json()) == found


async def test_the_digest_covers_files_and_ids() -> None:
    changed = MORE.model_copy(update={"text": f"{MORE.text}\n"})
    assert len({digest((EXAMPLE, MORE), IDS), digest((EXAMPLE, changed), IDS), digest((EXAMPLE, MORE), IDS[:2])}) == 3


async def test_an_example_beside_others_is_shown_to_nobody() -> None:
    found, _ = await freeze({IDS[1]: "failed", IDS[2]: "failed"}, (MORE,), IDS[1:])
    assert (len(found.tests), found.example) == (2, "")


async def test_the_example_is_the_first_that_fails() -> None:
    found, told = await freeze({IDS[0]: "passed", IDS[1]: "failed", IDS[2]: "failed"})
    assert found.tests[0].id == IDS[1]
    assert found.reported_passes
    assert "The first test passes on the base." in told
    assert not (await freeze())[0].reported_passes
    assert found.tests[-1].role == "guards"


@pytest.mark.parametrize("result", ["skipped", "not_run"])
async def test_tests_that_did_not_run_are_dropped_and_reported(result: Outcome) -> None:
    found, told = await freeze({**USUAL, IDS[1]: result})
    assert [test.id for test in found.tests] == [IDS[0], IDS[2]]
    assert found.dropped[0].startswith(f"{IDS[1]}: was ")
    assert f"Dropped: {IDS[1]}: was " in told
    assert "At least one test besides the example must fail on the base." in told


async def test_the_author_is_told_if_all_values_are_known() -> None:
    told = "must use a value that neither issue nor example has"
    found, message = await freeze()
    assert [test.varies for test in found.tests] == [False, True, True]
    assert told not in message
    same, message = await freeze(text="half(5) is 2, and half(7) is 3 (not 4)")
    assert [test.varies for test in same.tests] == [False, False, False]
    assert told in message


async def test_a_flaky_specification_test_is_dropped() -> None:
    run = ScriptedRuns(ends=lambda name, before: {**USUAL, IDS[1]: "failed" if before else "passed"})
    found, _ = await freeze(run=run)
    assert found.dropped == (f"{IDS[1]}: gives different results in different runs.",)


NO_NAME = "ImportError: cannot import name 'thirds' from 'money'"
NO_ATTRIBUTE = "AttributeError: module 'money' has no attribute 'thirds'"


@pytest.mark.parametrize("text", [NO_NAME, NO_ATTRIBUTE])
async def test_a_missing_interface_is_a_red_where_the_issue_names_it(text: str) -> None:
    run = ScriptedRuns(ends=lambda name, before: USUAL, texts={IDS[1]: text})
    named, _ = await freeze(run=run, text="Please add `thirds(cents)`.")
    assert [(test.role, test.missing) for test in named.tests][:2] == [("shows", ""), ("shows", "thirds")]
    unnamed, _ = await freeze(run=run, text="Please add thirdsome.")
    kept = {test.id: test.missing for test in unnamed.tests}
    assert kept.get(IDS[1], "dropped") == ("dropped" if text == NO_NAME else "")


def usage(error: str) -> str:
    return f"AssertionError: Usage: kit [-h] path\n  {error}\n\nassert 2 == 0"


@pytest.mark.parametrize(
    "error",
    [
        "kit: error: unrecognized arguments: --dry-run",
        "kit: error: unrecognized arguments: b --dry-run=x",
        "Error: No such option: --dry-run",
        "Error: No such option '--dry-run'.",
    ],
)
async def test_a_missing_option_is_a_red_where_the_issue_names_it(error: str) -> None:
    run = ScriptedRuns(ends=lambda name, before: USUAL, texts={IDS[1]: usage(error)})
    named, _ = await freeze(run=run, text="Please add --dry-run to the command.")
    assert [(test.role, test.missing) for test in named.tests][:2] == [("shows", ""), ("shows", "--dry-run")]
    unnamed, _ = await freeze(run=run, text="It needs a dry run, not `--dry-run-all`.")
    assert {test.missing for test in unnamed.tests} == {""}


async def test_an_option_of_the_authors_own_invention_is_not_a_red() -> None:
    text = usage("kit: error: unrecognized arguments: --dry-run")
    run = ScriptedRuns(ends=lambda name, before: USUAL, texts={IDS[1]: text})
    found, _ = await freeze(run=run, text="Please add `--json`.")
    assert IDS[1] not in [test.id for test in found.tests]


async def test_an_output_that_several_tests_share_is_reported_once() -> None:
    run = ScriptedRuns(ends=lambda name, before: USUAL, texts=dict.fromkeys(IDS[:2], NO_NAME))
    _, told = await freeze(run=run, text="Please add more.")
    assert told.count("does not exist, which the issue does not name.") == 2
    assert told.count(NO_NAME) == 1


async def test_without_a_red_test_there_is_no_specification() -> None:
    found, told = await freeze(dict.fromkeys(IDS, "passed"))
    assert not found.tests
    assert found.absent == "none of the test author's tests fails on the base for the right reason."
    assert (found.runs, found.base is not None) == (5, True)
    assert found.absent in told


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("Add `cents` to it.", True),
        ("Call cents() for that.", True),
        ("money.cents would help", True),
        ("A flag --cents is missing.", True),
        ("```python\nfrom money import cents\n```", True),
        ("    from money import cents\n", True),
        ("It loses cents.", False),
        ("    half(5)\n\nIt loses cents.", False),
        ("Nobody has any more cents. Why?", False),
        ("`money` loses cents, see `half`.", False),
    ],
)
def test_an_interface_is_named_as_code(text: str, *, named: bool) -> None:
    assert issue_names_interface("cents", text) is named
    assert issue_names_interface("all_cents", f"{text} Have all_cents.")


async def test_if_exit_code_and_results_disagree_nothing_is_frozen() -> None:
    found, _ = await freeze(run=ScriptedRuns(ends=lambda name, before: USUAL, exit_code=0))
    assert (found.tests, found.absent) == ((), "the exit code was 0, but 2 of 3 tests failed.")


async def test_a_runner_that_lies_freezes_nothing() -> None:
    run = ScriptedRuns(ends=lambda name, before: USUAL, untrusted={"specification-base": "A copy passed."})
    found, _ = await freeze(run=run)
    assert (found.tests, found.absent) == ((), "A copy passed.")


@pytest.mark.parametrize(
    "name",
    [
        "test_config.py",
        "test_load_config.py",
        "test_setup.py",
        "test_src.py",
        "config.test.js",
        "setup.spec.ts",
        "config.rs",
    ],
)
async def test_a_test_of_settings_affects_no_other(name: str) -> None:
    path = f"tests/{name}"
    test = f"{path}::test_a"
    texts = {"py": "def test_a(): ...\n", "rs": "#[test]\nfn test_a() {}\n"}
    text = texts.get(path.rpartition(".")[2], "it('test_a', () => {});\n")
    run = ScriptedRuns(ends=lambda name, before: {test: "failed"})
    found, told = await freeze(files=(file(path, text),), ids=(test,), run=run)
    assert [test.id for test in found.tests] == [test], told


def file(path: str, text: str = "def test_a(): ...\n") -> SourceText:
    return SourceText(path=path, text=text)


@pytest.mark.parametrize(
    ("files", "ids", "problem"),
    [
        ((), (), "Give at least one file"),
        ((file("tests/test_money.py"),), ("tests/test_money.py::test_a",), "already exists; add new files only"),
        ((file("money2.py"),), ("money2.py::test_a",), "is not where this project keeps tests"),
        ((file("setup.cfg"),), ("setup.cfg::test_a",), "add new files only"),
        ((file("tests/conftest.py"),), ("tests/conftest.py::test_a",), "would affect other tests"),
        ((file("tests/__init__.py"),), ("tests/__init__.py::test_a",), "would affect other tests"),
        ((file("tests/mochasetup.js"),), ("tests/mochasetup.js::a",), "would affect other tests"),
        ((file("src/__tests__/setup.js"),), ("src/__tests__/setup.js::a",), "would affect other tests"),
        ((file("tests/../test_b.py"),), ("tests/../test_b.py::test_a",), "not a path inside the repository"),
        ((file("tests/test_b.py", "def test_a(:\n"),), ("tests/test_b.py::test_a",), "syntax: tests/test_b.py:1"),
        ((file("tests/test_b.py"),), ("tests/test_money.py::test_even",), "is in none of these files"),
        ((file("tests/data.json", "{}"),), ("tests/data.json::x",), "would execute none of these files"),
        ((file("tests/test_b.py", "#" * 70_000),), ("tests/test_b.py::test_a",), "at most 60,000 characters"),
        (tuple(file(f"tests/test_{n}.py") for n in range(9)), ("tests/test_1.py::test_a",), "At most 8 files"),
    ],
)
async def test_a_selection_that_does_not_apply_is_not_executed(
    files: tuple[SourceText, ...], ids: tuple[str, ...], problem: str
) -> None:
    run = ScriptedRuns(ends=lambda name, before: USUAL)
    found, told = await freeze(files=files, ids=ids, run=run)
    assert problem in told
    assert (found.tests, found.runs, run.names) == ((), 0, [])
    assert found.absent.startswith("the test author's tests were rejected")


PYTHON = '''
class TestHalf:
    @mark
    def test_docstring(self):
        """Half of an odd
        amount is rounded up.

        More of it.
        """

    # An even amount
    # is not rounded.
    @mark("test_comment")
    def test_comment(self): ...

    def test_half_of_aLongName(self): ...
'''
SCRIPT = """
// The sum of nothing
// is nothing
test('adds up', () => {})

describe('cart', () => {
  /** Prices are added. */
  it('totals', () => {})
  it('has no comment', () => {})
})
"""
GO = "// TestHalf rounds up.\nfunc TestHalf(t *testing.T) {}\n\nfunc TestKeepsEven(t *testing.T) {}\n"
RUST = "/// Odd amounts are rounded up\n#[test]\nfn rounds_up() {}\n"


@pytest.mark.parametrize(
    ("path", "text", "test_id", "expected"),
    [
        ("t/test_a.py", PYTHON, "t/test_a.py::TestHalf::test_docstring", "Half of an odd amount is rounded up."),
        ("t/test_a.py", PYTHON, "t.test_a.TestHalf.test_comment", "An even amount is not rounded."),
        ("t/test_a.py", PYTHON, "t/test_a.py::TestHalf::test_half_of_aLongName[1-2]", "Half of a Long Name."),
        ("x.test.js", SCRIPT, "x.test.js::adds up", "The sum of nothing is nothing."),
        ("x.test.js", SCRIPT, "x.test.js::cart > totals", "Prices are added."),
        ("x.test.js", SCRIPT, "x.test.js::cart > has no comment", "Has no comment."),
        ("p/half_test.go", GO, "example.org/m/p::TestHalf", "TestHalf rounds up."),
        ("p/half_test.go", GO, "example.org/m/p::TestKeepsEven/sub", "Keeps Even."),
        ("tests/half.rs", RUST, "tests/half.rs::rounds_up", "Odd amounts are rounded up."),
    ],
)
def test_the_sentence_beside_a_test_is_found_in_every_language(
    path: str, text: str, test_id: str, expected: str
) -> None:
    files = (SourceText(path="other/test_z.py", text="def test_z(): ...\n"), SourceText(path=path, text=text))
    assert file_of_test(test_id, files) == files[1]
    assert sentence(test_id, files) == expected
