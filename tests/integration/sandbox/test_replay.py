"""What tests call is repeated without their framework: honest code passes, and code that looks at it does not."""

import ast

import pytest

from app.core.patch import FileChange, Patch
from app.core.verification import TestSelection
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.verify.replay import Replayed, replay_controls, replay_tests
from tests.support.sandbox_projects import WITH_GO, patch_of
from tests.support.selecting import Project

PYTHON = {
    "sums.py": "def add(one, other):\n    return one + other\n",
    "test_sums.py": "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n",
}
TESTS = """\
import unittest

import pytest

from sums import add

BASE = 300


class Added(unittest.TestCase):
    def setUp(self):
        self.two = 2

    def test_numbers(self):
        self.assertEqual(add(BASE, self.two), 302)
        with self.assertRaises(TypeError):
            add(1, "a")

    def test_lists(self):
        for words in (["a"], ["b"]):
            with self.subTest(words):
                self.assertListEqual(add(words, ["c"]), [*words, "c"])

"""
SKIPPED = f"""{TESTS}
    def test_with_its_file(self):
        self.skipTest("not here")
"""
JAVASCRIPT = {
    "package.json": '{"scripts": {"test": "node --test"}}',
    "sums.js": "exports.add = (one, other) => one + other;\n",
    "test/own.test.js": "require('node:test')('own', () => {});\n",
}
SCRIPT = """\
const { describe, test } = require('node:test');
const assert = require('node:assert');
const { add } = require('../sums');

describe('sums', () => {
  test('numbers', () => assert.strictEqual(add(1, 2), 3));
  test('texts', () => assert.deepStrictEqual([add('a', 'b')], ['ab']));
});
"""


async def replayed(
    provider: BubblewrapProvider, files: dict[str, str], test: str, text: str, ids: tuple[str, ...], **changes: str
) -> Replayed:
    project = Project(provider, files, setup=WITH_GO if files is GO else None)
    added = FileChange(path=test, mode="100644", content=text.encode())
    selection = TestSelection(files=(added,), ids=ids)
    patch: Patch | None = patch_of({path.replace("_", "."): content for path, content in changes.items()})
    return await replay_tests(project.suite, selection, project.under_test, patch if changes else None, name="replay")


ONE_LIST = """\
SUM = []


def add(a, b):
    SUM[:] = [*a, *b] if isinstance(a, list) else [a + b]
    return SUM if isinstance(a, list) else SUM[0]
"""
NUMBERS, LISTS = "test_more.Added.test_numbers", "test_more.Added.test_lists"


async def test_honest_code_passes_in_every_way(provider: BubblewrapProvider) -> None:
    found = await replayed(provider, PYTHON, "test_more.py", TESTS, (NUMBERS, LISTS))
    # That a tuple cannot be added to a list is compared with the base.
    assert (found.ids, list(found.failures()), found.report.problem) == ((NUMBERS, LISTS), [("varied", LISTS)], "")
    ways = {"first", "plain", "thread", "deep", "many", "collected", "shifted", "loop", "pause"}
    assert ways <= found.report.outcomes.keys()


async def test_tests_that_need_their_framework_are_left_to_it(provider: BubblewrapProvider) -> None:
    skipped = "test_more.Added.test_with_its_file"
    found = await replayed(provider, PYTHON, "test_more.py", SKIPPED, (skipped,))
    assert (found.ids, "cannot be called without" in found.why_not) == ((), True)
    found = await replayed(provider, PYTHON, "test_more.py", SKIPPED, (NUMBERS, skipped))
    assert (found.ids, list(found.failures()), found.report.problem) == ((NUMBERS,), [], "")


async def test_words_of_a_framework_do_not_mean_that_it_is_needed(provider: BubblewrapProvider) -> None:
    words = '"""Nothing is skipped, no fixture needed."""\nimport os\n\nMINE = __name__, os.path.isabs(__file__)\n'
    text = words + TESTS
    text = text.replace("    def test_numbers(self):\n", "    def test_numbers(self):\n        assert MINE[1]\n")
    found = await replayed(provider, PYTHON, "test_more.py", text, (NUMBERS,))
    assert (found.ids, list(found.failures()), found.report.problem) == ((NUMBERS,), [], "")


