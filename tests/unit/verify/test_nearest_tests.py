"""Which tests a change is near to."""

import pytest

from app.core.verification import Execution, SuiteResult
from app.verify.frameworks import SuiteCommand
from app.verify.launcher import launcher_of
from app.verify.launcher.base import Launcher
from app.verify.paths_of_tests import MAX_FILES, matching, nearest, nearest_first
from app.verify.suite_runner import SuiteRunner
from tests.support.memory_tree import MemoryTree
from tests.support.no_sandboxes import unopened
from tests.support.sandbox_projects import patch_of

TREE = MemoryTree(
    {
        "src/shop/money.py": b"",
        "src/shop/cart.py": b"",
        "src/shop/tests/test_beside.py": b"",
        "tests/test_money.py": b"",
        "tests/test_cart.py": b"from shop import money\n",
        "tests/test_zoo.py": b"monkey",
        "web/money.test.ts": b"",
        "web/other.spec.ts": b"",
        "pkg/money_test.go": b"",
        "docs/money.md": b"money",
    }
)


def test_changed_tests_come_first_then_namesakes_then_mentions_then_neighbours() -> None:
    patch = patch_of({"src/shop/money.py": "x", "tests/test_new.py": "x"})
    assert nearest(TREE, patch) == (
        "tests/test_new.py",
        "pkg/money_test.go",
        "tests/test_money.py",
        "web/money.test.ts",
        "tests/test_cart.py",
        "src/shop/tests/test_beside.py",
        "tests/test_zoo.py",
    )


def test_known_guards_come_before_mentions_in_their_order() -> None:
    found = nearest(TREE, patch_of({"src/shop/money.py": "x"}), ("tests/test_zoo.py", "src/shop/tests/test_beside.py"))
    assert found[3:] == ("tests/test_zoo.py", "src/shop/tests/test_beside.py", "tests/test_cart.py")


def test_deleted_tests_are_not_run() -> None:
    assert nearest(TREE, patch_of({"tests/test_money.py": None, "pkg/x.go": "x"})) == (
        "pkg/money_test.go",
        "tests/test_cart.py",
        "tests/test_zoo.py",
    )


def test_names_that_say_nothing_bring_nothing_near() -> None:
    assert nearest(TREE, patch_of({"lib/__init__.py": "x"})) == ()


def test_the_number_of_near_tests_is_limited() -> None:
    many = MemoryTree({f"tests/test_{number}.py": b"import money" for number in range(200)})
    assert len(nearest(many, patch_of({"money.py": "x"}))) == MAX_FILES


@pytest.mark.parametrize(
    ("suite", "changes", "why"),
    [
        (
            SuiteCommand("pytest", "pytest", "pytest"),
            {"lib/__init__.py": "x"},
            "no existing test file is near the change",
        ),
        (
            SuiteCommand("pytest", "pytest", "pytest"),
            {"new/test_a.py": "x"},
            "no existing test file is near the change",
        ),
        (SuiteCommand("make test"), {"src/shop/money.py": "x"}, "its runner cannot run chosen test files"),
    ],
)
async def test_reason_why_no_part_of_a_long_suite_is_run(
    suite: SuiteCommand, changes: dict[str, str], why: str
) -> None:
    base = SuiteResult(execution=Execution(command=suite.command, exit_code=137, seconds=60.0, timed_out=True))
    found = await SuiteRunner(suite, unopened(TREE), 60.0).compare(patch_of(changes), base)
    assert why.replace("near the change", "near the change") in found.not_run


GO = launcher_of(SuiteCommand("go test ./...", framework="go", narrowed="go test"))
GO_FILES = ("fee/fee_test.go", "aaa/aaa_test.go", "root_test.go", "in/zone/zone_test.go")


def test_a_test_of_go_is_in_its_package_or_in_the_first_directory() -> None:
    assert matching(GO.sources(("example.com/m/fee::TestFee",)), GO_FILES) == ["fee/fee_test.go", "root_test.go"]
    assert matching(GO.sources(("example.com/m/in/zone::TestZ",)), GO_FILES) == ["root_test.go", "in/zone/zone_test.go"]


def test_the_tests_of_the_nearest_package_of_go_come_first() -> None:
    names = [f"example.com/m{package}::TestOne" for package in ("/aaa", "", "/fee", "/in/zone")]
    assert nearest_first(GO.own_files(names), GO_FILES[:2], 2) == (names[2], names[0])
    assert nearest_first(GO.own_files(names), ("go.mod", "root_test.go", "fee/fee_test.go"), 2) == (names[1], names[2])
    assert nearest_first(GO.own_files(names[::2]), ("root_test.go", "fee/fee_test.go"), 1) == (names[2],), "no own root"


CARGO = launcher_of(SuiteCommand("cargo test", framework="cargo", narrowed="cargo test"))
PYTEST = launcher_of(SuiteCommand("pytest", framework="pytest", narrowed="pytest"))


@pytest.mark.parametrize(
    ("launcher", "names", "files"),
    [
        (CARGO, ("tests/b.rs::one", "tests/a.rs::one"), ("Cargo.toml", "tests/a.rs")),
        (PYTEST, ("tests/test_b.py::test_one", "tests/test_a.py::test_one"), ("tests/conftest.py", "tests/test_a.py")),
    ],
)
def test_files_that_all_tests_share_make_none_nearer(
    launcher: Launcher, names: tuple[str, str], files: tuple[str, str]
) -> None:
    assert set(matching(launcher.sources(names), files)) == set(files)
    assert nearest_first(launcher.own_files(names), files, 1) == names[1:]


def test_choice_of_equally_near_tests_cannot_be_known() -> None:
    names = [f"example.com/m/fee::Test{number}" for number in range(40)]
    found = {nearest_first(GO.own_files(names), GO_FILES, 20) for _ in range(8)}
    assert len(found) > 1
    assert all(len(set(one)) == 20 for one in found)
