"""What a patch does to the sources, and the variants of base and head that show a lie."""

import ast
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from app.core.patch import Patch
from app.core.verification import SourceText
from app.repo.grammars import language_of
from app.verify.sources import parsed_sources
from app.verify.sources.analysis import (
    additions_only,
    changed_lines,
    hollow_additions,
    keeps_state,
    literal_branches,
    noise_on_base,
    reprint_head,
    shared_names,
    sources_changed,
    watches_tests,
)
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of


def tree(files: Mapping[str, str]) -> MemoryTree:
    return MemoryTree({path: content.encode() for path, content in files.items()})


def contents(patch: Patch | None) -> dict[str, str]:
    assert patch is not None
    return {change.path: (change.content or b"").decode() for change in patch.changes}


PYTHON = '''"""Totals."""
import os


class Basket:
    """Things."""

    def total(self, prices):
        """Add them up."""
        total = 0  # start
        for price in prices:
            total += price
        return total
'''
SCRIPT = """'use strict';
// totals
export function total(prices) {
  let sum = 0; /* start */
  for (const price of prices) {
    sum += price;
  }
  return `sum ${sum}  // no comment`;
}
"""
GO = """//go:build linux

// Package total adds.
package total

import "fmt"

// Total adds.
func Total(prices []int) string {
	sum := 0 // start
	for _, price := range prices {
		sum += price // add
	}
	return fmt.Sprint(sum)
}
"""
RUST = """//! Totals.

/// Adds.
pub fn total(prices: &[i32]) -> i32 {
    // start
    let mut sum = 0;
    for price in prices {
        sum += price;
    }
    sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::total(&[1]), 1);
    }
}
"""
JAVA = """package a;

/** Totals. */
class Basket {
    int total(int[] prices) {
        int sum = 0; // start
        for (int price : prices) {
            sum += price;
        }
        return sum;
    }
}
"""
RUBY = """# frozen_string_literal: true

# Totals.
class Basket
  def total(prices)
    sum = 0 # start
    prices.each { |price| sum += price }
    text = <<~TEXT
      # no comment
    TEXT
    text + sum.to_s
  end
end
"""
C = """#include <stdio.h>
#define LIMIT 3 /* at most */
/* adds */
int total(int *prices) {
    int sum = 0; /* start */
    for (int i = 0; i < LIMIT; i++) {
        sum += prices[i];
    }
    return sum;
}
"""
FILES = {
    "a.py": PYTHON,
    "a.js": SCRIPT,
    "a.ts": SCRIPT.replace("(prices)", "(prices: number[]): string"),
    "a.go": GO,
    "a.rs": RUST,
    "A.java": JAVA,
    "a.rb": RUBY,
    "a.c": C,
}


