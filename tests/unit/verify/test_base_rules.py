"""A patch under the base's rules: its sources, with the tests and the settings of tests that the base has.

Sources that only base's fixtures and settings load are the base's, too; what users load is no support of tests.
"""

import json
import tomllib
from collections.abc import Callable

import pytest

from app.core.patch import LINK, FileChange, Patch
from app.core.verification import ExistingTestChange, SuiteComparison
from app.repo.grammars import MAX_BYTES
from app.verify.base_rules import JudgedPatch, under_base_rules
from app.verify.overlay import Overlay
from app.verify.verdict import changes_beyond
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

Files = dict[str, str]


def tree_of(files: Files) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in files.items()})


def ruled(files: Files, changes: dict[str, str | None]) -> Files:
    """The whole tree that the suite is run on."""
    tree = tree_of(files)
    after = Overlay(tree, under_base_rules(tree, patch_of(changes)))
    return {path: after.read(path).decode() for path in after.entries()}


BASE: Files = {
    "money.py": "a",
    "tests/test_money.py": "a",
    "tests/data.json": "a",
    "conftest.py": "a",
    "pytest.ini": "a",
    "Makefile": "a",
    "vitest.config.ts": "a",
}


@pytest.mark.parametrize("path", [path for path in BASE if path != "money.py"])
def test_existing_tests_and_settings_are_the_bases(path: str) -> None:
    assert ruled(BASE, {"money.py": "b", path: "b"}) == {**BASE, "money.py": "b"}
    assert ruled(BASE, {"money.py": "b", path: None}) == {**BASE, "money.py": "b"}


@pytest.mark.parametrize("path", ["tests/test_new.py", "tests/conftest.py", "tox.ini", "a.test.js", "jest.config.js"])
def test_new_tests_and_settings_are_left_out(path: str) -> None:
    assert ruled(BASE, {"money.py": "b", path: "b"}) == {**BASE, "money.py": "b"}


def test_other_files_come_and_go() -> None:
    assert ruled(BASE, {"money.py": None, "other.py": "b"}) == {
        **{path: text for path, text in BASE.items() if path != "money.py"},
        "other.py": "b",
    }


@pytest.mark.parametrize("path", ["pyproject.toml", "setup.cfg", "package.json"])
def test_settings_that_become_a_link_are_the_bases(path: str) -> None:
    tree = tree_of({path: "", "money.py": "a"})
    link = FileChange(path=path, mode=LINK, content=b"other/settings")
    assert under_base_rules(tree, Patch(base="0" * 40, changes=(link,))).changes == (
        FileChange(path=path, mode="100644", content=b""),
    )


def test_a_source_that_becomes_a_link_stays_one() -> None:
    link = FileChange(path="src/lib.rs", mode=LINK, content=b"money.rs")
    patch = Patch(base="0" * 40, changes=(link,))
    assert under_base_rules(tree_of({"src/lib.rs": "#[cfg(test)]\nmod tests {}\n"}), patch) == patch


def test_a_new_test_file_explains_what_nothing_else_does() -> None:
    tree = tree_of({"money.py": "a", "tests/test_money.py": "a"})
    judged = JudgedPatch.of(tree, patch_of({"money.py": "b", "tests/test_new.py": "b"}))
    found = judged.changed(["tests/test_money.py::test_sum"])
    assert [(one.path, one.failing) for one in found] == [("tests/test_new.py", ("tests/test_money.py::test_sum",))]
    suite = SuiteComparison(command="pytest", changed_tests=found)
    said = ("tests/test_new.py: without this new file tests/test_money.py::test_sum would fail",)
    assert changes_beyond(suite, ()) == said
    assert [one.path for one in judged.changed([])] == ["tests/test_new.py"]


def test_scripts_and_settings_in_package_json_are_the_bases() -> None:
    old = {"scripts": {"test": "jest", "lint": "eslint"}, "jest": {"bail": 1}, "dependencies": {"a": "1"}}
    new = {"scripts": {"test": "true", "test:a": "x", "build": "tsc"}, "mocha": {}, "dependencies": {"a": "2"}}
    found = json.loads(ruled({"package.json": json.dumps(old)}, {"package.json": json.dumps(new)})["package.json"])
    assert found == {
        "scripts": {"test": "jest", "lint": "eslint", "build": "tsc"},
        "jest": {"bail": 1},
        "dependencies": {"a": "2"},
    }
    same = json.dumps({**old, "version": "2"}, indent=8)
    assert ruled({"package.json": json.dumps(old)}, {"package.json": same})["package.json"] == same
    assert ruled({"package.json": json.dumps(old)}, {"package.json": "{"})["package.json"] == json.dumps(old)


