"""Sources that only base's fixtures and settings load are known; what a project's users load is no support of tests."""

import pytest

from app.core.patch import FileChange, Patch
from app.verify.base_rules import support_files
from tests.support.memory_tree import MemoryTree

BASE = {
    "kit/__init__.py": "",
    "kit/cut.py": "def cut(x):\n    return x\n",
    "kit/testing.py": "SAMPLE = 1\n",
    "tests/conftest.py": "from kit.testing import SAMPLE\n",
    "tests/test_cut.py": "from kit.cut import cut\n",
}


def support(base: dict[str, str], *changed: str, tests: str = "from kit.cut import cut\n") -> tuple[str, ...]:
    tree = MemoryTree({path: text.encode() for path, text in base.items()})
    changes = tuple(
        FileChange(path=path, mode="100644", content=base.get(path, "").encode() + b"\nX = 1\n") for path in changed
    )
    return support_files(tree, Patch(base="b", changes=changes), [tests.encode()])


def test_a_module_for_tests_that_fixtures_load() -> None:
    assert support(BASE, "kit/cut.py", "kit/testing.py") == ("kit/testing.py",)
    assert support(BASE, "kit/testing.py", tests="from kit.testing import SAMPLE\n") == ()
    assert support({**BASE, "kit/again.py": "from . import testing\n"}, "kit/testing.py") == ()
    assert support({**BASE, "tests/conftest.py": ""}, "kit/testing.py") == ()


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("kit/plain.py", {"pytest.ini": "[pytest]\naddopts = -q -p kit.plain\n"}),
        ("kit/plain.py", {"tests/conftest.py": "pytest_plugins = ['kit.plain']\n"}),
        ("src/setup.js", {"package.json": '{"scripts": {"test": "node --require ./src/setup.js --test"}}'}),
        ("src/setup.js", {"package.json": '{"jest": {"setupFiles": ["<rootDir>/src/setup.js"]}}'}),
        ("src/setup.ts", {"vitest.config.ts": "export default { test: { setupFiles: ['./src/setup.ts'] } };\n"}),
        (
            "internal/testkit/kit.go",
            {"a_test.go": 'package a\n\nimport (\n\t"testing"\n\t"example.com/a/internal/testkit"\n)\n'},
        ),
    ],
)
def test_sources_that_settings_and_tests_name(path: str, others: dict[str, str]) -> None:
    base = {"kit/cut.py": "", path: "", **others}
    assert support(base, path, "kit/cut.py") == (path,)


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("kit/app.py", {"tests/conftest.py": "from kit.app import create\n"}),
        ("src/cart.js", {"package.json": '{"main": "src/cart.js"}'}),
        ("src/setup.js", {"package.json": '{"scripts": {"start": "node src/setup.js"}}'}),
        ("kit/plain.py", {"pytest.ini": "[pytest]\ntestpaths = plain\n"}),
    ],
)
def test_sources_that_users_load_as_well(path: str, others: dict[str, str]) -> None:
    assert support({path: "", "kit/cut.py": "", **others}, path, "kit/cut.py") == ()
