"""What a patch changes in the sources, and what it finds there."""

from itertools import pairwise
from typing import ClassVar

import pytest

from app.core.examples import SourceText
from app.verify.sources.node_modules import changed_places
from app.verify.sources.parsed_sources import NotParsedError
from tests.support.source_samples import FILES, PYTHON, analysis_of


class TestSourcesChanged:
    @pytest.mark.parametrize("path", FILES)
    def test_a_changed_comment_is_not_reported(self, path: str) -> None:
        old = FILES[path]
        new = old.replace("start", "fixed: the sum starts here").replace("Totals", "Sums").replace("totals", "sums")
        assert new != old
        assert "comments" in analysis_of({path: old}, {path: new}).unchanged

    @pytest.mark.parametrize("path", FILES)
    def test_another_value_is_one(self, path: str) -> None:
        old = FILES[path]
        assert analysis_of({path: old}, {path: old.replace(" 0", " 7", 1)}).unchanged == ""

    @pytest.mark.parametrize("path", FILES)
    def test_lines_that_only_shift_are_not_changes(self, path: str) -> None:
        old = FILES[path]
        new = old.replace("\n}\n", "\n\n}\n").replace("\n    def", "\n\n    def").replace("\n  def", "\n\n  def")
        assert new != old
        assert analysis_of({path: old}, {path: new}).unchanged != ""

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
    def test_a_change_without_effect_is_not_reported(self, path: str, old: str, new: str) -> None:
        assert analysis_of({path: old}, {path: new}).unchanged != ""

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
    def test_a_change_of_meaning_is_a_change(self, path: str, old: str | None, new: str) -> None:
        base = {path: old} if old is not None else {}
        assert analysis_of(base, {path: new}).unchanged == ""

    def test_the_kinds_of_other_files_are_named(self) -> None:
        base = {"a.py": "x = 1\n"}
        patch = {"a.py": "x = 1  # one\n", "tests/test_a.py": "x", "README.md": "x", "a.json": "{}", "b.php": "// x\n"}
        told = analysis_of(base, patch).unchanged
        assert told == (
            "No source changed, only comments, docstrings or layout (a.py, b.php); configuration or data (a.json); "
            "documentation (README.md); tests (tests/test_a.py)."
        )

    def test_a_patch_that_changes_nothing(self) -> None:
        assert analysis_of({"a.py": "x\n"}, {"a.py": "x\n"}).unchanged == "The patch changes nothing."


class TestChangedLines:
    def test_statements_count_and_comments_do_not(self) -> None:
        new = PYTHON.replace("total = 0  # start", "# begin\n        total = 0.0").replace("Add them", "Sum them")
        assert analysis_of({"a.py": PYTHON}, {"a.py": new}).executable_lines == {"a.py": {11}}

    def test_a_line_of_a_longer_statement_is_seen_on_any_of_its_lines(self) -> None:
        old = "def f():\n    return g(\n        1,\n        2,\n    )\n"
        assert analysis_of({"a.py": old}, {"a.py": old.replace("2", "3")}).executable_lines == {"a.py": {2, 3, 4}}

    def test_imports_count_only_where_there_is_nothing_else(self) -> None:
        old = "import a\n\n\ndef f():\n    return 1\n"
        base = {"a.py": old}
        assert analysis_of(base, {"a.py": old.replace("import a", "import b")}).executable_lines == {"a.py": {1}}
        new = old.replace("import a", "import b").replace("1", "2")
        assert analysis_of(base, {"a.py": new}).executable_lines == {"a.py": {5}}

    def test_the_neighbours_of_lines_that_went_away(self) -> None:
        old = "def f(x):\n    x = g(x)\n    x = None\n    return x\n"
        new = old.replace("    x = None\n", "")
        assert analysis_of({"a.py": old}, {"a.py": new}).executable_lines == {"a.py": {2, 3}}

    @pytest.mark.parametrize(
        ("path", "line"), [("a.js", 6), ("a.ts", 6), ("a.go", 12), ("a.rs", 8), ("A.java", 8), ("a.c", 7)]
    )
    def test_other_languages(self, path: str, line: int) -> None:
        new = FILES[path].replace("+=", "-=").replace("start", "begin").replace("otals", "ums")
        assert analysis_of({path: FILES[path]}, {path: new}).executable_lines == {path: {line}}