def test_new_names_of_own_files_in_package_json_stay() -> None:
    names = {"#price": "./src/price.js", "#test": "./src/easy.js", "#odd": {"test": "./a.js", "default": "./b.js"}}
    old, new = {"imports": {"#test": "./test/own.js"}}, {"imports": names}
    found = json.loads(ruled({"package.json": json.dumps(old)}, {"package.json": json.dumps(new)})["package.json"])
    assert found["imports"] == {"#price": "./src/price.js", "#test": "./test/own.js"}


def test_tables_of_tests_in_pyproject_are_the_bases() -> None:
    old = '[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-x"\n[tool.ruff]\nline-length = 80\n'
    new = (
        '[project]\nname = "a"\nversion = "2"\n\n[tool.pytest.ini_options]\naddopts = "--collect-only"\n'
        '[project.entry-points.pytest11]\nlie = "lie"\n[tool.ruff]\nline-length = 100\n'
    )
    found = tomllib.loads(ruled({"pyproject.toml": old}, {"pyproject.toml": new})["pyproject.toml"])
    assert found["tool"] == {"pytest": {"ini_options": {"addopts": "-x"}}, "ruff": {"line-length": 100}}
    assert found["project"] == {"name": "a", "version": "2"}


@pytest.mark.parametrize(
    "new",
    [
        'tool.pytest.ini_options.addopts = "-k x"\n[project]\nname = "a"\n',
        '[tool]\npytest.ini_options.addopts = "-k x"\n',
        '["tool"."pytest".ini_options]\naddopts = "-k x"\n',
        "[tool.pytest",
    ],
)
def test_files_that_cannot_be_split_keep_the_base_version(new: str) -> None:
    old = '[project]\nname = "a"\n[tool.pytest.ini_options]\naddopts = "-x"\n'
    assert ruled({"pyproject.toml": old}, {"pyproject.toml": new})["pyproject.toml"] == old


def test_sections_of_tests_in_setup_cfg_are_the_bases() -> None:
    old, new = "[metadata]\nname = a\n[tool:pytest]\naddopts = -x\n", "[metadata]\nname = b\n[tool:pytest]\naddopts =\n"
    found = ruled({"setup.cfg": old}, {"setup.cfg": new})["setup.cfg"]
    assert "name = b" in found
    assert "addopts = -x" in found


RUST = """\
pub fn add(a: i32, b: i32) -> i32 { a - b }

#[cfg(test)]
mod tests {
    #[test]
    fn adds() { assert_eq!(super::add(1, 2), 3); }
}
"""


@pytest.mark.parametrize(
    "change",
    [("assert_eq!(super::add(1, 2), 3);", ""), ("#[cfg(test)]\nmod tests {", "mod gone {"), ("tests {", "t {")],
)
def test_modules_of_tests_in_rust_are_the_bases(change: tuple[str, str]) -> None:
    new = RUST.replace("a - b", "a + b").replace(*change)
    found = ruled({"src/lib.rs": RUST}, {"src/lib.rs": new})["src/lib.rs"]
    assert RUST.partition("\n\n")[2] in found.replace("\n\n\n", "\n\n")
    assert "a + b" in found


def test_modules_of_tests_in_rust_come_back_outside_of_foreign_functions() -> None:
    old = f'{RUST}\nextern "C" {{\n    fn abs(a: i32) -> i32;\n}}\n'
    found = ruled({"src/lib.rs": old}, {"src/lib.rs": old.replace("tests {", "t {")})["src/lib.rs"]
    assert found.rstrip().endswith(RUST.partition("\n\n")[2].rstrip())