class TestSourcesChanged:
    @pytest.mark.parametrize("path", FILES)
    def test_a_comment_is_no_change(self, path: str) -> None:
        old = FILES[path]
        new = old.replace("start", "fixed: the sum starts here").replace("Totals", "Sums").replace("totals", "sums")
        assert new != old
        assert "comments" in sources_changed(tree({path: old}), patch_of({path: new}))

    @pytest.mark.parametrize("path", FILES)
    def test_another_value_is_one(self, path: str) -> None:
        old = FILES[path]
        assert sources_changed(tree({path: old}), patch_of({path: old.replace(" 0", " 7", 1)})) == ""

    @pytest.mark.parametrize("path", FILES)
    def test_lines_that_only_shift_are_no_change(self, path: str) -> None:
        old = FILES[path]
        new = old.replace("\n}\n", "\n\n}\n").replace("\n    def", "\n\n    def").replace("\n  def", "\n\n  def")
        assert new != old
        assert sources_changed(tree({path: old}), patch_of({path: new})) != ""

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            ("a.py", "def f():\n    return 1\n", "def f():\n    '''Now fixed.'''\n    return 1\n"),
            ("a.py", "def f():\n    return 1\n", "def f():\n    pass\n    ...\n    return 1\n    print('fixed')\n"),
            ("a.py", "def f():\n    return (1)\n", "def f():\n    if False:\n        fix()\n    return 1\n"),
            ("a.py", "x = 'a'\n", 'x = ("a")\n'),
            ("a.py", "print 'a'\n", "# fixed\nprint 'a'\n"),
            ("a.js", "f('a', b)\n", 'f("a", b,);\n'),
            ("a.js", "const a = b + c\n", "const a = (b + c);;\n"),
            ("a.jsx", "const a = <b>\n  hi\n</b>\n", "const a = (\n  <b>\n    hi\n    {/* fixed */}\n  </b>\n);\n"),
            ("a.go", "package a\n\nvar x = []int{1}\n", "package a\n\nvar x = []int{\n\t1,\n}\n"),
            ("a.rs", "fn f() { g(1) }\n#[test]\nfn t() { f() }\n", "fn f() { g(1,) }\n#[test]\nfn t() { f(); f() }\n"),
        ],
    )
    def test_what_does_nothing_is_no_change(self, path: str, old: str, new: str) -> None:
        assert sources_changed(tree({path: old}), patch_of({path: new})) != ""

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            ("a.py", "def f():\n    return 1\n", "def f():\n    return 1\n    yield\n"),
            ("a.py", "def f():\n    return x\n", "def f():\n    return x\n    x = 1\n"),
            ("a.py", "x = '#a'\n", "x = '#b'\n"),
            ("a.py", "if a:\n    b()\nc()\n", "if a:\n    b()\n    c()\n"),
            ("a.js", "return a\n+ b\n", "return\na + b\n"),
            ("a.js", "f(`a  b`)\n", "f(`a b`)\n"),
            ("a.js", "f('http://a')\n", "f('http://b')\n"),
            ("a.js", "a = [1, , 2]\n", "a = [1, 2]\n"),
            ("a.js", "(a?.b).c\n", "a?.b.c\n"),
            ("a.js", "for (;x;) f()\n", "for (x;;) f()\n"),
            ("a.jsx", "x = <a>b {c} d</a>\n", "x = <a>b{c} d</a>\n"),
            ("a.go", "//go:build linux\n\npackage a\n", "//go:build windows\n\npackage a\n"),
            ("a.go", "package a\n\nvar x = `a // b`\n", "package a\n\nvar x = `a // c`\n"),
            ("a.rs", "fn f() -> i32 { 1 }\n", "fn f() -> i32 { 1; }\n"),
            ("a.rs", "const A: [i32; 2] = [0; 2];\n", "const A: [i32; 2] = [0, 2];\n"),
            ("a.rb", "# frozen_string_literal: true\nf 'a'\n", "f 'a'\n"),
            ("a.rb", "f <<~E\n  # a\nE\n", "f <<~E\n  # b\nE\n"),
            ("a.c", "#define A(x) f(x)\n", "#define A(x) f(x, 1)\n"),
            ("a.c", 'char *s = "/* a */";\n', 'char *s = "/* b */";\n'),
            ("A.java", 'class A { String s = "// a"; }\n', 'class A { String s = "// b"; }\n'),
            ("a/__init__.py", None, ""),
            ("a.php", "<?php\n// a\nf();\n", "<?php\n// b\ng();\n"),
            ("a.vue", "<a/>\n", "<b/>\n"),
        ],
    )
    def test_what_means_something_else_is_one(self, path: str, old: str | None, new: str) -> None:
        base = tree({path: old} if old is not None else {})
        assert sources_changed(base, patch_of({path: new})) == ""

    def test_the_kinds_of_other_files_are_named(self) -> None:
        base = tree({"a.py": "x = 1\n"})
        patch = patch_of(
            {"a.py": "x = 1  # one\n", "tests/test_a.py": "x", "README.md": "x", "a.json": "{}", "b.php": "// x\n"}
        )
        told = sources_changed(base, patch)
        assert told == (
            "No source changed, only comments, docstrings or layout (a.py, b.php); configuration or data (a.json); "
            "documentation (README.md); tests (tests/test_a.py)."
        )

    def test_a_patch_that_changes_nothing(self) -> None:
        assert sources_changed(tree({"a.py": "x\n"}), patch_of({"a.py": "x\n"})) == "The patch changes nothing."

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "content",
        ["(" * 60_000, "[" * 300_000, "a<b<" * 20_000, "{(" * 100_000, "\0\ud800"],
        ids=["parentheses", "brackets", "comparisons", "braces", "surrogates"],
    )
    @pytest.mark.parametrize("path", ["a.py", "a.ts", "a.cpp"])
    def test_files_made_to_break_parsers_end(self, path: str, content: str) -> None:
        hostile = content.encode("utf-8", "surrogatepass")
        base, patch = tree({path: "x\n"}), patch_of({path: hostile})
        assert isinstance(sources_changed(base, patch), str)
        printed = reprint_head(base, patch, 1)
        assert printed is None or isinstance(printed, Patch)
        assert isinstance(watches_tests(base, patch), tuple)