NODE_CHANGES = (
    "a .equal = f;",
    "a/**/.equal = f;",
    "a\n  .equal = f;",
    "(a).equal = f;",
    "(a.equal) = f;",
    "(0, a).equal = f;",
    "(f ? a : b).equal = f;",
    "a?.b.equal ||= f;",
    "[a.equal] = [f];",
    "[...a.x] = f;",
    "({ a: a.equal } = { a: f });",
    "({ a: [a.equal = 3] } = b);",
    "for (a.equal of [f]);",
    "a[k[0]] = f;",
    "a.equal++;",
    "delete a.equal;",
    "Reflect . set((a), 'equal', f);",
    "const b = a; b.equal = f;",
    "let b; b = a; b.equal = f;",
    "const [b] = [a]; b.equal = f;",
    "const { b } = { b: a }; b.equal = f;",
    "for (const b of [a]) b.equal = f;",
    "function g(b = a) { b.equal = f; }",
    "(function (b) { b.equal = f; })(a);",
    "class B { constructor() { a.equal = f; } }",
    "const { title: b } = { title: a }; b.equal = f;",
    "const b = { title: a }; b.title.c.equal = f;",
    "const { b } = { c: 1, ['b']: a }; b.equal = f;",
    "const { c: { b } } = { c: { ...{ b: a } } }; b.equal = f;",
    "const [, b] = [1, a]; b.equal = f;",
    "const [, b] = [...[1, a]]; b.equal = f;",
    "const [c, ...b] = [1, a]; b[0].equal = f;",
    "const b = [a]; for (const c of b) c.equal = f;",
    "function g(a) { a.equal = f; } g(a);",
    "g(1, a); function g(c, ...b) { b[0].equal = f; }",
    "g(1, 2, a); function g(c, ...b) { b[1].equal = f; }",
    "const g = ({ b }) => { b.equal = f; }; g({ b: a });",
    "let g; g = function (b) { b.equal = f; }; new g(a);",
    "(function (b) { b.equal = f; }).call(null, a);",
    "function g(b) { b.equal = f; } g.apply(null, [a]);",
    "((b) => { b.equal = f; }).bind(null, a)();",
    "[1, a].forEach((a) => { a.equal = f; });",
    "const b = [a]; function g(c) { c.equal = f; } b.map(g);",
    "[a].reduce((b) => { b.equal = f; });",
    "[a].reduce((c, b) => { b.equal = f; }, {});",
    "[1].reduce((b) => { b.equal = f; }, a);",
    "try { throw a; } catch (a) { a.equal = f; }",
    "try { throw { b: a }; } catch ({ b }) { b.equal = f; }",
)
"""Each changes the module that has the name `a`."""
TYPED = "g<T>(1, a); function g<T>(this: T, c: T, ...b: T[]) { b[0].equal = f; }"
NAMES = [f"a{number}" for number in range(5_001)]
CHAIN = "".join(f"const {name} = {before}; {name}.x = f;" for before, name in pairwise(NAMES))