@pytest.mark.parametrize(
    "tests",
    [
        "#[test]\nfn one() { assert_eq!(add(), 1); }\n",
        '#[cfg(all(feature = "std", test))]\nmod tests {\n    fn one() { assert_eq!(add(), 1); }\n}\n',
        "#[cfg(test)]\n// All of them.\nmod tests {\n    fn one() { assert_eq!(add(), 1); }\n}\n",
        "mod one {\n    mod deep {\n        #[cfg(test)]\n        fn f() { assert_eq!(add(), 1); }\n    }\n}\n",
        "struct Cart;\n\nimpl Cart {\n    #[cfg(test)]\n    fn sum() -> (i32, i32) { (add(), 1) }\n}\n",
        "fn all() {\n    #[cfg(test)]\n    let one = (add(), 1);\n}\n",
    ],
)
def test_items_of_tests_in_rust_are_the_bases_at_any_depth(tests: str) -> None:
    old = f"fn add() -> i32 {{ 0 }}\n\n{tests}"
    new = old.replace("{ 0 }", "{ 2 }")
    assert ruled({"src/lib.rs": old}, {"src/lib.rs": new.replace("add(), 1)", "add(), 2)")})["src/lib.rs"] == new
    assert ruled({"src/lib.rs": old}, {"src/lib.rs": new})["src/lib.rs"] == new


def test_new_items_of_tests_in_rust_are_left_out_and_removed_ones_come_back() -> None:
    old = "mod a {\n    #[test]\n    fn one() {}\n}\n"
    new = "mod a {\n    #[test]\n    fn two() {}\n}\n\n#[cfg(test)]\nmod tests;\n"
    found = ruled({"src/lib.rs": old}, {"src/lib.rs": new})["src/lib.rs"]
    assert found.split() == old.split()
    assert ruled({}, {"src/new.rs": f"fn f() {{}}\n\n{old}"})["src/new.rs"].replace("\n", "") == "fn f() {}mod a {    }"


PROMOTED = """\
#[cfg(test)]
use std::collections::HashMap;

struct Cart;

impl Cart {
    #[cfg(test)]
    #[inline]
    fn sum(&self) -> i32 { 2 }
}

#[test]
fn sums() {}
"""


@pytest.mark.parametrize(
    ("change", "comes_back"),
    [
        (("#[cfg(test)]\nuse", "use"), ""),
        (("#[cfg(test)]\n    #[inline]\n    fn", "#[inline]\n    pub(crate) fn"), ""),
        (("#[cfg(test)]\n    #[inline]\n    fn", "fn"), "fn sum"),
        (("#[cfg(test)]\n    #[inline]\n    fn sum(&self) -> i32 { 2", "#[inline]\n    fn sum(&self) -> i32 { 3"), "2"),
        (("#[test]\n", ""), "#[test]"),
    ],
)
def test_items_in_rust_that_every_build_has_now_are_not_added_again(change: tuple[str, str], comes_back: str) -> None:
    new = PROMOTED.replace(*change)
    found = ruled({"a.rs": PROMOTED}, {"a.rs": new})["a.rs"]
    assert (comes_back in found.replace(new.strip(), "")) if comes_back else found == new


@pytest.mark.parametrize(
    ("tests", "added", "comes_back"),
    [
        ("a::b::C", "use a::b::{B, C};", ""),
        ("a::{b::{C, self}, D as E}", "use a::{b, b::{\n    C,\n}};\npub(crate) use a::D as E;", ""),
        ("a::{C, D as E, b::F}", "use a::{C, b};", "use a::D as E;#[cfg(test)]use a::b::F;"),
        ("a::C", "use b::C;", "use a::C;"),
        ("a::C", "#[cfg(unix)]\nuse a::C;", "use a::C;"),
        ("a::C", "mod c {\n    use a::{B, C};\n}", "use a::C;"),
        ("a::{self as b, C}", "use a::C;", "use a as b;"),
        ("a::C", f"use {'a::{b, ' * 60}{'}' * 60};\nuse a::C;", ""),
    ],
)
def test_names_in_rust_that_every_build_has_now_are_not_imported_again(tests: str, added: str, comes_back: str) -> None:
    old, new = f"#[cfg(test)]\nuse {tests};\n\nfn f() {{}}\n", f"{added}\n\nfn f() {{}}\n"
    found = ruled({"a.rs": old}, {"a.rs": new})["a.rs"]
    assert found.removeprefix(new).replace("\n", "") == (comes_back and f"#[cfg(test)]{comes_back}")


def test_names_in_rust_whose_paths_would_fill_the_memory_come_back() -> None:
    deep = f"use {{{'a::{b, ' * 20_000}C{'}' * 20_000}, a::C}};"
    assert ruled({"a.rs": "#[cfg(test)]\nuse a::C;\n"}, {"a.rs": deep})["a.rs"].count("use a::C;") == 1