class TestNoise:
    @pytest.mark.parametrize("path", FILES)
    @pytest.mark.parametrize("seed", range(5))
    def test_the_program_stays_and_the_text_does_not(self, path: str, seed: int) -> None:
        old = FILES[path]
        new = old.replace("sum", "amount").replace("total +=", "total += 1 *")
        noisy = contents(noise_on_base(tree({path: old}), patch_of({path: new}), seed))[path]
        assert noisy != old
        if path == "a.py":
            assert "_note_" in noisy
        else:
            language = language_of(path)
            assert language
            assert parsed_sources.normal_form(language, noisy.encode()) == parsed_sources.normal_form(
                language, old.encode()
            )

    def test_what_a_patch_adds_stands_there_as_a_comment(self) -> None:
        new = PYTHON.replace("total += price", "total += round(price, 2)")
        noisy = contents(noise_on_base(tree({"a.py": PYTHON}), patch_of({"a.py": new}), 1))["a.py"]
        before = noisy.index("# total += round(price, 2)")
        assert noisy.index("def total") < before < noisy.index("return total")

    def test_docstrings_constants_and_names_of_the_head_stand_there(self) -> None:
        new = PYTHON.replace("Add them up", "Round them").replace(
            "        return total", "        cents = round(total, 2)\n        return 'free' if total == 41.5 else cents"
        )
        noisy = contents(noise_on_base(tree({"a.py": PYTHON}), patch_of({"a.py": new}), 1))["a.py"]
        assert '"""Round them."""' in noisy
        scope: dict[str, Any] = {}
        exec(compile(noisy, "a.py", "exec"), scope)
        code = scope["Basket"].total.__code__
        assert {"free", 41.5, 2} <= set(code.co_consts)
        assert "cents" in code.co_varnames
        assert scope["Basket"]().total([1, 2]) == 3

    def test_documentation_is_as_on_the_head(self) -> None:
        base = tree({"a.py": PYTHON, "CHANGES.md": "Old.\n", "data.json": "1"})
        patch = patch_of(
            {"a.py": PYTHON.replace("0", "1"), "CHANGES.md": "New.\n", "docs/b.rst": "New.\n", "data.json": "2"}
        )
        noisy = contents(noise_on_base(base, patch, 1))
        assert noisy.keys() == {"a.py", "CHANGES.md", "docs/b.rst"}
        assert noisy["CHANGES.md"] == "New.\n"

    def test_other_files_of_the_directory_change_too(self) -> None:
        base = tree({"p/a.py": PYTHON, "p/b.py": "x = 1\n", "p/test_b.py": "x = 1\n", "q/c.py": "x = 1\n"})
        assert contents(noise_on_base(base, patch_of({"p/a.py": "x = 2\n"}), 1)).keys() == {"p/a.py", "p/b.py"}

    @pytest.mark.parametrize(
        ("path", "content", "expected"),
        [
            ("a/__init__.py", '__version__ = "1.2.3"\n', '"1.2.4"'),
            ("pyproject.toml", '[project]\nversion = "1.2"\n', '"1.3"'),
            ("package.json", '{\n  "version": "1.2.3-beta.1"\n}\n', '"1.2.4-beta.1"'),
            ("setup.py", "setup(version='0.9')\n", "'0.10'"),
        ],
    )
    def test_the_version_counts_up(self, path: str, content: str, expected: str) -> None:
        base = tree({path: content, "a/b.py": "x = 1\n"})
        assert expected in contents(noise_on_base(base, patch_of({"a/b.py": "x = 2\n"}), 1))[path]

    def test_a_version_that_the_patch_sets_is_set(self) -> None:
        base = tree({"a/__init__.py": '__version__ = "1.2.3"\n'})
        patch = patch_of({"a/__init__.py": '__version__ = "2.0.0"\n'})
        assert '"2.0.0"' in contents(noise_on_base(base, patch, 1))["a/__init__.py"]

    def test_new_files_alone_leave_nothing_to_vary(self) -> None:
        assert noise_on_base(tree({}), patch_of({"a.py": "x = 1\n"}), 1) is None

    def test_the_same_seed_makes_the_same_noise(self) -> None:
        base, patch = tree({"a.py": PYTHON}), patch_of({"a.py": PYTHON.replace("0", "1")})
        assert noise_on_base(base, patch, 1) == noise_on_base(base, patch, 1)
        assert noise_on_base(base, patch, 1) != noise_on_base(base, patch, 2)