class TestWatching:
    @pytest.mark.parametrize(
        ("path", "line", "what"),
        [
            ("a.py", "if faulthandler.is_enabled(): pass", "handles faults"),
            ("a.js", "x = process.listenerCount('exit');", "handles faults"),
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
            *(
                ("a.rs", f"fn f(x: u8) -> P {{ match x {{ {text} _ => P {{ x }} }} }}", "asks whether it is tested")
                for text in (
                    "#[cfg(test)] 1 => P { x: 2 },",
                    "#[cfg(all(miri, test))] 1 => P { x: 2 },",
                    "#[cfg (\n    test\n)] 1 => P { x: 2 },",
                    "2 => P { #[cfg(test)] x: 1, #[cfg(any())] x: 2 },",
                    '#[cfg(any(kind = "\\"\n", test))] 1 => P { x: 2 },',
                    '#[cfg(any(kind = r#"a"b"#, test))] 1 => P { x: 2 },',
                    '#[cfg(any(kind = r"\\", test))] 1 => P { x: 2 },',
                    "#[cfg(any(miri,\u200etest))] 1 => P { x: 2 },",
                    "3 => g([#[cfg(test)] 4, 5]),",
                    "4 if cfg!(any(test)) => P { x: 2 },",
                    "5 if cfg ! [test] => P { x: 2 },",
                )
            ),
            *(
                ("a.rs", text, "has a condition that a macro fills in, or that is too long")
                for text in (
                    f"#[cfg(any({'miri, ' * 2000}test))]\nconst A: u8 = 1;",
                    f'#[cfg(any(kind = r#"{"x" * 2000}"#, test))]\nconst A: u8 = 1;',
                    "macro_rules! p { ($m:meta, $a:expr) => { if cfg!($m) { $a } } }",
                    "macro_rules! p { ($m:meta) => { #[cfg(any(miri, $m))] mod a; } }",
                    "macro_rules! p { ($($m:tt)*) => { #[cfg(any(kind = $($m)*))] mod a; } }",
                )
            ),
            *(
                ("a.rs", f"fn f() -> u8 {{\n    #[cfg(test)]\n    {text}\n    4\n}}", "3: asks whether it is tested")
                for text in ("return 5;", "let x = 5;", "{ return 5; }", "g!();", "if true { return 5 }", "*x = 5;")
            ),
            ("a.rb", "x = defined?(RSpec)", "asks whether it is tested"),
            ("A.java", "class A { boolean equals(Object o) { return true; } }", "equal to everything"),
            ("a.py", "import json\n\njson.loads = json.dumps", "4: replaces a function of another module"),
            ("a.py", "import json\ndef f(g):\n    json.loads = g", "4: replaces a function of another module"),
            ("a.py", "def f(g):\n    import json\n    json.loads, x = g", "4: replaces a function of another module"),
            ("a.py", "import json\ndef f(g):\n    json.LOADS = lambda: g", "4: replaces a function of another module"),
            ("a.py", "import os.path\nfor os.path.join in [f]:\n    pass", "3: replaces a function of another module"),
            ("a.py", "import a as b\nclass C:\n    b.c.d = d", "4: replaces a function of another module"),
            ("a.py", "import json\n\nvars(json).update(loads=f)", "4: replaces a function of another module"),
            ("a.py", "import json\n\njson.__dict__['loads'] = f", "4: replaces a function of another module"),
            ("a.py", "import json\n\nsetattr(json, 'loads', f)", "4: replaces a function of another module"),
            ("a.py", "from json import JSONDecoder as D\n\nD.decode = f", "4: replaces a function of another module"),
            ("a.py", "random.seed(1)", "chance"),
            ("a.py", "x = find_spec('tests')", "looks which modules there are"),
            ("a.py", "x = import_module('tests.x')", "looks which modules there are"),
            ("a.py", "def __getattr__(name):\n    return name", "makes names when they are asked for"),
            ("a.py", "os.umask(0)", "changes its process when it is imported"),
            ("a.py", "_ = subprocess.Popen(['a'])", "changes its process when it is imported"),
            ("a.py", "os.environ['A'] = 'b'", "changes its process when it is imported"),
            ("a.py", "x = Path(__file__).parent", "reads its own source"),
            ("a.js", "Object.prototype.size ??= 1", "changes what all modules share"),
            ("a.js", "Object.assign(Array.prototype, { f })", "changes what all modules share"),
            ("a.js", "process.on('uncaughtException', () => {})", "changes what all modules share"),
            ("a.ts", "const fs = require('node:fs')\n\nfs.readFileSync = f", "changes what all modules share"),
            ("a.go", 'import (\n\t"net/http"\n)\n\nfunc init() {\n\thttp.DefaultClient = nil\n}', "another package"),
            ("a.go", "func init() {\n\tlog.SetOutput(nil)\n}", "another package"),
            ("a.go", 'var x, _ = filepath.Glob("*.go")', "looks where it is run"),
            ("a.go", "var x = bits.UintSize", "decides by how it is compiled"),
            ("a.go", "//go:build !release\n\npackage a", "2: is compiled only for some"),
            ("a.rs", 'const X: bool = cfg!(any(kind = r#"a"b"#, unix));', "decides by how it is compiled"),
            ("a.rs", "fn f() { debug_assert!({ x = 1; true }); }", "decides by how it is compiled"),
            ("a.rs", "#[cfg(\n    debug_assertions\n)]\nfn f() {}", "decides by how it is compiled"),
            ("a.rs", "const X: bool = cfg ! [any(miri, debug_assertions)];", "decides by how it is compiled"),
            ("a.rs", "fn f() { let x = catch_unwind(|| g()); }", "decides by how it is compiled"),
            ("a.rs", 'const X: &str = env!("CARGO_BIN_NAME");', "decides by how it is compiled"),
            ("a.rs", '#[cfg(feature = "x")]\nmod s;', "decides by how it is compiled"),
        ],
    )
    def test_lines_that_look(self, path: str, line: str, what: str) -> None:
        ((rule, found),) = analysis_of({path: "\n"}, {path: f"\n{line}\n"}).watches_tests()
        assert found.startswith(f"{path}:")
        assert what in found
        assert rule == (
            "own_equality" if found.endswith(("equal to everything", "in its own way")) else "watches_tests"
        )

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
            ("a.rs", "", "struct A;\n\nimpl A {\n    #[cfg(all(unix, test))]\n    fn f() {}\n}\n"),
            ("a.rs", "", "fn f(test: u8) -> u8 {\n    #[cfg(test)]\n    use g::h;\n    cfg!(miri) as u8 + test\n}\n"),
            ("a.rs", "", f'const X: bool = cfg!(any({"miri, " * 99}kind = r#"a" test "#));\n'),
            ("a.rs", "", "macro_rules! m { ($f:tt $i:item) => { #[doc(cfg(kind = $f))] #[cfg(any(kind=$f))] $i } }\n"),
            ("a.rs", "", "macro_rules! m { ($i:item) => { #[cfg(miri)] $i #[cfg_attr(miri, allow(a))] $i } }\n"),
            ("a.go", "", "package main\n\nvar x = os.Args\n"),
            ("a.py", "import settings\n", "import settings\n\n\ndef f(debug):\n    settings.DEBUG = debug\n"),
            ("a.py", "", "import logging as log\n\n\ndef f(log=None):\n    log.level = 3\n    log.name = f\n"),
            ("a.py", "", "import log\n\nlog.level: int = -3\nlog.count += 1\nlog.names = [f'{f}']\n"),
            ("a.rs", "", 'pub fn v() -> &\'static str { env!("CARGO_PKG_VERSION") }\n'),
            ("a.rs", "", "fn f(a: u8) {\n    debug_assert!(a == 1 || a >= 3);\n    debug_assert_eq!(a, 2);\n}\n"),
            ("a.py", "", "import json\n\nsetattr(json, 'x', 3)\nvars(json).get('y')\nvars(other).update(a=1)\n"),
            ("a.py", "", "def f():\n    os.chdir('a')\n"),
            ("a.py", "", 'x = Path(__file__).with_name("a.json").read_text()\ny = Path(__file__).parent / "b.csv"\n'),
            ("a.js", "", "const f = (Map) => Object.assign({}, x);\nconst Name = { Map: 1 };\nmodule.Error = x;\n"),
            ("a.js", "", "if (Map.size === 3 || f(Math.max) >= 2) g(Object.keys(x).length == 1);\n"),
            ("a.go", "", 'package a\n\nimport "net/http"\n\nvar c = http.DefaultClient\nvar d = x.Name == y\n'),
            ("a.go", "//go:build linux\n\npackage a\n", "//go:build linux\n\npackage a\n\nvar x = 1\n"),
        ],
    )
    def test_lines_that_do_not(self, path: str, old: str, new: str) -> None:
        assert analysis_of({path: old} if old else {}, {path: new}).watches_tests() == ()

    @pytest.mark.parametrize(
        ("path", "line"),
        [
            ("a.py", "x = os.environ.get('KIT_MODE', '')"),
            ("a.py", "x = os.environ['KIT_MODE']"),
            ("a.js", "const x = process.env.KIT_MODE;"),
            ("a.ts", "const x = import.meta.env.KIT_MODE;"),
            ("a.go", 'var x = os.Getenv("KIT_MODE")'),
            ("a.rs", 'fn f() { env::var("KIT_MODE"); }'),
        ],
    )
    def test_variables_that_only_tests_set(self, path: str, line: str) -> None:
        base = {path: "\n", "tests/conftest.py": "os.environ['KIT_MODE'] = '1'\n", "pytest.ini": "[pytest]\n"}
        said = f"{path}: reads a variable that the tests set: KIT_MODE"
        assert analysis_of(base, {path: f"{line}\n"}).watches_tests() == (("watches_tests", said),)
        assert analysis_of({**base, "b.py": "KIT_MODE = 1\n"}, {path: f"{line}\n"}).watches_tests() == ()
        assert analysis_of({**base, path: f"{line}\n"}, {path: f"\n{line}\n"}).watches_tests() == ()

    @pytest.mark.parametrize(
        ("code", "replaces"),
        [
            ("from kit import core\n\ncore.f = g", True),
            ("from . import core\n\ncore.f = g", True),
            ("def f():\n    from ..sub import deep as core\n    core.f = g", True),
            ("from kit.core import Cart\n\nCart.total = g", True),
            ("from kit.core import URL as here\n\nhere.total = g", True),
            ("from kit import core\n\nsetattr(core, 'f', g)", True),
            ("from kit import core\n\ndelattr(core, 'f')", True),
            ("from kit import core\n\ncore.__dict__['f'] = g", True),
            ("from kit import core\n\nvars(core).update(f=g)", True),
            ("from pandas import DataFrame\n\nDataFrame.equals = lambda a, b: True", True),
            ("from kit import prices\n\nprices.rounded = g", True),
            ("from kit import prices as p\n\np.shown: object = g", True),
            ("from . import prices\n\nprices.cut = g", True),
            ("from kit import prices\n\nprices.given = g", True),
            ("from kit import prices\n\nprices.floor = g", True),
            ("from kit import prices\n\nprices.ceil = g", True),
            ("from kit import state\n\nstate.floor = g", False),
            ("from kit import prices\n\nprices.limit = default()", False),
            ("from kit import prices\n\nprices.timeout = default()", False),
            ("from kit import prices\n\nprices.rate = default()", False),
            ("from .core import Cart\n\nCart.objects = Manager()", False),
            ("from numpy import testing\n\ntesting.assert_allclose = lambda *a, **k: None", True),
            ("from pandas import testing as tm\n\ntm.assert_frame_equal = own\ndef own(*a): ...", True),
            ("from numpy import linalg\n\nlinalg.norm = partial(g, 2)", True),
            ("from numpy import linalg\n\nlinalg.norm = functools.partial(g, 2)", True),
            ("from yarl import URL\n\nURL.join = lambda *a: a[0]", True),
            ("from yarl import URL\nfrom operator import eq as same\n\nURL.join = same", True),
            ("from yarl import URL\nimport operator\n\nURL.join = operator.eq", True),
            ("from yarl import URL\nfrom kit.core import f as own\n\nURL.join = own", True),
            ("from yarl import URL\nfrom kit import core\n\nURL.join = core.f", True),
            ("from numpy import linalg\n\nlinalg.norm = (a or (c if b else (lambda: 0)))", True),
            ("from yarl import URL\ndef h():\n    own = lambda *a: 0\n    URL.join = own", True),
            ("from yarl import URL\ndef h():\n    def own(*a): ...\n    URL.join = own", True),
            ("from yarl import URL\n\nURL.join, a = (lambda: 0), 1", True),
            ("from yarl import URL\n\nfor URL.join in [lambda: 0]: ...", True),
            ("from yarl import URL\n\nsetattr(URL, 'join', lambda: 0)", True),
            ("from yarl import URL\n\nURL.__dict__['join'] = lambda: 0", True),
            ("from yarl import URL\n\nvars(URL).update(join=lambda: 0)", True),
            ("from yarl import URL\n\nvars(URL).update({'join': lambda: 0})", True),
            ("import json\n\njson.loads, json.dumps = g, h", True),
            ("import json\n\njson.loads, json.dumps = 1, 2", False),
            ("from flask import g\n\ng.user = default()", False),
            ("from flask import g\ndef user(): ...\ndef h():\n    user = load()\n    g.user = user", False),
            ("from flask import g\ndef h(f):\n    g.user = f", False),
            ("from flask import g\nfrom flask_login import f\n\ng.user = f", False),
            ("from flask import g, request\n\ng.user = request.f", False),
            ("from flask import g\nimport logging\n\ng.level = logging.DEBUG", False),
            ("from flask import g\n\nsetattr(g, 'user', load())", False),
            ("from flask import g\n\ng.__dict__.update(values)", False),
            ("from flask import g\n\ndelattr(g, 'user')", False),
            ("from flask import g\n\nwith connect() as g.db: ...", False),
            ("from numpy import testing\n\ntesting.f = wrap(testing.f)", True),
            ("from numpy import testing\n\ntesting.f = wrap(other.f)", True),
            ("from numpy import testing\n\ntesting.norm = wrap(1, by=getattr(testing, 'norm'))", False),
            ("from numpy import testing\n\nsetattr(testing, 'norm', wrap(testing.norm))", False),
            ("from numpy import testing\nfrom kit.core import f as own\n\ntesting.f = wrap(own)", True),
            ("from numpy import testing\n\ndelattr(testing, 'f')", True),
            ("from numpy import testing\n\ndel testing.f", True),
            ("from numpy import testing\n\nvars(testing)['f'] = own", True),
            ("from numpy import testing\n\nvars(testing).pop('f')", True),
            ("from numpy import testing\nfrom kit.core import *\n\ntesting.norm = f", True),
            ("from numpy import testing\n\ntesting.f = print", True),
            ("from numpy import testing\n\ntesting.f = str.lower", True),
            ("from numpy import testing\n\nclass F:\n    def run(self): ...\n\ntesting.f = F.run", True),
            ("from numpy import testing\nfrom kit.core import Cart\n\ntesting.f = Cart.total", True),
            ("from kit import core\n\nvars(core).update({'f': g})", True),
            ("import json\ndef h():\n    def i(json): ...\n    json.loads = g", True),
            ("import json\ndef h():\n    x = [0 for json in ()]\n    json.loads = g", True),
            ("import json\ndef h():\n    def json(): ...\n    json.loads = g", False),
            ("from flask import g\ndef user(): ...\ndef h():\n    g.user = load(1)", False),
            ("from flask import g\ndef user(): ...\ndef h(user):\n    g.user = user", False),
            ("from flask import g\nfor f in load():\n    g.f = f", False),
            ("from flask import g\ntry: ...\nexcept Error as f:\n    g.error = f", False),
            ("from flask import g\ndef h(id):\n    g.id = id", False),
            ("from flask import g\nid = load()\ng.id = id", False),
            ("from flask import g\n\ng.f = sorted(g.f)", False),
            ("from flask_login import current_user\n\ncurrent_user.email = normalized(current_user.email)", False),
            ("from flask import g\n\ng.f, g.org = load()", False),
            ("from flask import g\n\nwith lock() as g.f: ...", False),
            ("from flask import g\n\ng.converter = int", False),
            (
                "import time\ndef h():\n    global time\n    try: ...\n    except E as time: ...\n    time.time = g",
                True,
            ),
            ("import time\ndef h():\n    global time\n    if 0:\n        def time(): ...\n    time.time = g", True),
            ("from flask import g\nimport os\n\ng.f = os.path.abspath(g.f)", False),
            ("from flask import g\nfrom pathlib import Path\n\ng.f = Path(g.f)", False),
            ("from numpy import testing\nfrom .json import wrap\n\ntesting.f = wrap(testing.f)", True),
            ("from numpy import testing\nimport functools\n\ntesting.f = functools.cache(testing.f)", True),
            ("from django.conf import settings\n\nsettings.APPS = extended(settings.APPS)", False),
            ("from flask import g\nclass Role:\n    f = 1\n\ng.role = Role.f", False),
            ("from kit import core\n\ncore.f = 3", False),
            ("from kit import state\n\nstate.timeout = default()", False),
            ("from kit.core import Cart\n\nCart.objects = Manager()", False),
            ("from kit import core\n\nsetattr(core, name, g)", False),
            ("from kit import core\n\ndef h(core):\n    core.f = g", False),
        ],
    )
    def test_functions_of_the_project_that_are_replaced(self, code: str, replaces: bool) -> None:
        base = {
            "kit/a.py": "",
            "kit/core.py": "def f(): ...\n\n\nclass Cart:\n    def total(self): ...\n",
            "kit/prices.py": "from math import (\n    ceil,\n    trunc as floor,\n)\n"
            "rounded = lambda v: v\nshown: object = functools.partial(g, 2)\n"
            "cut = maths.cut  # as there\ngiven = rounded\n"
            "limit = None\ntimeout = limits.TIMEOUT\nrate = 0.5\n",
        }
        found = analysis_of(base, {"kit/a.py": f"{code}\n"}).watches_tests()
        assert [what.partition(": ")[2] for _, what in found] == (
            ["replaces a function of another module"] if replaces else []
        )

    @pytest.mark.parametrize(
        ("path", "begins"),
        [
            ("redis.py", True),
            ("redis/__init__.py", True),
            ("src/redis.py", True),
            ("packages/kit/src/redis/a.py", True),
            ("lib/redis/__init__.py", True),
            ("app/redis.py", False),
            ("kit/redis.py", False),
            ("kit/redis/__init__.py", False),
        ],
    )
    def test_imports_that_files_of_the_project_may_be(self, path: str, begins: bool) -> None:
        found = analysis_of(
            {path: "", "kit/__init__.py": ""}, {"kit/a.py": "from redis import Redis\n\nRedis.get = default()\n"}
        ).watches_tests()
        assert bool(found) is not begins

    @pytest.mark.parametrize(
        ("path", "base", "code"),
        [
            ("functions/price/a.py", ["functions/price/utils.py"], "from utils import Cart"),
            ("functions/price/deep/a.py", ["functions/price/utils.py"], "from utils import Cart"),
            ("run/a.py", ["lib/kit.py"], "from kit import Cart"),
            ("backend/app/a.py", ["backend/app/core.py"], "from app.core import Cart"),
            ("backend/a.py", ["backend/app/core/__init__.py"], "from app.core import Cart"),
            ("backend/app/a.py", ["backend/app/core/cart.py"], "from app.core.cart import Cart"),
            ("backend/a.py", ["backend/app/Cart.py"], "from app import Cart"),
        ],
    )
    def test_imports_of_files_that_are_no_package_of_their_own(self, path: str, base: list[str], code: str) -> None:
        files = dict.fromkeys([*base, "backend/__init__.py", "backend/app/__init__.py"], "")
        new = {path: f"{code}\n\nCart.objects = default()\n"}
        assert analysis_of(files, new).watches_tests() == ()
        assert analysis_of({}, new).watches_tests() != ()

    def test_imports_that_a_file_elsewhere_does_not_hide(self) -> None:
        code = "from redis import Redis\n\nRedis.get = default()\n"
        base = dict.fromkeys(["kit/__init__.py", "kit/redis.py", "scripts/redis.py", "kit/sub/redis/a.py"], "")
        assert analysis_of(base, {"kit/a.py": code}).watches_tests() != ()
        assert analysis_of(base, {"kit/redis.py": code}).watches_tests() != ()
        assert analysis_of(base, {"scripts/a.py": code}).watches_tests() == ()

    def test_names_that_are_not_text_do_no_harm(self) -> None:
        base = {"b\udcff.py": "", "d\udcff/x.py": "", "a.py": ""}
        assert analysis_of(base, {"a.py": "x = 1\n"}).watches_tests() == ()

    def test_files_of_go_that_only_some_machines_have(self) -> None:
        ((_, found),) = analysis_of({"a.go": "package a\n"}, {"a_amd64.go": "package a\n\nvar x = 1\n"}).watches_tests()
        assert found == "a_amd64.go:1: is compiled only for some machines or builds"
        base = {"a_amd64.go": "package a\n"}
        assert analysis_of(base, {"a_amd64.go": "package a\n\nvar x = 1\n"}).watches_tests() == ()

    @pytest.mark.parametrize(
        "line",
        [
            *('import "C"', "import `C`", 'import (\n\t"fmt"\n\t"C"\n)', 'import ("fmt"; "C")', 'import "C" // c'),
            *('import (\n\t/* c */ "C"\n)', '/**/ import "C"', 'import/*\n*/"C"', 'import "fmt"; import "C"'),
            *('import "\\x43"', "import `C\r`"),
        ],
    )
    def test_files_of_go_that_need_another_compiler(self, line: str) -> None:
        changes = {"a.go": f"package a\n\n{line}\n"}
        ((_, found),) = analysis_of({}, changes).watches_tests()
        assert found.endswith("is compiled only for some machines or builds")
        assert analysis_of(changes, {"a.go": f"{changes['a.go']}\nvar x = 1\n"}).watches_tests() == ()
        assert analysis_of({}, {"a.go": 'package a\n\nvar x = f("C")\n\nvar y = "C"\n'}).watches_tests() == ()

    @pytest.mark.parametrize(
        ("path", "text", "what"),
        [
            ("a.go", 'package a\n\nimport "flag"\n\nvar on = flag.NFlag()\n', "reads the command line"),
            ("a.rs", '#[cfg(target_env = "gnu")]\nconst A: u32 = 1;\n', "decides by how it is compiled"),
            ("a.rs", "#[cfg(not(windows))]\nconst A: u32 = 1;\n", "decides by how it is compiled"),
            *(
                ("a.js", f"{text}\n", "changes what all modules share")
                for text in (
                    "Object.assign(require('node:assert'), {});",
                    "Object.defineProperty(\n  require('./other'), 'x', {});",
                    "const a = require('assert');\nObject.assign(a, {});",
                    "import fs from 'node:fs/promises';\n\nReflect.set(fs, 'stat', 1);",
                    "import * as a from 'node:assert/strict';\na.equal = 1;",
                    "require('node:assert').strictEqual = f;",
                    "(await import('node:assert')).default.strictEqual = f;",
                    "import { strict as a } from 'node:assert';\na.equal = f;",
                    "import a, { ok } from 'node:assert';\nif (x) a['equal'] = f;",
                    "const { strict } = require('assert'); Object.assign(strict, { equal: f });",
                    "const { strict: a } = require('assert');\nReflect.set(a, 'equal', f);",
                    "const a = require('assert').strict;\na.equal = f;",
                    *(f"import a from 'node:assert';\n{change}" for change in NODE_CHANGES),
                    "process.getBuiltinModule('node:assert').equal = f;",
                    "const { getBuiltinModule: g } = process;\ng('fs').x = f;",
                    "import('node:assert').then((a) => {\n  a.default.equal = f;\n});",
                    "import('node:assert').then(function ({ default: a }) { a.equal = f; });",
                    "const a = await import('assert').then((m) => m.default);\na.equal = f;",
                    "createRequire(import.meta.url)('fs').x = f;",
                    "import { createRequire as c } from 'module';\nconst r = c(u);\nr('fs').x = f;",
                    "require('module')._load = f;",
                    "require('buffer').x = f;",
                    "require('node:\\x61ssert').equal = f;",
                    "const name = 'fs';\nrequire(name).x = f;",
                    "import { promises } from 'fs';\npromises.x = f;",
                )
            ),
            *(
                ("a.ts", f"import a = require('assert');\n{change}\n", "changes what all modules share")
                for change in (
                    *NODE_CHANGES,
                    "(a as any).x = f;",
                    "a!.x = f;",
                    "(<any>a).x = f;",
                    "[(a as T).x] = f;",
                    TYPED,
                )
            ),
        ],
    )
    def test_code_of_this_run_alone(self, path: str, text: str, what: str) -> None:
        ((_, found),) = analysis_of({}, {path: text}).watches_tests()
        assert found.endswith(what)

    @pytest.mark.parametrize(
        "text",
        [
            "const fs = require('node:fs');\n\nmodule.exports = Object.assign({}, fs);",
            "const server = require('http').createServer(f);\nserver.timeout = 5;",
            "const { a } = require('./fs');\nimport b, { c as d } from 'b';\na.x = b.x = d.x = 1;",
            "import { strict as a } from 'node:assert';\nif (a.x == 1 || a.y === 2) f((a) => a.z);\nb.a.x = 1;",
            "import url from 'node:url';\nfunction g(url) { url.x = 1; }",
            "import url from 'node:url';\nconst g = (url) => { url.x = 1; };",
            "import url from 'node:url';\nfunction g({ a, b: [url] }) { url.x = 1; }",
            "import url from 'node:url';\nfunction g() { if (a) { var url = b; } url.x = 1; }",
            "import url from 'node:url';\nfunction g() { const url = new URL(b); url.x = 1; }",
            "import url from 'node:url';\nfor (const url of b) url.x = 1;",
            "import url from 'node:url';\ntry { f(); } catch (url) { url.x = 1; }",
            "import url from 'node:url';\n(function url() { url.x = 1; })();",
            "import path from 'path';\nexport default { visit(path) { path.node.name = 'x'; } };",
            "import { workerData } from 'worker_threads';\nworkerData.jobs.forEach((job) => { job.done = 1; });",
            "const { env } = require('process');\nenv.A.b = 1;\nconst o = { title: { x: {} } };\no.title.x.y = 1;",
            "import fs from 'fs';\nfs.promises.readFile(a).then((text) => { text.x = 1; });",
            "import process, { env } from 'process';\nprocess.env.A = process.exitCode = env.B = 1;",
            "const { rest, ...fs } = require('fs');\nfs.x = 1;",
            "const x = { ...require('fs') };\nx.y = 1;",
            "const o = { fs: require('fs') };\no.fs = 1;",
            "svg.append('path').x = 1;",
            "import url from 'url';\nfunction g(path, url) { url.x = 1; }\ng(url, new URL(b));",
            "import fs from 'fs';\nfunction g(a, b) { a.x = b; }\ng.call(null, {}, fs);\ng.apply(null, [{}, fs]);",
            "import fs from 'fs';\nfunction g() { function h(a) { a.x = 1; } }\nh(fs);",
            "import fs from 'fs';\nconst [a, b] = [fs, {}];\nb.x = 1;",
            "import fs from 'fs';\nconst { a, ...b } = { fs, a: {} };\na.x = b.x = 1;",
            "import fs from 'fs';\n[fs].reduce((all, each) => { all.x = each; return all; }, {});",
            "import url from 'url';\ntry { throw new Error(url); } catch (url) { url.x = 1; }",
            "import process from 'process';\nconst { env: { A }, ...b } = process;\nprocess.env.A = b.x = 1;",
        ],
    )
    def test_modules_that_are_only_read(self, text: str) -> None:
        assert analysis_of({}, {"a.js": f"{text}\n"}).watches_tests() == ()

    @pytest.mark.parametrize(
        ("code", "changes"),
        [
            ("a=b;a.x=1;" * 5_000, 0),
            (f"let {','.join(NAMES)}; [{','.join(NAMES)}] = [{'1,' * 5_000}];", 0),
            (f"const {{{','.join(NAMES)}}} = {{{','.join(f'{name}: 1' for name in NAMES)}}};", 0),
            (f"const a0 = require('fs'); {CHAIN}", 5_000),
            (f"const a0 = b; {CHAIN}", 0),
            ("{" * 1_000 + "a.x=1;" * 500 + "}" * 1_000, 0),
            (f"a{'.b()' * 20_000};", 0),
        ],
        ids=["assigned", "listed", "keyed", "chained", "chained in vain", "nested", "called"],
    )
    def test_many_names_take_few_steps(self, code: str, changes: int) -> None:
        assert len(list(changed_places("javascript", code.encode()))) == changes

    @pytest.mark.parametrize(
        "code",
        [
            f"const [{','.join(NAMES)}] = [...a, {'1,' * 5_000}];",
            f"const {'[' * 2_000}a{'= 1, b] = 1]' * 1_000};",
            "f=(a)=>1;f(b);" * 2_000,
            "{" * 2_000 + "a.x=1;" * 2_000 + "}" * 2_000,
            f"for (const [{'a,' * 2_000}] of [{'[],' * 2_000}]);",
        ],
        ids=["spread", "defaults", "functions", "nested", "elements"],
    )
    def test_values_that_take_too_many_steps_end_the_search(self, code: str) -> None:
        with pytest.raises(NotParsedError, match="steps"):
            list(changed_places("javascript", code.encode()))

    @pytest.mark.parametrize(
        ("line", "known", "cargo"),
        [
            ('#[cfg(feature = "serde")]\nmod s;', True, False),
            ('#[cfg(all(feature = "exact", feature = "serde"))]\n#[derive(Debug)]\npub struct S;', True, False),
            ('#[cfg_attr(feature = "serde", derive(Serialize))]\nstruct S;', True, False),
            ('#[cfg(feature = "serde")]\nmod s;', False, True),
            ('#[cfg(feature = "other")]\nmod s;', False, False),
            ('#[cfg(not(feature = "serde"))]\nmod s;', False, False),
            ('#[cfg(feature = "serde")]\nuse a::b;', False, False),
            ('#[cfg(all(feature = "serde", debug_assertions))]\nmod s;', False, False),
            ('#[cfg(any(feature = "serde", test))]\nmod s;', False, False),
            ('#[cfg(any(feature = "serde", $m))]\nmod s;', False, False),
            ('#[cfg(feature = "test")]\nmod s;', True, False),
            ('const X: bool = cfg!(feature = "serde");', False, False),
        ],
    )
    def test_items_of_features_that_the_base_has(self, line: str, known: bool, cargo: bool) -> None:
        package = '[dependencies]\nserde = { version = "1", optional = true }\n\n[features]\nexact = []\ntest = []\n'
        changes = {"src/s.rs": f"{line}\n", **({"Cargo.toml": package + "\n"} if cargo else {})}
        assert (analysis_of({"Cargo.toml": package}, changes).watches_tests() == ()) == known


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
            ("a.py", 'x = {"12 30": 7}[key]', "12, 30, 7"),
            ("a.json", '{"12 30": 7}', "12, 30"),
            ("a.json", '{\n"rows": [\n[\n12,\n30,\n7\n]\n]}', "12, 30"),
            ("a.yaml", "12: 30", "12, 30"),
            ("a.csv", "12;30;8", "12, 30"),
        ],
    )
    def test_branches_for_what_the_texts_name(self, path: str, line: str, literals: str) -> None:
        (found,) = analysis_of({path: "\n"}, {path: f"\n{line}\n"}).literal_branches(self.TEXTS)
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
            ("a.json", "", '{"limit": 12, "pages": [5, 30, 31], "30": 9, "12a": 30}\n'),
            ("a.json", '{"12": 30}\n', '{"12": 30}\n\n'),
            ("a.csv", "", "fig;12\n12;31\n0.12,30,5\n"),
        ],
    )
    def test_ordinary_branches(self, path: str, old: str, new: str) -> None:
        assert analysis_of({path: old} if old else {}, {path: new}).literal_branches(self.TEXTS) == ()