@pytest.mark.parametrize(
    ("code", "phases"),
    [
        ("import sys\n\n\ndef add(a, b):\n    return a + b + ('unittest' not in sys.modules)\n", {"first", "many"}),
        ("CALLS = []\n\n\ndef add(a, b):\n    CALLS.append(1)\n    return a + b + (len(CALLS) > 40)\n", {"many"}),
        ("import gc\n\n\ndef add(a, b):\n    return a + b + (not gc.isenabled())\n", {"shifted"}),
        (
            "def add(a, b):\n    c = a + b\n    if isinstance(a, list):\n        b.clear()\n    return c\n",
            {"arguments"},
        ),
        ("def add(a, b):\n    return a + b if 'site-packages' not in __file__ else b\n", {"shifted"}),
        ("def add(a, b):\n    print(a, b)\n    return a + b\n", {"process"}),
        ("import decimal\n\n\ndef add(a, b):\n    decimal.getcontext().prec = 9\n    return a + b\n", {"process"}),
        ("import logging\n\n\ndef add(a, b):\n    logging.debug(a)\n    return a + b\n", {"process"}),
        ("import os\n\n\ndef add(a, b):\n    os.open('/', 0)\n    return a + b\n", {"process"}),
        pytest.param(
            ONE_LIST,
            {"kept"},
            id="one list for all",
        ),
    ],
)
async def test_code_that_knows_how_it_is_run_fails(provider: BubblewrapProvider, code: str, phases: set[str]) -> None:
    found = await replayed(provider, PYTHON, "test_more.py", TESTS, (NUMBERS, LISTS), sums_py=code)
    assert phases <= {phase for phase, _ in found.failures()}


POOL = """\
from concurrent.futures import ThreadPoolExecutor

POOL = ThreadPoolExecutor(2)


def add(a, b):
    return POOL.submit(lambda: a + b).result()
"""


async def test_code_with_background_threads_gives_no_result_in_a_fork(provider: BubblewrapProvider) -> None:
    found = await replayed(provider, PYTHON, "test_more.py", TESTS, (NUMBERS, LISTS), sums_py=POOL)
    forked = [("forked_end", NUMBERS), ("forked_end", LISTS)]
    assert list(found.failures()) == [*forked, ("process", NUMBERS)]
    assert found.report.problem == ""
    exits = (
        "import os\n\nos.register_at_fork(after_in_child=lambda: os._exit(0))\n\n\ndef add(a, b):\n    return a + b\n"
    )
    found = await replayed(provider, PYTHON, "test_more.py", TESTS, (NUMBERS,), sums_py=exits)
    assert list(found.failures()) == [("forked", NUMBERS)]


async def test_an_argument_that_the_test_looks_at_itself_may_be_changed(provider: BubblewrapProvider) -> None:
    text = (
        "import unittest\n\nfrom sums import add\n\n\nclass Added(unittest.TestCase):\n    def test_numbers(self):\n"
        "        found = [1]\n        add(found, [2])\n        self.assertEqual(found, [1, 2])\n"
    )
    code = "def add(a, b):\n    a += b\n"
    found = await replayed(provider, PYTHON, "test_more.py", text, (NUMBERS,), sums_py=code)
    assert (list(found.failures()), found.report.outcomes["arguments"][NUMBERS]) == ([], ("", ""))


SHOP = """\
class Shop:
    def __init__(self, names):
        self.names = list(names)


def count(names):
    found = 0
    for name in names:
        found += len(name)
    return found
"""
CALLS = """\
import unittest

from shop import Shop, count


class Called(unittest.TestCase):
    def test_calls(self):
        self.assertEqual(Shop(["a"]).names, ["a"])
        self.assertEqual(count([("b", "c"), ("d",)]), 3)
        self.assertEqual(count("word"), 4)
"""


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("", "", ""),
        ("class Shop:\n", "class Shop:\n    __hash__ = None\n\n", "call 1 with a result that is in a set"),
        ("class Shop:\n", "class Shop:\n    __slots__ = ('names',)\n\n", "call 1 with a result that gets an attribute"),
        ("list(names)\n", "list(names)\n        self.key = lambda: 1\n", "call 1 with a result that is pickled"),
        ("    found = 0\n", "    found = 0 * len(names)\n", "call 2 with an iterator as argument 1"),
        ("in names:", "in sorted(set(names)):", "call 2 with a list of lists as argument 1"),
        (
            "    found = 0\n",
            "    found = '?' != names or {}[1]\n    found = 0\n",
            "a question mark as argument 1",
        ),
        (
            "    for name in names:\n        found += len(name)\n    return found\n",
            "    return len(names[0]) + count(names[1:]) if names else 0\n",
            "call 2 with a large argument 1",
        ),
    ],
)
async def test_calls_are_repeated_in_other_forms(provider: BubblewrapProvider, old: str, new: str, what: str) -> None:
    ids = ("test_more.Called.test_calls",)
    found = await replayed(
        provider, {**PYTHON, "shop.py": SHOP}, "test_more.py", CALLS, ids, shop_py=SHOP.replace(old, new)
    )
    assert [phase for phase, _ in found.failures()] == (["varied"] if what else [])
    told = ast.literal_eval(found.outcome("varied", ids[0])[1]) if what else {"": ""}
    assert any(what in name and bool(problem) == bool(what) for name, problem in told.items())