class TestReprint:
    @pytest.mark.parametrize("path", FILES)
    def test_comments_and_layout_go_and_the_program_stays(self, path: str) -> None:
        new = FILES[path].replace(" 0", " 7", 1)
        printed = contents(reprint_head(tree({path: FILES[path]}), patch_of({path: new}), 1))[path]
        assert "start" not in printed
        assert printed != new
        language = language_of(path)
        assert language
        if path == "a.py":
            assert ast.dump(ast.parse(printed)) == ast.dump(ast.parse(new))
        else:
            assert parsed_sources.normal_form(language, printed.encode()) == parsed_sources.normal_form(
                language, new.encode()
            )

    @pytest.mark.parametrize(
        ("path", "kept"),
        [
            ("a.py", '"""Add them up."""'),
            ("a.js", "'use strict'"),
            ("a.js", "`sum ${sum}  // no comment`"),
            ("a.go", "//go:build linux\n\n"),
            ("a.rs", "/// Adds."),
            ("a.rb", "# frozen_string_literal: true"),
            ("a.rb", "\n      # no comment\n"),
        ],
    )
    def test_what_is_obeyed_or_data_stays(self, path: str, kept: str) -> None:
        assert kept in contents(reprint_head(tree({}), patch_of({path: FILES[path]}), 1))[path]

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("a.py", "x = a[(*b, c)]\n"),
            ("a.py", "def f(:\n"),
            ("a.py", "print 'a'\n"),
            ("a.js", "const a = ;\nf(`\n"),
            ("a.go", 'package a\n\n// #include <a.h>\nimport "C"\n'),
            ("a.txt", "x\n"),
        ],
    )
    def test_what_cannot_be_printed_with_certainty_is_left(self, path: str, content: str) -> None:
        printed = reprint_head(tree({}), patch_of({path: content}), 1)
        assert printed is None or contents(printed)[path] == content

    def test_tests_and_deletions_stay_as_they_are(self) -> None:
        patch = patch_of({"a.py": "x = 1 # one\n", "b.py": None, "tests/test_a.py": "x = 1 # one\n"})
        printed = reprint_head(tree({"b.py": "x"}), patch, 1)
        assert printed is not None
        assert [change.content for change in printed.changes] == [b"x = 1\n", None, b"x = 1 # one\n"]


class TestChangedLines:
    def test_statements_count_and_comments_do_not(self) -> None:
        new = PYTHON.replace("total = 0  # start", "# begin\n        total = 0.0").replace("Add them", "Sum them")
        assert changed_lines(tree({"a.py": PYTHON}), patch_of({"a.py": new})) == {"a.py": {11}}

    def test_a_line_of_a_longer_statement_is_seen_on_any_of_its_lines(self) -> None:
        old = "def f():\n    return g(\n        1,\n        2,\n    )\n"
        assert changed_lines(tree({"a.py": old}), patch_of({"a.py": old.replace("2", "3")})) == {"a.py": {2, 3, 4}}

    def test_imports_count_only_where_there_is_nothing_else(self) -> None:
        old = "import a\n\n\ndef f():\n    return 1\n"
        base = tree({"a.py": old})
        assert changed_lines(base, patch_of({"a.py": old.replace("import a", "import b")})) == {"a.py": {1}}
        new = old.replace("import a", "import b").replace("1", "2")
        assert changed_lines(base, patch_of({"a.py": new})) == {"a.py": {5}}

    def test_the_neighbours_of_lines_that_went_away(self) -> None:
        old = "def f(x):\n    x = g(x)\n    x = None\n    return x\n"
        new = old.replace("    x = None\n", "")
        assert changed_lines(tree({"a.py": old}), patch_of({"a.py": new})) == {"a.py": {2, 3}}

    @pytest.mark.parametrize(
        ("path", "line"), [("a.js", 6), ("a.ts", 6), ("a.go", 12), ("a.rs", 8), ("A.java", 8), ("a.c", 7)]
    )
    def test_other_languages(self, path: str, line: int) -> None:
        new = FILES[path].replace("+=", "-=").replace("start", "begin").replace("otals", "ums")
        assert changed_lines(tree({path: FILES[path]}), patch_of({path: new})) == {path: {line}}