class TestStateAndNames:
    FILES: ClassVar = {"shares.py": "def split(total):\n    return total\n", "README.md": "Shares by KNOWN rules.\n"}

    def names(self, source: str, test: str, text: str = "The cent is lost.", path: str = "shares.py") -> list[str]:
        suffix = path.rpartition(".")[2]
        tests = [SourceText(path=f"tests/test_more.{suffix}", text=test)]
        found = analysis_of(self.FILES, {path: source}).shared_names(tests, text)
        assert all(each.startswith(f"{path}: ") for each in found)
        return [each.rpartition(" ")[2] for each in found]

    def test_a_name_of_the_issue_may_be_kept(self) -> None:
        patch = {"shares.py": "CALLS = [0]\n\n\ndef split(total):\n    CALLS[0] += 1\n    return total\n"}
        assert analysis_of(self.FILES, patch).keeps_state("It is slow.") == ("shares.py:5: CALLS",)
        assert analysis_of(self.FILES, patch).keeps_state("Count them in `CALLS`.") == ()
        assert analysis_of(self.FILES, patch).keeps_state("Count the CALLS.") != (), "a word is no name"
        assert analysis_of(self.FILES, patch).keeps_state("`CALLS` is wrong.") != (), "nobody asks for a memory"

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
    def test_state_set_by_a_test_and_read_by_the_patch_is_found(self, source: str, test: str, name: str) -> None:
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
    def test_data_and_own_names_do_not_count_as_agreement(self, test: str) -> None:
        source = (
            "MONTHS = {'January': 1, 'February': 2, 'March': 3}\n\n\ndef split(total):\n"
            "    rest = total.encode('utf-8')\n    return rest\n"
        )
        assert self.names(source, test) == []


def test_conditions_that_cannot_be_determined_are_not_absent() -> None:
    deep = "\n".join(["(" * 300] * 70) + "a > 1" + ")" * 21_000
    source = "package a\n\nfunc f(a int) int {\n\treturn 1\n}\n"
    changed = source.replace("\treturn 1", f"\tif {deep} {{\n\t\treturn 2\n\t}}\n\treturn 1")
    assert analysis_of({"a.go": source}, {"a.go": changed}).new_conditions is None
    assert analysis_of({"a.go": source}, {"a.go": source.replace("1", "2")}).new_conditions != {}