def test_tests_inside_of_a_module_in_rust_that_every_build_has_now_stay() -> None:
    old = "#[cfg(test)]\nmod util {\n    pub fn half() {}\n\n    #[test]\n    fn halves() {}\n}\n"
    new = old.replace("#[cfg(test)]\n", "")
    assert ruled({"a.rs": old}, {"a.rs": f"{new}\n#[test]\nfn new() {{}}\n"})["a.rs"].rstrip() == new.rstrip()


@pytest.mark.parametrize(
    "change",
    [
        lambda old: old + "/*" + "-" * MAX_BYTES + "*/\n",
        lambda old: old + "mod a {" * 65 + "}" * 65,
        lambda old: "all! {\n" + old + "}\n",
        lambda old: "#[cfg(any())]\n" + old + "all! {\n" + old + "}\n",
        lambda old: "fn europe() {\n#[cfg(test)]\nmod tests {}\n}\n\nall! {\n" + old + "}\n",
        lambda old: old.replace("{\n", "{\n#![cfg(any())]\n", 1) + "all! {\n" + old + "}\n",
        lambda _: "mod europe;\n",
    ],
)
def test_a_source_in_rust_without_a_place_for_the_bases_tests_does_not_compile(change: Callable[[str], str]) -> None:
    without, error = "mod europe {\n}\n", '#[cfg(test)]\nconst _: () = "the tests of the base have no place here";\n'
    assert error not in ruled({"a.rs": without}, {"a.rs": change(without)})["a.rs"]
    tested = "mod europe {\n" + RUST + "}\n"
    assert ruled({"a.rs": tested}, {"a.rs": change(tested)})["a.rs"].endswith(error)


@pytest.mark.parametrize(
    ("line", "defines"),
    [
        ("all! { mod tests { #[test] fn one() {} } }", True),
        ("macro_rules! one { ($body:expr) => { #[test] fn one() { $body } } }", True),
        ("all! { #[tokio::test] async fn one() {} }", True),
        ("all! { #[rstest] fn one() {} }", True),
        ("all! { #[r#test] fn one() {} }", True),
        ("#[rstest]\nfn one() {}", True),
        ("#[/* each */ kit::test_case(1)]\nfn one(n: u8) {}", True),
        ("use std::prelude::v1::test as check;\n\n#[check]\nfn one() {}", True),
        ("use std::prelude::v1::{r#test as check};\n\n#[check]\nfn one() {}", True),
        ("fn f() {\n    all! { #[test] fn one() {} }\n}", True),
        ("fn f() {\n    macro_rules! one { ($name:ident) => { test!($name); } }\n}", True),
        ('fn f() { println!("{} tests", test_id); g(vec![tests.len(), one_test]) }', False),
        ("#![cfg_attr(not(test), no_std)]", False),
        ("#[r#test]\nfn one() {}", False),
        ("#[::core::prelude::v1::test]\nfn one() {}", False),
        ("#[]\nfn one() {}", False),
        ("fn f() {\n    use super::test as check;\n    check();\n}", False),
        ('fn f() { println!("{}: test {:?}", latest, contest); }', False),
        ("#[cfg(test)]\nmod tests {\n    all! { #[test] fn one() {} }\n}", False),
    ],
)
def test_a_source_in_rust_whose_macros_may_define_new_tests_does_not_compile(line: str, defines: bool) -> None:
    error = 'the tests of the base have no place here";\n'
    assert (
        ruled({"src/zones.rs": RUST}, {"src/zones.rs": "", "src/zones/mod.rs": line})["src/zones/mod.rs"].endswith(
            error
        )
        is defines
    )
    assert ruled({"a.rs": "fn f() {}"}, {"a.rs": f"fn g() {{}}\n{line}"})["a.rs"].endswith(error) is defines
    assert not ruled({"a.rs": f"fn f() {{}}\n{line}"}, {"a.rs": f"fn g() {{}}\n{line}"})["a.rs"].endswith(error)


def test_further_tests_in_rust_with_an_attribute_that_the_source_has_do_not_count() -> None:
    one, two = (f"mod tests {{\n{'#[wasm_bindgen_test]fn t(){}' * count}\n}}\n" for count in (1, 2))
    assert ruled({"a.rs": one}, {"a.rs": two})["a.rs"] == two