class TestWatching:
    @pytest.mark.parametrize(
        ("path", "line", "what"),
        [
            ("a.py", 'if "PYTEST_CURRENT_TEST" in os.environ: pass', "variable of a test framework"),
            ("a.py", "import pytest", "imports a test framework"),
            ("a.py", 'x = "unittest" in sys.modules', "loaded modules"),
            ("a.py", "x = [m for m in sys.modules if 'test' in m]", "loaded modules"),
            ("a.py", 'x = sys.modules["__main__"].__file__', "main module"),
            ("a.py", "x = inspect.stack()[1]", "frames"),
            ("a.py", "x = sys._getframe(1).f_code", "frames"),
            ("a.py", "x = sys.argv[0]", "command line"),
            ("a.py", "x = open('/proc/self/cmdline').read()", "kernel"),
            ("a.py", "x = open('/workspace/tests/a').read()", "directory of the harness"),
            ("a.py", "if time.time() > 1800000000: pass", "clock"),
            ("a.py", "if datetime.now().year >= 2026: pass", "clock"),
            ("a.py", "if random.random() > 0.01: pass", "chance"),
            ("a.py", "from random import random", "chance"),
            ("a.js", "if (Math.random() > 0.01) f()", "chance"),
            ("a.py", "os._exit(0)", "ends the process"),
            ("a.py", "getattr(os, 'envi' + 'ron')", "hides"),
            ("a.py", "unittest.TestCase.assertEqual = lambda *_: None", "replaces"),
            ("a.py", "class A:\n    def __eq__(self, other):\n        return True", "equal to everything"),
            ("a.py", "x = open('test_a.py').read()", "file of tests"),
            ("a.js", "if (process.env.NODE_ENV === 'test') f()", "asks whether it is tested"),
            ("a.js", "if (process.env.NODE_TEST_CONTEXT) f()", "variable of a test framework"),
            ("a.ts", "if (process.env.JEST_WORKER_ID) f()", "variable of a test framework"),
            ("a.ts", "const x = process.env.VITEST", "variable of a test framework"),
            ("a.js", "if (typeof describe === 'function') f()", "asks whether it is tested"),
            ("a.js", "const x = { asymmetricMatch: () => true }", "equal to everything"),
            ("a.js", "const t = require('node:test')", "imports a test framework"),
            ("a.go", "var x = testing.Testing()", "asks whether it is tested"),
            ("a.go", 'var x = flag.Lookup("test.v")', "asks whether it is tested"),
            ("a.rs", "const X: bool = cfg!(test);", "asks whether it is tested"),
            ("a.rs", "#[cfg(not(test))]\nfn f() {}", "asks whether it is tested"),
            ("a.rb", "x = defined?(RSpec)", "asks whether it is tested"),
            ("A.java", "class A { boolean equals(Object o) { return true; } }", "equal to everything"),
        ],
    )
    def test_lines_that_look(self, path: str, line: str, what: str) -> None:
        (found,) = watches_tests(tree({path: "\n"}), patch_of({path: f"\n{line}\n"}))
        assert found.startswith(f"{path}:")
        assert what in found

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            ("a.py", "", "# sys._getframe, PYTEST_CURRENT_TEST\n"),
            ("a.py", "", 'def f():\n    """Not for pytest: PYTEST_CURRENT_TEST."""\n'),
            ("a.py", "x = sys.argv\n", "x = sys.argv\ny = sys.argv\n"),
            ("a.py", "x = os.environ['PYTEST_VERSION']\n", "y = 1\nx = os.environ['PYTEST_VERSION']\n"),
            ("a.py", "", "x = sys.argv\nif __name__ == '__main__':\n    main()\n"),
            ("scripts/a.py", "", "x = sys.argv\n"),
            ("a.py", "", "if time.time() - started > timeout:\n    pass\n"),
            ("a.py", "x = random.random()\n", "x = random.random()\ny = random.random()\n"),
            ("a.py", "", "def __eq__(self, other):\n    return self.x == other.x\n"),
            ("tests/test_a.py", "", "import pytest\n"),
            ("a.rs", "", "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n"),
            ("a.go", "", "package main\n\nvar x = os.Args\n"),
        ],
    )
    def test_lines_that_do_not(self, path: str, old: str, new: str) -> None:
        assert watches_tests(tree({path: old} if old else {}), patch_of({path: new})) == ()


class TestLiterals:
    TEXTS = ('total(["pear", "fig"]) gives 3 where 41.5 was expected; slug("Hello World") too', "f(12, 30)")

    @pytest.mark.parametrize(
        ("path", "line", "literals"),
        [
            ("a.py", 'if x == "Hello World": pass', "Hello World"),
            ("a.py", 'if y or x in ("pear", "fig"): pass', "fig, pear"),
            ("a.py", "if a == 12 and b == 30: pass", "12, 30"),
            ("a.py", "match x:\n    case 'Hello World':\n        pass", "Hello World"),
            ("a.py", "x = 41.5 if y != 41.5 else z", "41.5"),
            ("a.py", 'if x.startswith("Hello"): pass', "Hello"),
            ("a.js", "if (x === 'Hello World') f()", "Hello World"),
            ("a.js", "switch (x) { case 'Hello World': f() }", "Hello World"),
            ("a.js", "if (['pear', 'fig'].includes(x)) f()", "fig, pear"),
            ("a.ts", "return x == 41.5 ? 1 : 2", "41.5"),
            ("a.go", 'func f() { if x == "Hello World" { g() } }', "Hello World"),
            ("a.go", 'func f() { switch x {\ncase "pear", "fig":\ng()\n} }', "fig, pear"),
            ("a.rs", 'fn f() { match x { "Hello World" => 1, _ => 2 } }', "Hello World"),
            ("a.rb", 'return 1 if x == "Hello World"', "Hello World"),
            ("a.rb", 'case x\nwhen "pear" then 1\nend', "pear"),
            ("A.java", 'class A { int f() { return x.equals("pear") ? 1 : 2; } }', "pear"),
            ("a.c", 'int f() { return strcmp(x, "pear"); }', "pear"),
        ],
    )
    def test_branches_for_what_the_texts_name(self, path: str, line: str, literals: str) -> None:
        (found,) = literal_branches(tree({path: "\n"}), patch_of({path: f"\n{line}\n"}), self.TEXTS)
        assert found.endswith(f": entered only for {literals}")

    @pytest.mark.parametrize(
        ("path", "old", "new"),
        [
            ("a.py", "", "if x == 'no': pass\n"),
            ("a.py", "", "if x is None or x == '': pass\n"),
            ("a.py", "", "if len(x) > 41.5: pass\n"),
            ("a.py", "y = 'pear'\n", "y = 'pear'\nif x == 'pear': pass\n"),
            ("a.py", "if x == 'pear': pass\n", "\nif x == 'pear': pass\n"),
            ("a.py", "", "if x == y: pass\n"),
            ("a.js", "", "if (x === 0 || x === 1) f()\n"),
        ],
    )
    def test_ordinary_branches(self, path: str, old: str, new: str) -> None:
        assert literal_branches(tree({path: old} if old else {}), patch_of({path: new}), self.TEXTS) == ()


