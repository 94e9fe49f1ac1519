"""Which commits may share what a set-up made: what is part of its key."""

import re
from pathlib import Path

import pytest

from app.sandbox.setup.ecosystems.base import SetupChoice
from tests.support.setup_plans import BUILD, PACKAGE, TOOLS, install_of, plan


async def test_equal_manifests_mean_an_equal_key_and_other_files_do_not_matter() -> None:
    files = {"requirements.txt": "six==1.16.0", "a.py": "x = 1"}
    key = (await plan(files)).key
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert (await plan({**files, "a.py": "x = 2", "b.py": ""})).key == key


@pytest.mark.parametrize(
    "changed",
    [
        {"requirements.txt": "six==1.17.0"},
        {"requirements-dev.txt": "mock"},
        {"new_package/__init__.py": ""},
        {"pyproject.toml": "[project]\nname = 'b'\ndependencies = ['six']\n"},
    ],
)
async def test_whatever_changes_the_result_changes_the_key(changed: dict[str, str]) -> None:
    files = {"requirements.txt": "six==1.16.0", "requirements-dev.txt": "pytest"}
    assert (await plan({**files, **changed})).key != (await plan(files)).key


async def test_another_version_of_a_tool_changes_the_key(tmp_path: Path) -> None:
    keys = set()
    for version in ("1", "2"):
        node = tmp_path / "node"
        node.write_text(f"#!/bin/sh\necho v{version}\n")
        node.chmod(0o755)
        keys.add((await plan({"package.json": PACKAGE}, tools={**TOOLS, "node": str(node)})).key)
    assert len(keys) == 2


async def test_another_host_of_the_network_changes_the_key() -> None:
    """What was left out because its host was not allowed must be tried again."""
    keys = {(await plan({"requirements.txt": "six"}, hosts=hosts)).key for hosts in ((), ("forge.test",))}
    assert len(keys) == 2
    orders = [("a.test", "b.test"), ("b.test", "a.test")]
    assert len({(await plan({"requirements.txt": "six"}, hosts=hosts)).key for hosts in orders}) == 1


async def test_configured_commands_count_every_file() -> None:
    first = await plan({"deep/down/Cargo.lock": "1", "a.c": "1"}, commands=["make"])
    assert (await plan({"deep/down/Cargo.lock": "1", "a.c": "1"}, commands=["make"])).key == first.key
    assert (await plan({"deep/down/Cargo.lock": "1", "a.c": "2"}, commands=["make"])).key != first.key
    assert (await plan({"deep/down/Cargo.lock": "1", "a.c": "1"}, commands=["make all"])).key != first.key


@pytest.mark.parametrize(
    ("files", "commands", "shared"),
    [
        ({"test_a.py": "import pytest"}, None, True),
        ({"test_a.py": "import pytest", "uv.toml": "find-links = ['wheels']"}, None, False),
        ({"test_a.py": "import pytest", "pyproject.toml": "[tool.uv]\nfind-links = ['wheels']"}, None, False),
        ({"pyproject.toml": BUILD}, None, False),
        ({"requirements.txt": "six"}, None, False),
        ({"package.json": PACKAGE}, None, False),
        ({"test_a.py": "import pytest", "package.json": PACKAGE}, None, False),
        ({"Makefile": ""}, ["make"], False),
    ],
)
async def test_a_setup_that_ran_one_repositorys_code_is_not_shared(
    files: dict[str, str], commands: list[str] | None, *, shared: bool
) -> None:
    """Whoever copies the manifests of another repository must not get to prepare its environment."""
    keys = {(await plan(files, commands=commands, scope=scope)).key for scope in ("theirs", "mine")}
    assert (len(keys) == 1) is shared


SCRIPTS = '{"dependencies": {"a": "1"}, "scripts": {"prepare": "node build.js"}}'