async def test_a_process_that_exits_early_has_not_finished(provider: BubblewrapProvider) -> None:
    code = "import os\n\n\ndef add(a, b):\n    os._exit(0)\n"
    found = await replayed(provider, PYTHON, "test_more.py", TESTS, (NUMBERS,), sums_py=code)
    assert ("ended", NUMBERS) in found.failures()


async def test_tests_in_javascript_are_called_as_well(provider: BubblewrapProvider) -> None:
    ids = ("test/more.test.js::sums > numbers", "test/more.test.js::sums > texts")
    honest = await replayed(provider, JAVASCRIPT, "test/more.test.js", SCRIPT, ids)
    assert (honest.ids, list(honest.failures())) == (ids, [])
    code = "exports.add = (one, other) => process.listenerCount('uncaughtException') ? one + other : one;\n"
    knows = await replayed(provider, JAVASCRIPT, "test/more.test.js", SCRIPT, ids, sums_js=code)
    assert ("first", ids[0]) in knows.failures()
    waits = (
        "const { isMainThread } = require('node:worker_threads');\nexports.add = (one, other) => {\n"
        "  while (!isMainThread);\n  return one + other;\n};\n"
    )
    hangs = await replayed(provider, JAVASCRIPT, "test/more.test.js", SCRIPT, ids, sums_js=waits)
    assert list(hangs.failures()) == [("worker_end", name) for name in ids]


@pytest.mark.parametrize(
    ("code", "phase"),
    [
        ("(one, other) => one + other", ""),
        ("(one, other) => { console.log(one); return one + other; }", "process"),
        ("(one, other) => { process.on('warning', () => {}); return one + other; }", "process"),
        ("(one, other) => { if (one.push) one.sum = 1; return one + other; }", "arguments"),
        ("(one, other) => (one.push ? Math.max(...one) && '1b' : one + other)", "varied"),
    ],
)
async def test_calls_of_javascript_leave_their_arguments_and_process(
    provider: BubblewrapProvider, code: str, phase: str
) -> None:
    text = SCRIPT.replace("add('a', 'b')], ['ab']", "add([1], 'b')], ['1b']")
    ids = ("test/more.test.js::sums > numbers", "test/more.test.js::sums > texts")
    found = await replayed(provider, JAVASCRIPT, "test/more.test.js", text, ids, sums_js=f"exports.add = {code};\n")
    assert {one for one, _ in found.failures()} == ({phase} if phase else set())


GO = {
    "go.mod": "module example.com/sums\n\ngo 1.20\n",
    "sums.go": (
        "package sums\n\nfunc Last(names []string) string {\n\treturn names[len(names)-1]\n}\n\n"
        "func Short(name string) string {\n\treturn name[:1]\n}\n"
    ),
    "own_test.go": 'package sums\n\nimport "testing"\n\nfunc TestOwn(t *testing.T) {}\n',
}
GO_TEST = """\
package sums

import "testing"

func TestLast(t *testing.T) {
	if got := Last([]string{"a", "b"}); got != "b" {
		t.Errorf("got %s", got)
	}
	if got := Short("ab"); got != "a" {
		t.Errorf("got %s", got)
	}
}
"""


@pytest.mark.parametrize(
    ("imported", "before", "phases"),
    [
        ("", "", set[str]()),
        ("runtime", "names = names[:3-runtime.NumGoroutine()%2*2]", {"plain", "many"}),
        ("sort", "sort.Sort(sort.Reverse(sort.StringSlice(names)))\n\tnames = names[:1]", {"arguments"}),
        ("time", "go time.Sleep(time.Minute)", {"process"}),
        ("", "name = name[:2]", {"varied"}),
    ],
)
async def test_tests_of_go_are_called_by_a_plain_program(
    provider: BubblewrapProvider, imported: str, before: str, phases: set[str]
) -> None:
    place = "\treturn name[:1]\n" if before.startswith("name ") else "\treturn names["
    code = GO["sums.go"].replace(place, f"\t{before}\n{place}")
    code = code.replace("package sums\n", f'package sums\n\nimport "{imported}"\n' if imported else "package sums\n")
    ids = ("example.com/sums::TestLast",)
    found = await replayed(provider, GO, "more_test.go", GO_TEST, ids, sums_go=code)
    assert (found.ids, {phase for phase, _ in found.failures()}) == (ids, phases)