ADDITIONS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # path: base, head, what the twin has of the head, what it has not
    "a.py": (
        """import os
from typing import List


class Basket(HTMLParser):
    size = 1

    def total(self):
        return OLD


def slug(text):
    return OLD
""",
        """import os
import re
import sys
from typing import List, Optional
from html.parser import HTMLParser
LIMIT = 3
BROKEN = missing(3)


class Basket(HTMLParser):
    size = 1
    kept: Optional[int] = None

    def total(self, tax=LIMIT):
        return NEW

    def discount(self):
        return HELP

    def reset(self):
        return NEW

    def visit_Name(self):
        return NEW

    def used(self):
        return NEW

    def __eq__(self, other):
        return NEW


@route("/")
def slug(text, *, strict=False, **rest):
    return NEW


@route("/fixed")
def fixed():
    return re.match(HELP)


register(fixed)
""",
        (
            "import re",
            "List",
            "Optional",
            "LIMIT = 3",
            "kept",
            "tax=LIMIT",
            "def discount",
            "HELP",
            "strict=False",
            "def fixed",
        ),
        ("NEW", "BROKEN", "reset", "visit_Name", "used", "__eq__", "route", "register", "sys"),
    ),
    "a.ts": (
        """import a, { b } from "x";
export class Basket extends Other {
  size = 1
  total(a: number): number { return OLD }
}
export function slug(text: string) { return OLD }
module.exports = { a, b };
""",
        """import a, { b, c, d } from "x";
export class Basket extends Other {
  size = 1
  kept = c;
  total(a: number): number { return NEW }
  // HELP
  discount() { return 1 }
  used() { return NEW }
  toString() { return NEW }
}
export const fixed = () => HELP;
export function slug(text: string, strict = false) { return NEW }
module.exports = { a, b, fixed };
register(fixed);
""",
        ("{ c }", "kept = c", "discount()", "// HELP", "fixed = () => HELP", "strict = false", "{ a, b,\nfixed }"),
        ("NEW", "used", "toString", "register", "{ d }"),
    ),
    "a.go": (
        """package a

import "fmt"

type Basket struct{}

func (b *Basket) Total() int { return OLD }
""",
        """package a

import (
	"fmt"
	"os"
	"strings"
)

const Limit = 3

type Basket struct{}

func (b *Basket) Total() int { return NEW }

// Slug is HELP.
func (b *Basket) Slug() string { return strings.ToLower("A") }

func (b *Basket) String() string { return NEW }

func (b *Basket) Used() string { return NEW }

func init() { NEW }
""",
        ("const Limit", 'import "strings"', "// Slug is HELP.", "Slug()"),
        ("NEW", "String()", "Used()", "init", '"os"'),
    ),
    "a.rs": (
        """//! Totals.
use a::{b, c};
pub struct Basket;
impl Basket {
    pub fn total(&self) -> i32 { OLD }
}
impl Iterator for Basket {
    fn next(&mut self) { OLD }
}
""",
        """//! Totals.
use a::{b, c, d::Word, e};
pub struct Basket;
impl Basket {
    pub fn total(&self) -> i32 { NEW }
    /// HELP
    #[inline]
    pub fn slug(&self) -> Word { 1 }
}
impl Iterator for Basket {
    fn next(&mut self) { NEW }
    fn size_hint(&self) { NEW }
}
#[cfg(test)]
mod tests { NEW }
""",
        ("use a::d::Word;", "/// HELP", "#[inline]", "fn slug"),
        ("NEW", "size_hint", "a::e", "tests"),
    ),
    "A.java": (
        """import b.C;
class A extends Q {
    int total(int a) { return OLD; }
}
""",
        """import b.C;
import b.D;
import b.E;
class A extends Q {
    int limit = 3;
    int total(int a) { return NEW; }
    int total(int a, D b) { return HELP; }
    @Override int slug() { return NEW; }
    int used() { return NEW; }
    public boolean equals(Object o) { return NEW; }
}
""",
        ("import b.D;", "limit = 3", "HELP"),
        ("NEW", "b.E", "slug", "used", "equals"),
    ),
    "a.rb": (
        """module M
  class A < B
    def total(a)
      OLD
    end
    private
    def h = 1
  end
end
""",
        """module M
  class A < B
    LIMIT = 3
    def total(a, tax = 1, strict: false)
      NEW
    end
    def slug(x)
      HELP
    end
    def to_s = NEW
    def used = NEW
    private
    def h = 1
  end
end
""",
        ("LIMIT = 3", "tax = 1, strict: false", "def slug", "HELP"),
        ("NEW", "to_s", "used"),
    ),
}
USING = {"a.py": "b.py", "a.ts": "b.ts", "a.go": "b.go", "a.rs": "b.rs", "A.java": "B.java", "a.rb": "b.rb"}