@pytest.mark.parametrize(
    ("files", "commands", "executed"),
    [
        ({"pyproject.toml": BUILD}, None, True),
        ({"requirements.txt": "six\n-e ./tools"}, None, True),
        ({"requirements.txt": "six\ntools @ file:tools"}, None, True),
        ({"requirements.txt": "six"}, None, False),
        ({"requirements.txt": "six", "uv.toml": ""}, None, True),
        ({"package.json": PACKAGE}, None, False),
        ({"package.json": SCRIPTS}, None, True),
        ({"package.json": PACKAGE, "binding.gyp": "{}"}, None, True),
        ({"package.json": PACKAGE, ".yarnrc.yml": "yarnPath: .yarn/y.cjs", "yarn.lock": "__metadata:"}, None, True),
        ({"Cargo.toml": "[dependencies]\nb = '1'\n"}, None, False),
        ({"Makefile": "all:"}, ["make"], True),
    ],
)
async def test_a_setup_that_ran_one_commits_code_is_not_shared(
    files: dict[str, str], commands: list[str] | None, *, executed: bool
) -> None:
    """A branch that leaves the manifests alone must not get to prepare the environment of the default branch."""
    changed = {"src/a/helper.py": "import os", "tools/setup.py": "x", "build.js": "x"}
    keys = {(await plan({**files, **more}, commands=commands)).key for more in ({"build.js": ""}, changed)}
    assert (len(keys) == 2) is executed


DECLARED = {
    "src/a/__init__.py": "version = '1'",
    "src/a/b.py": "x = 1",
    "README.md": "read",
    "tests/test_a.py": "",
    "LICENSE": "",
}


def built_by(backend: str, requires: str, more: str = "", project: str = 'version = "1"') -> str:
    build = f'[build-system]\nrequires = {requires}\nbuild-backend = "{backend}"\n'
    return f'{build}[project]\nname = "a"\n{project}\n{more}\n'


HATCH = ("hatchling.build", '["hatchling>=1.27", "hatch-vcs"]')
SETUPTOOLS = ("setuptools.build_meta", '["setuptools>=77,<90"]')
FLIT = ("flit_core.buildapi", '["flit_core >=3.11,<4"]')
UV_BUILD = ("uv_build", '["uv_build>=0.8"]')
POETRY = ("poetry.core.masonry.api", '["poetry-core>=1.0.0a9"]')
DYNAMIC = 'dynamic = ["version"]'
PLAIN = [
    built_by(*HATCH, '[tool.hatch.build.targets.wheel]\npackages = ["src/a"]\n[tool.hatch.envs.x]\nscripts.y = "z"'),
    built_by(*HATCH, '[tool.hatch.version]\nsource = "vcs"', DYNAMIC),
    built_by(*FLIT, '[tool.flit.module]\nname = "a"'),
    built_by(*POETRY, "[tool.poetry.scripts]\na = 'a.b:main'\n[tool.poetry.dependencies]\nsix = '^1'"),
    built_by(*SETUPTOOLS, '[tool.setuptools.package-data]\na = ["py.typed"]'),
    built_by(*UV_BUILD),
]


async def _same_key(files: dict[str, str], changed: dict[str, str]) -> bool:
    return (await plan(files)).key == (await plan({**files, **changed})).key


@pytest.mark.parametrize("pyproject", PLAIN)
async def test_an_install_that_takes_nothing_from_the_tree_is_for_every_commit_with_these_manifests(
    pyproject: str,
) -> None:
    files = {**DECLARED, "pyproject.toml": pyproject}
    edits = {"src/a/b.py": "x = 2", "src/a/new.py": "", "README.md": "more", "tests/test_b.py": "", "hatchling.py": "x"}
    assert not await _same_key(files, edits)  # a new module at the top is remembered by an editable install
    del edits["hatchling.py"]
    assert await _same_key(files, edits)
    assert not await _same_key(files, {"pyproject.toml": f"{pyproject}\n#"})
    install = install_of((await plan(files)).commands)
    assert "pip install --python /env/bin/python ." not in install  # a copy would be of one commit only