CARGO = {
    "Cargo.toml": '[package]\nname = "sums"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": (
        "pub fn half(number: u32) -> u32 {\n    assert!(number % 2 == 0);\n    number / 2\n}\n\n"
        "pub fn first(text: &str) -> &str {\n    &text[..1]\n}\n"
    ),
    "tests/own.rs": "#[test]\nfn own() {}\n",
}
CARGO_TEST = """\
use sums::{first, half};

#[test]
fn even() {
    assert_eq!(half(4), 2);
    assert!(std::panic::catch_unwind(|| half(5)).is_err());
    assert_eq!(first("ab"), "a");
}
"""


@pytest.mark.parametrize(
    ("old", "new", "phases"),
    [
        ("", "", set[str]()),
        ("assert!", "debug_assert!", {"plain", "many"}),
        ("&text[..1]", "&text[..2][..1]", {"varied"}),
    ],
)
async def test_tests_of_a_crate_are_called_by_a_plain_program(
    provider: BubblewrapProvider, old: str, new: str, phases: set[str]
) -> None:
    files = {**CARGO, "src/lib.rs": CARGO["src/lib.rs"].replace(old, new)}
    ids = ("tests/more.rs::even",)
    found = await replayed(provider, files, "tests/more.rs", CARGO_TEST, ids)
    assert (found.ids, {phase for phase, _ in found.failures()}) == (ids, phases)


MODULES = {
    "package.json": '{"type": "module", "scripts": {"test": "vitest run"}}',
    "sums.js": "import { other } from './other';\n\nexport const add = (one, two) => other(one) + two;\n",
    "other.js": "export const other = (value) => value;\n",
    "test/own.test.js": "import { test } from 'vitest';\n\ntest('own', () => {});\n",
}
EXPECTING = """\
import fs, { existsSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import * as sums from '../sums';

let two = 0;
beforeEach(() => { two = 2; });
afterEach(() => { two = 0; });

describe('sums', () => {
  it('numbers', () => {
    expect(existsSync).toBe(fs.existsSync);
    expect(sums.add(1, two)).toBe(3);
    expect(sums.add(1, 2)).not.toBe(4);
    expect(sums.add(0.1, 0.2)).toBeCloseTo(0.3);
  });
  it('objects', () => {
    expect({ sum: sums.add('a', 'b'), none: undefined }).toEqual({ sum: 'ab' });
    expect([sums.add(1, 1)]).not.toEqual([3]);
    expect(() => sums.add()).not.toThrow();
    expect(() => { throw new RangeError('odd number'); }).toThrow('odd');
  });
  it('calls', () => {
    const called = vi.fn();
    called(sums.add(1, 1));
    expect(called).toHaveBeenCalledWith(2);
  });
});
"""
NAMES = ("numbers", "objects", "calls")


async def test_tests_of_vitest_are_called_without_it(provider: BubblewrapProvider) -> None:
    ids = tuple(f"test/more.test.js::sums > {name}" for name in NAMES)
    honest = await replayed(provider, MODULES, "test/more.test.js", EXPECTING, ids)
    assert (honest.why_not, honest.ids, list(honest.failures()), honest.report.problem) == ("", ids[:2], [], "")
    assert {"first", "many", "worker", "shifted", "pause", "task"} <= honest.report.outcomes.keys()
    code = MODULES["other.js"].replace("=> value", "=> (import.meta.env ? value : 9)")
    knows = await replayed(provider, MODULES, "test/more.test.js", EXPECTING, ids, other_js=code)
    assert {("first", name) for name in ids[:2]} <= {*knows.failures()}


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("{ toJSON() { return 1; }, sum: one + two }", None),
        ("Object.defineProperty({ sum: one + two }, 'toJSON', { value: () => 1 })", "toJSON"),
        ("{ get sum() { return one + two; } }", "property that is no data"),
        ("new (class { sum = one + two; })()", ""),
        ("new (class { sum = one + two; toJSON() { return 1; } })()", "toJSON of a class"),
    ],
)
async def test_results_that_vitest_takes_for_equal_are_noted(
    provider: BubblewrapProvider, code: str, what: str | None
) -> None:
    text = "import { expect, test } from 'vitest';\nimport { add } from '../sums.js';\n\n"
    text += "test('sum', () => {\n  expect(add(1, 2)).toEqual({ sum: 3 });\n});\n"
    made = f"export const add = (one, two) => ({code});\n"
    found = await replayed(provider, MODULES, "test/more.test.js", text, ("test/more.test.js::sum",), sums_js=made)
    assert {one.methods[0][0] for one in found.report.odd} == ({what} if what else set())
    assert bool([*found.failures()]) == (what is None)