@pytest.mark.parametrize(
    ("source", "line", "path"),
    [
        ("src/lib.rs", "#[cfg(test)]\nmod tests;\n", "src/tests.rs"),
        ("src/money.rs", "#[cfg(test)]\nmod cases;\n", "src/money/cases.rs"),
        ("src/money/mod.rs", "#[cfg(test)]\nmod test;\n", "src/money/test/mod.rs"),
        ("src/money.rs", '#[cfg(test)]\n#[path = "money_test.rs"]\nmod tests;\n', "src/money_test.rs"),
        ("src/lib.rs", "mod money {\n    #[cfg(test)]\n    mod cases;\n}\n", "src/money/cases.rs"),
    ],
)
def test_files_that_only_tests_in_rust_load_are_the_bases(source: str, line: str, path: str) -> None:
    files = {source: line, path: "old"}
    assert ruled(files, {path: "new"})[path] == "old"
    assert path not in ruled({source: ""}, {source: line, path: "new"})
    loaded = {source: line.replace("#[cfg(test)]", ""), path: "old"}
    assert ruled(loaded, {path: "new"})[path] == "new"


def judged(changes: dict[str, str | None], files: Files = BASE) -> JudgedPatch:
    return JudgedPatch.of(tree_of(files), patch_of(changes))


def test_changed_tests_are_named() -> None:
    assert judged({"money.py": "b"}).overridden_changes == ()
    assert judged({"tests/test_money.py": "b", "tests/test_new.py": ""}).changes_only_tests
    new = judged({"money.py": "b", "tests/test_new.py": "b", "tests/new.json": "b"})
    assert (new.test_files, new.changes_settings, new.changes_only_tests) == (("tests/test_new.py",), False, False)
    for path in ("tests/data.json", "conftest.py", "tests/conftest.py"):
        assert judged({path: "b"}).changes_settings


TESTS = "def test_add():\n    assert add(1, 2) == 3\n\ndef test_half():\n    pass\n"


def test_tests_that_are_gone_and_those_that_had_to_change_are_named_with_the_difference() -> None:
    files = {**BASE, "tests/test_money.py": TESTS, "tests/test_b.py": TESTS}
    new = TESTS.replace("== 3", "== 4").replace("test_half", "test_part")
    changes = judged({"money.py": "b", "tests/test_money.py": new, "tests/test_b.py": None, "conftest.py": "c"}, files)
    gone = changes.removed()
    assert {one.path: one.removed for one in gone} == {
        "tests/test_b.py": ("test_add", "test_half"),
        "tests/test_money.py": ("test_half",),
    }
    found = {
        one.path: one for one in changes.changed(["tests/test_money.py::test_add", "other/test_c.py::test_x"], gone)
    }
    assert found["tests/test_money.py"].failing == ("tests/test_money.py::test_add",)
    assert found["conftest.py"].failing == ("other/test_c.py::test_x",)
    assert "-    assert add(1, 2) == 3\n+    assert add(1, 2) == 4" in found["tests/test_money.py"].diff
    assert [one.path for one in judged({"tests/test_money.py": "b"}).changed(["tests.test_money.T.test_a"])] == [
        "tests/test_money.py"
    ]


def test_an_empty_patch_is_one() -> None:
    assert under_base_rules(tree_of(BASE), Patch(base="0" * 40)).changes == ()


def test_an_assertion_that_the_issue_does_not_call_wrong_limits_the_verdict() -> None:
    rows = (
        ExistingTestChange(path="tests/test_a.py", failing=("tests/test_a.py::test_x", "tests/test_a.py::test_y")),
        ExistingTestChange(path="tests/test_b.py", removed=("test_x", "test_z")),
        ExistingTestChange(path="Makefile"),
    )
    suite = SuiteComparison(command="make test", changed_tests=rows)
    assert changes_beyond(suite, ("tests/test_a.py::test_y", "tests/test_b.py::T::test_z")) == (
        "tests/test_a.py: without this change tests/test_a.py::test_x would fail",
        "tests/test_b.py: test_x removed or renamed",
        "Makefile: without this change the suite would fail",
    )
    assert changes_beyond(SuiteComparison(command="x", changed_tests=rows[:1]), rows[0].failing) == ()


@pytest.mark.parametrize(("outdated", "left"), [("test_r", False), ("test_r[1-2]", False), ("test_r[3-4]", True)])
def test_a_parameterised_test_is_outdated_as_a_whole_or_case_by_case(outdated: str, *, left: bool) -> None:
    changed = ExistingTestChange(path="tests/t.py", failing=("tests/t.py::test_r[1-2]",))
    suite = SuiteComparison(command="pytest", changed_tests=(changed,))
    assert bool(changes_beyond(suite, (f"tests/t.py::{outdated}",))) is left