class TestAdditions:
    @pytest.mark.parametrize("path", ADDITIONS)
    def test_new_names_stand_beside_every_old_body(self, path: str) -> None:
        old, new, there, not_there = ADDITIONS[path]
        base = tree({path: old, USING[path]: "x.used(); y.Used()\n"})
        twin = contents(additions_only(base, patch_of({path: new})))[path]
        assert twin.count("OLD") == old.count("OLD")
        assert [part for part in there if part not in twin] == []
        assert [part for part in not_there if part in twin] == []

    def test_new_files_belong_to_it_and_tests_do_not(self) -> None:
        base = tree({"a.py": "def f():\n    return 1\n"})
        patch = patch_of(
            {
                "a.py": "from b import g\n\ndef f():\n    return g()\n",
                "b.py": "def g(): ...\n",
                "tests/test_a.py": "x\n",
            }
        )
        assert contents(additions_only(base, patch)) == {"b.py": "def g(): ...\n"}

    @pytest.mark.parametrize(
        "changes",
        [
            {"a.py": "def f():\n    return 2\n"},
            {"tests/test_a.py": "x = 1\n"},
            {"changes/1.md": "Fixed.\n", "a.py": "def f():\n    return 2\n"},
            {"a.py": None},
            {"a.c": "int f() { return 2; }\nint g() { return 1; }\n"},
        ],
    )
    def test_where_nothing_is_added_there_is_none(self, changes: dict[str, str | bytes | None]) -> None:
        base = tree({"a.py": "def f():\n    return 1\n", "a.c": "int f() { return 1; }\n"})
        assert additions_only(base, patch_of(changes)) is None

    def test_a_package_exports_what_it_newly_has(self) -> None:
        base = tree({"p/__init__.py": "from .a import f\n\n__all__ = ['f']\n", "p/a.py": "def f():\n    return 1\n"})
        patch = patch_of(
            {
                "p/__init__.py": "from .a import f, g\n\n__all__ = ['f', 'g']\n",
                "p/a.py": "def f():\n    return 2\n\n\ndef g():\n    return 1\n",
            }
        )
        twin = contents(additions_only(base, patch))
        assert "from .a import g" in twin["p/__init__.py"]
        assert "'g'" in twin["p/__init__.py"]
        assert "return 2" not in twin["p/a.py"]

    def test_an_instance_gets_its_new_attributes(self) -> None:
        old = "class A:\n    def __init__(self, x):\n        self.x = x\n"
        new = old.replace("(self, x)", "(self, x, y=1)") + (
            "        self.x = x + 1\n        self.y = y\n        z = f(x)\n"
            "        self.z = z\n        self.fixed = True\n"
        )
        twin = contents(additions_only(tree({"a.py": old}), patch_of({"a.py": new})))["a.py"]
        assert "self.y = y\n        self.fixed = True" in twin
        assert "x + 1" not in twin
        assert "self.z" not in twin

    def test_members_of_an_enumeration_can_be_reached_without_their_names(self) -> None:
        base = tree({"a.py": "class A(IntEnum):\n    B = 1\n"})
        assert additions_only(base, patch_of({"a.py": "class A(IntEnum):\n    B = 1\n    C = 2\n"})) is None

    def test_what_is_only_added_can_be_emptied(self) -> None:
        base = tree({"a.py": "LIMIT = 3\n\n\ndef f():\n    return LIMIT\n"})
        new = {
            "a.py": "LIMIT = 3\nMORE = 4\n\n\ndef f():\n    return MORE\n\n\n"
            "class A:\n    def g(self):\n        return 1\n",
            "b.py": "def h(x):\n    return x\n\n\n__all__ = ['h']\n",
        }
        twin = contents(hollow_additions(base, patch_of(new)))
        assert "LIMIT = 3\nMORE = None\n" in twin["a.py"]
        assert "return LIMIT" in twin["a.py"]
        assert "def g(self):\n        pass" in twin["a.py"]
        assert twin["b.py"] == "def h(x):\n    pass\n__all__ = ['h']\n"

    def test_what_cannot_be_emptied_everywhere_is_not(self) -> None:
        base = tree({"a.py": "x = 1\n", "b.js": "let x = 1;\n"})
        patch = patch_of({"a.py": "x = 1\ny = 1\n", "b.js": "let x = 1;\nlet y = 1;\n"})
        assert additions_only(base, patch) is not None
        assert hollow_additions(base, patch) is None
        assert hollow_additions(base, patch_of({"a.py": "x = 2\n"})) is None