@pytest.mark.parametrize(
    ("pyproject", "more"),
    [
        (built_by("setuptools.build_meta", '["setuptools", "cython"]'), {}),
        (built_by("backend", "[]", "").replace("[project]", 'backend-path = ["."]\n[project]'), {}),
        (built_by(*HATCH).replace("[project]", 'backend-path = ["."]\n[project]'), {}),
        (built_by("hatchling.build", '["hatchling", "plugin @ file:./plugin"]'), {}),
        (built_by(*HATCH), {"hatch.toml": ""}),
        (built_by(*HATCH, "[tool.hatch.build.hooks.custom]"), {}),
        (built_by(*HATCH, '[tool.hatch.build.targets.wheel.shared-scripts]\n"bin/pytest" = "pytest"'), {}),
        (built_by(*HATCH, '[tool.hatch.build.targets.wheel.force-include]\n"b.py" = "pytest.py"'), {}),
        (built_by(*HATCH, '[tool.hatch.version]\nsource = "code"\npath = "src/a/b.py"', DYNAMIC), {}),
        (built_by(*FLIT, "", DYNAMIC), {}),
        (built_by(*FLIT, '[tool.flit.external-data]\ndirectory = "data"'), {}),
        (built_by(*POETRY, "[tool.poetry.build]\nscript = 'build.py'"), {}),
        (built_by(*POETRY, "[tool.poetry.dependencies]\nnear = {path = 'near'}"), {}),
        (built_by(*POETRY, "[tool.poetry.scripts]\npytest = {reference = 'x', type = 'file'}"), {}),
        (built_by("flit_core.buildapi", '["flit_core >=2,<3"]'), {}),
        (built_by("setuptools.build_meta", '["setuptools<60"]'), {}),
        (built_by("poetry.core.masonry.api", '["poetry-core==1.0.4"]'), {}),
        (built_by(*SETUPTOOLS), {"setup.py": "from setuptools import setup; setup()"}),
        (built_by(*SETUPTOOLS), {"setup.cfg": "[metadata]\nversion = attr: a.version\n"}),
        (built_by(*SETUPTOOLS, "[tool.setuptools.dynamic]\nversion = {attr = 'a.version'}", DYNAMIC), {}),
        (built_by(*SETUPTOOLS, "[tool.setuptools.cmdclass]\nbuild_py = 'b.C'"), {}),
        (built_by(*SETUPTOOLS, "[[tool.setuptools.ext-modules]]\nname = 'a.c'\nsources = ['c.c']"), {}),
        (built_by(*SETUPTOOLS, "[tool.setuptools]\nscript-files = ['pytest']"), {}),
        (built_by(*UV_BUILD, "[tool.uv.build-backend.data]\nscripts = 'bin'"), {}),
        (built_by(*UV_BUILD, "[tool.uv.sources]\nnear = {path = 'near'}"), {}),
        (built_by(*UV_BUILD, "[[tool.uv.index]]\nurl = './wheels'\nformat = 'flat'"), {}),
        (built_by(*UV_BUILD), {"uv.toml": "find-links = ['wheels']"}),
        (built_by(*UV_BUILD, 'dependencies = ["near @ file:near"]', ""), {}),
        (built_by(*UV_BUILD, '[dependency-groups]\ntest = ["near @ file:near"]'), {}),
        (built_by(*UV_BUILD), {"requirements.txt": "-r more.txt", "more.txt": "-e ./near"}),
    ],
)
async def test_an_install_that_may_execute_or_copy_the_tree_is_for_one_commit(
    pyproject: str, more: dict[str, str]
) -> None:
    """A branch that leaves the manifests alone must not get to prepare the environment of the default branch."""
    assert not await _same_key({**DECLARED, "pyproject.toml": pyproject, **more}, {"README.md": "more"})


@pytest.mark.parametrize(
    ("pyproject", "file"),
    [
        (built_by(*HATCH, '[tool.hatch.version]\npath = "src/a/__init__.py"', DYNAMIC), "src/a/__init__.py"),
        (built_by(*SETUPTOOLS, '[tool.setuptools.dynamic]\nversion = {file = "VERSION"}', DYNAMIC), "VERSION"),
        (built_by(*SETUPTOOLS, '[tool.setuptools.dynamic]\ndependencies = {file = ["deps"]}', DYNAMIC), "deps"),
    ],
)
async def test_files_that_the_build_reads_a_version_or_dependencies_from_count(pyproject: str, file: str) -> None:
    files = {**DECLARED, "VERSION": "1", "deps": "six", "pyproject.toml": pyproject}
    assert await _same_key(files, {"src/a/b.py": "x = 2"})
    assert not await _same_key(files, {file: "version = '2'"})


async def test_requirement_files_that_only_ci_names_count() -> None:
    choice = SetupChoice(requirements=("-r ci/needs.txt",))
    files = {"ci/needs.txt": "-r more.txt\n", "ci/more.txt": "six\n", "test_a.py": ""}
    keys = {
        (await plan({**files, **more}, choice=choice)).key for more in ({}, {"ci/more.txt": "mock\n"}, {"b.txt": ""})
    }
    assert len(keys) == 2
