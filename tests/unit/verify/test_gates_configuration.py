"""Gates on files that shadow the language, the framework or a dependency, and on changes of how tests are run."""

import sys
from pathlib import Path

import pytest

from app.verify.gates import CandidatePatch
from app.verify.gates.changes_of_tests import how_tests_run
from app.verify.gates.shadowing import installed_modules, required_modules, shadowing
from tests.support.local_sandbox import LocalSandbox
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

PROJECT = {
    "shop/__init__.py": "",
    "shop/cart.py": "x = 1\n",
    "tests/test_cart.py": "",
    "pyproject.toml": '[project]\nname = "shop"\ndependencies = ["PyYAML>=6", "rich[all]>1"]\n',
    "requirements/dev.requirements.txt": "# for work\nfree-zer==1.2\n-r other.txt\n",
    "uv.lock": '[[package]]\nname = "anyio"\nversion = "4"\n[[package]]\nname = "shop"\nsource = { editable = "." }\n',
    "go.mod": "module example.com/shop\n\nrequire github.com/stretchr/testify v1.9.0\n",
    "tools/go.mod": "module example.com/tools\n",
    "package.json": '{"scripts": {"test": "jest", "build": "tsc"}, "jest": {}}',
}

UNREADABLE = {
    "bytes": b"\xff\0",
    "a large number": b"a = " + b"1" * 5_000,
    "a long key": b"a" + b".b" * 200_000 + b" = 1\n",
}


def candidate(changes: dict[str, str | bytes | None], base: dict[str, str] | None = None) -> CandidatePatch:
    tree = MemoryTree({path: content.encode() for path, content in (PROJECT if base is None else base).items()})
    return CandidatePatch(tree, patch_of(changes))


class TestShadowing:
    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("pytest.py", "test framework"),
            ("unittest/__init__.py", "standard library's `unittest`"),
            ("src/_pytest/__init__.py", "test framework"),
            ("json.py", "standard library's `json`"),
            ("tests/random.py", "standard library's `random`"),
            ("yaml.py", "installed `yaml`"),
            ("rich/__init__.py", "installed `rich`"),
            ("lib/free_zer.py", "installed `free_zer`"),
            ("anyio.py", "installed `anyio`"),
            ("found/__init__.py", "installed `found`"),
            ("sitecustomize.py", "at every start"),
            ("src/usercustomize.py", "at every start"),
            ("deep/er/sitecustomize/__init__.py", "at every start"),
            ("x.pth", "at every start"),
            ("evil.egg-info/entry_points.txt", "installed distribution"),
            ("evil-1.dist-info/METADATA", "installed distribution"),
            ("node_modules/jest/index.js", "installed package"),
            ("packages/a/node_modules/chai/package.json", "installed package"),
            ("vendor/github.com/stretchr/testify/assert/a.go", "instead of a dependency"),
        ],
    )
    def test_a_module_that_shadows_another_blocks(self, path: str, reason: str) -> None:
        gate = shadowing(candidate({path: "x = 1\n"}), {"found"})
        assert gate.outcome == "blocked"
        assert reason in gate.details[0]

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            (".npmrc", "node-options=--require ./x.js\n"),
            (".yarnrc.yml", "yarnPath: ./yarn.cjs\n"),
            (".cargo/config.toml", "[build]\nrustc-wrapper = './x'\n"),
            ("go.mod", PROJECT["go.mod"] + "replace github.com/stretchr/testify => ./testify\n"),
            ("go.work", "replace (\n\tgithub.com/stretchr/testify v1.9.0 => ../testify\n)\n"),
        ],
    )
    def test_settings_that_bring_other_code_block(self, path: str, content: str) -> None:
        assert shadowing(candidate({path: content})).outcome == "blocked"

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("shop/json.py", "x = 1\n"),
            ("shop/yaml/__init__.py", ""),
            ("src/pytest_plugin.py", "x"),
            ("docs/unittest.md", "x"),
            ("docs/types.py", "x = 1\n"),
            ("src/shop/__init__.py", ""),
            ("cart.py", "x = 1\n"),
            ("unittest/x.py", "x = 1\n"),
            ("test/fixtures/a/node_modules/b/index.js", "x"),
            (".npmrc", "save-exact=true\n"),
            (".cargo/config.toml", "[net]\nretry = 2\n"),
            ("go.mod", PROJECT["go.mod"] + "replace example.com/tools => ./tools\n"),
            ("go.mod", PROJECT["go.mod"] + "replace example.com/shop/new => ./new\n"),
            ("go.mod", PROJECT["go.mod"] + "replace github.com/a/b => github.com/c/b v1.0.0\n"),
        ],
    )
    def test_files_that_shadow_nothing_pass(self, path: str, content: str) -> None:
        assert shadowing(candidate({path: content})).outcome == "passed"

    def test_a_module_that_was_there_before_may_change(self) -> None:
        base = {"json.py": "x = 1\n", "code/__init__.py": ""}
        assert shadowing(candidate({"json.py": "x = 2\n", "code.py": "x = 1\n"}, base)).outcome == "passed"

    def test_a_package_of_tests_is_not_an_import_root(self) -> None:
        base = PROJECT | {"tests/__init__.py": ""}
        assert shadowing(candidate({"tests/random.py": "x = 1\n"}, base)).outcome == "passed"

    def test_vendored_code_with_its_list_passes(self) -> None:
        changes: dict[str, str | bytes | None] = {
            "vendor/a.b/c/d.go": "package c\n",
            "vendor/modules.txt": "# a.b/c v1\n",
        }
        assert shadowing(candidate(changes)).outcome == "passed"

    def test_names_of_every_list_of_requirements(self) -> None:
        poetry = "[tool.poetry.dependencies]\npython = '^3'\nhttpx = '1'\n"
        poetry += "[tool.poetry.group.dev.dependencies]\nMy-Tool = '1'\n"
        groups = "[dependency-groups]\ndev = ['ruff', {include-group = 'x'}]\n"
        base = MemoryTree(
            {"pyproject.toml": (poetry + groups).encode(), "constraints.txt": b"six\n\n", "uv.lock": b"= broken"}
        )
        found = required_modules(base)
        assert found >= {"httpx", "my_tool", "ruff", "six"}
        assert "python" not in found

    async def test_installed_modules_are_listed_without_importing_them(self, tmp_path: Path) -> None:
        # The sandbox maps paths below /tmp, where this interpreter may be.
        script = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        sandbox = LocalSandbox(tmp_path, {"python": script.encode()})
        (sandbox.workspace / "python").chmod(0o755)
        assert await installed_modules(sandbox, "/workspace/python") >= {"pydantic", "pytest", "yaml"}
        assert await installed_modules(sandbox, "false") == frozenset()

    def test_broken_or_odd_lists_name_nothing(self) -> None:
        files = {"pyproject.toml": b"project = 1\ntool = []\npackage = 3\n", "uv.lock": b"[[package]]\nname = 3\n"}
        assert required_modules(MemoryTree(files)) == frozenset()

    @pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
    def test_a_list_that_cannot_be_read_hides_no_other(self, content: bytes) -> None:
        files = {"uv.lock": content, "poetry.lock": content, "yarn.lock": content, "requirements.txt": b"six\n"}
        assert required_modules(MemoryTree(files)) == {"six"}
        assert shadowing(candidate({"pyproject.toml": content, "uv.lock": content, "yaml.py": ""})).outcome == "blocked"