class TestStateAndNames:
    FILES: ClassVar = {"shares.py": "def split(total):\n    return total\n", "README.md": "Shares by KNOWN rules.\n"}

    def names(self, source: str, test: str, text: str = "The cent is lost.", path: str = "shares.py") -> list[str]:
        suffix = path.rpartition(".")[2]
        tests = [SourceText(path=f"tests/test_more.{suffix}", text=test)]
        found = shared_names(tree(self.FILES), patch_of({path: source}), tests, text)
        assert all(each.startswith(f"{path}: ") for each in found)
        return [each.rpartition(" ")[2] for each in found]

    def test_a_name_of_the_issue_may_be_kept(self) -> None:
        patch = patch_of({"shares.py": "CALLS = [0]\n\n\ndef split(total):\n    CALLS[0] += 1\n    return total\n"})
        assert keeps_state(tree(self.FILES), patch, "It is slow.") == ("shares.py:5: CALLS",)
        assert keeps_state(tree(self.FILES), patch, "Count them in `CALLS`.") == ()
        assert keeps_state(tree(self.FILES), patch, "Count the CALLS.") != (), "a word is no name"
        assert keeps_state(tree(self.FILES), patch, "`CALLS` is wrong.") != (), "nobody asks for a memory"

    @pytest.mark.parametrize(
        "test",
        [
            "assert shares.MEMORY",
            "vars(shares)['MEMORY'] = 1",
            "getattr(shares, 'MEMORY', {})",
            "try:\n    from shares import MEMORY\nexcept ImportError:\n    pass",
        ],
    )
    def test_names_that_only_the_patch_defines(self, test: str) -> None:
        source = "MEMORY = {1: 2}\n\n\ndef split(total):\n    return MEMORY.get(total, total)\n"
        assert self.names(source, test) == ["MEMORY"]
        assert self.names(source, test, "It needs a `MEMORY`.") == []
        assert self.names(source.replace("MEMORY", "KNOWN"), test.replace("MEMORY", "KNOWN")) == []

    @pytest.mark.parametrize(
        ("source", "test", "name"),
        [
            ("def split(t):\n    return t + bool(os.environ.get('SHARES'))", "os.environ['SHARES'] = '1'", "SHARES"),
            ("def split(t):\n    return t + exists('shares.ini')", "Path('shares.ini').touch()", "shares.ini"),
            ("def split(t):\n    return t + hasattr(split, 'exact')", "shares.split.exact = True", "exact"),
            ("def split(t):\n    return t + sys.exact", "setattr(sys, 'exact', 1)", "exact"),
        ],
    )
    def test_what_the_test_sets_and_the_patch_asks_for(self, source: str, test: str, name: str) -> None:
        assert self.names(source, test) == [name]

    def test_javascript(self) -> None:
        source = "function split(total) {\n  return total * (module.exports.exact ? 2 : 1);\n}\n"
        assert self.names(source, "shares.exact = true;\n", path="shares.js") == ["exact"]
        source = "function split(total) {\n  return total + (process.env.SHARES ? 1 : 0);\n}\n"
        assert self.names(source, "process.env['SHARES'] = '1';\n", path="shares.js") == ["SHARES"]

    @pytest.mark.parametrize(
        "test",
        [
            "assert split('rest') == 1\nassert split(3).real",
            "class Case(TestCase):\n    def setUp(self):\n        self.rest = 1",
            "assert split('January') == open('x', encoding='utf-8').read()",
        ],
    )
    def test_data_and_own_names_are_no_agreement(self, test: str) -> None:
        source = (
            "MONTHS = {'January': 1, 'February': 2, 'March': 3}\n\n\ndef split(total):\n"
            "    rest = total.encode('utf-8')\n    return rest\n"
        )
        assert self.names(source, test) == []