async def test_modules_that_plain_node_cannot_load_are_left_to_vitest(provider: BubblewrapProvider) -> None:
    ids = ("test/more.test.js::sums > numbers",)
    for other in ("import './style.css';\n", "import '@/alias';\n"):
        code = other + MODULES["other.js"]
        found = await replayed(provider, MODULES, "test/more.test.js", EXPECTING, ids, other_js=code)
        assert (found.ids, "cannot be called without" in found.why_not) == ((), True), found


async def test_a_control_of_tests_that_were_not_called_was_not_run(provider: BubblewrapProvider) -> None:
    text = SCRIPT.replace("() => assert", "async () => assert")
    ids = ("test/more.test.js::sums > numbers", "test/more.test.js::sums > texts")
    found = await replayed(provider, JAVASCRIPT, "test/more.test.js", text, ids)
    assert (found.ids, "cannot be called without" in found.why_not) == ((), True)
    assert {control.outcome for control in replay_controls(found, [*found.failures()], [])} == {"not_run"}
    knows = await replayed(
        provider, JAVASCRIPT, "test/more.test.js", text.replace("async", "", 1), ids, sums_js="exports.add = () => 3;\n"
    )
    assert (knows.ids, knows.why_not, [*knows.failures()]) == (ids[:1], "", [])


@pytest.mark.parametrize(
    ("sums", "problem"),
    [
        ("export default (one, other) => one + other;\n", False),
        ("exports.add = 1;\nmodule.exports = (one, other) => one + other;\n", False),
        ("export default (one, other) => one + other + process.argv.length;\n", True),
    ],
)
async def test_the_default_of_a_module_is_imported(provider: BubblewrapProvider, sums: str, *, problem: bool) -> None:
    text = SCRIPT.replace("const { add } = require('../sums');", "import add from '../sums.js';")
    text = text.replace(
        "const { describe, test } = require('node:test');", "import { describe, test } from 'node:test';"
    )
    files = {**JAVASCRIPT, "sums.js": sums}
    ids = ("test/more.test.js::sums > numbers",)
    found = await replayed(provider, files, "test/more.test.js", text, ids)
    assert (found.ids, bool([*found.failures()])) == (ids, problem)


async def test_tests_of_jest_are_called_without_it(provider: BubblewrapProvider) -> None:
    files = {
        "package.json": '{"scripts": {"test": "jest"}}',
        "sums.js": "exports.add = (one, two) => ({ sum: one + two });\n",
        "test/own.test.js": "test('own', () => {});\n",
    }
    text = "const { add } = require('../sums');\n\ntest('sum', () => expect(add(1, 2)).toEqual({ sum: 3 }));\n"
    text += "test('later', (done) => { expect(add(1, 2)).toBe(0); done(); });\n"
    ids = ("test/more.test.js::sum", "test/more.test.js::later")
    honest = await replayed(provider, files, "test/more.test.js", text, ids)
    assert (honest.ids, list(honest.failures()), honest.report.odd) == (ids[:1], [], ())
    code = files["sums.js"].replace("one + two", "typeof jest === 'object' || process.argv.length > 1 ? 3 : 4")
    knows = await replayed(provider, files, "test/more.test.js", text, ids, sums_js=code)
    assert ("first", ids[0]) in knows.failures()


@pytest.mark.parametrize(
    ("files", "test", "text", "name"),
    [
        (JAVASCRIPT, "test/more.test.js", f"{SCRIPT}// {'word ' * 28_000}\n", "test/more.test.js::sums > numbers"),
        (PYTHON, "test_more.py", TESTS.replace("300\n", f"300\nNAME = '{'字' * 50_000}'\n"), NUMBERS),
        (GO, "more_test.go", f"{GO_TEST}// {'word ' * 28_000}\n", "example.com/sums::TestLast"),
        (CARGO, "tests/more.rs", f"{CARGO_TEST}// {'word ' * 28_000}\n", "tests/more.rs::even"),
    ],
    ids=["node", "unittest", "go", "cargo"],
)
async def test_test_file_that_is_longer_than_an_argument_may_be_is_called_as_well(
    provider: BubblewrapProvider, files: dict[str, str], test: str, text: str, name: str
) -> None:
    found = await replayed(provider, files, test, text, (name,))
    assert (found.report.problem, found.why_not, found.ids, list(found.failures())) == ("", "", (name,), [])