class TestConfiguration:
    @pytest.mark.parametrize("kind", ["a large number", "a long key"])
    def test_settings_that_cannot_be_read_are_shown_as_changed(self, kind: str) -> None:
        assert how_tests_run(candidate({"pyproject.toml": UNREADABLE[kind]})).outcome == "warned"

    @pytest.mark.parametrize(
        "path",
        [
            "pytest.ini",
            ".pytest.ini",
            ".pytest.toml",
            "jest.config.js",
            "tox.ini",
            "tox.toml",
            ".taprc",
            "Makefile",
            "build.rs",
            "sub/.env",
            ".cargo/config.toml",
            "go.work",
        ],
    )
    def test_files_that_say_how_tests_are_run_warn(self, path: str) -> None:
        assert how_tests_run(candidate({path: "x"})).outcome == "warned"

    def test_a_conftest_is_reported_with_its_hooks(self) -> None:
        content = (
            "import pytest\n\ndef pytest_collection_modifyitems(items):\n    items.clear()\n\ncollect_ignore = []\n"
        )
        (told,) = how_tests_run(candidate({"tests/conftest.py": content})).details
        assert told.endswith("a new one changes how tests are run, with collect_ignore, pytest_collection_modifyitems")

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("package.json", PROJECT["package.json"].replace('jest"', 'true"')),
            ("package.json", PROJECT["package.json"].replace("{}}", '{"bail": 1}}')),
            ("package.json", PROJECT["package.json"].replace("{}}", '{}, "overrides": {"chai": "file:x"}}')),
            ("pyproject.toml", PROJECT["pyproject.toml"] + "[tool.pytest.ini_options]\naddopts = '-p no:x'\n"),
            ("pyproject.toml", PROJECT["pyproject.toml"] + "[project.entry-points.pytest11]\nx = 'shop.cart'\n"),
            ("setup.cfg", "[tool:pytest]\naddopts = -x\n"),
            ("shop/cart_test.go", "package shop\n\nfunc TestMain(m *testing.M) {\n}\n"),
        ],
    )
    def test_parts_of_other_files_warn(self, path: str, content: str) -> None:
        assert how_tests_run(candidate({path: content})).outcome == "warned"

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("package.json", PROJECT["package.json"].replace("tsc", "tsc -p .")),
            ("pyproject.toml", PROJECT["pyproject.toml"] + "[tool.ruff]\nline-length = 100\n"),
            ("setup.cfg", "[flake8]\nmax-line-length = 100\n"),
            ("shop/cart.py", "x = 2\n"),
        ],
    )
    def test_other_parts_pass(self, path: str, content: str) -> None:
        assert how_tests_run(candidate({path: content})).outcome == "passed"

    @pytest.mark.parametrize("path", ["package.json", "pyproject.toml", "setup.cfg"])
    def test_an_unreadable_file_warns(self, path: str) -> None:
        assert how_tests_run(candidate({path: "{[broken"})).outcome == "warned"
