"""What a set-up is decided to be, from the manifests of a commit."""

import _ctypes
import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.core.errors import ConfigError, SetupError
from app.sandbox.base import SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.ecosystems.python import keep_generated
from app.sandbox.setup.package_clients import ClientProblem
from app.sandbox.setup.package_hosts import PackageClients
from app.sandbox.setup.plan import DETECTED, WORK_ENVIRONMENT, plan_setup
from tests.support.memory_tree import MemoryTree

PYTHON = Path("/usr/bin/python3")
TOOLS = {"node": "/bin/true", "npm": "/bin/true", "mvn": "/bin/true", "cargo": "/bin/true", "go": "/bin/true"}
UV = "/tmp/uv/bin/uv pip install --python /env/bin/python "
GET_UV = "/env/bin/python -I -m pip install --quiet --target /tmp/uv uv || echo 'uv cannot be had here: pip is used'"
PIP = "/env/bin/python -I -m pip install --use-pep517 "
BUILD = '[build-system]\nrequires = ["x"]\nbuild-backend = "x"\n[project]\nname = "a"\n'


class Clients:
    """Package clients that say the same each time, and count how often they are asked."""

    def __init__(self, said: PackageClients | None = None) -> None:
        self.said = said or PackageClients(
            hosts=("https://index.test",), environment=(("PIP_INDEX_URL", "https://index.test/"),)
        )
        self.asked = 0

    async def __call__(self) -> PackageClients:
        self.asked += 1
        return self.said


async def plan(
    files: dict[str, str],
    *,
    commands: Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    clients: Clients | None = None,
    tools: dict[str, str] = TOOLS,
    scope: str = "",
    submodules: dict[str, str] | None = None,
    choice: SetupChoice = DETECTED,
) -> SetupPlan:
    tree = MemoryTree({path: text.encode() for path, text in files.items()}, submodules=submodules or {})
    return await plan_setup(
        tree,
        commands=commands,
        extra_hosts=hosts,
        clients=clients or Clients(),
        python=PYTHON,
        scope=scope,
        find_tool=tools.get,
        choice=choice,
    )


async def installs(files: dict[str, str]) -> str:
    """pip's arguments in the plan for a repository, at its first attempt."""
    commands = (await plan(files)).commands
    assert commands[:2] == ("/usr/bin/python3 -I -m venv /env", GET_UV)
    return install_of(commands).partition(" || ")[0].removeprefix(UV)


def install_of(commands: Sequence[str]) -> str:
    return next(command for command in commands if command.startswith(UV))


def shell(command: str) -> str:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout


async def test_requirement_files_whose_pins_do_not_fit_are_tried_without_them(tmp_path: Path) -> None:
    install = install_of((await plan({"pyproject.toml": BUILD, "requirements/test.txt": "greenlet==1.1.0"})).commands)
    strict, copied, relaxed, bare, last = install.split(" || ")
    assert strict == f"{UV}-e . -r requirements/test.txt"
    assert copied == f"{UV}. -r requirements/test.txt"
    assert bare == f"{UV}-e ."
    assert last == f"{PIP}-e . -r requirements/test.txt"
    written = "a==1.2 ; python_version<'4'\n-r base.txt\nb==2 \\\n    --hash=sha256:aa\nc~=3.1  # why\nd>=2\n"
    (tmp_path / "test.txt").write_text(written)
    edit = relaxed.removeprefix("{ ").partition(" > ")[0].replace("requirements/test.txt", str(tmp_path / "test.txt"))
    shown = shell(edit)
    assert [line.strip() for line in shown.splitlines()] == ["a ; python_version<'4'", "b", "c  # why", "d>=2"]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"README.md": "# A"},
        {"a.py": "x = 1", "test_a.py": "import unittest\n\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"},
        {"pyproject.toml": "[tool.ruff]\nline-length = 100\n", "a.py": ""},
        {"pyproject.toml": "not [ toml", "setup.cfg": "[broken", "package.json": "{", "Cargo.toml": "=", "a.py": ""},
        {"package.json": '{"scripts": {"test": "node --test"}}', "a.js": ""},
        {"package.json": "[1, 2]", "a.js": ""},
        {"Cargo.toml": "[package]\nname = 'a'\n", "Cargo.lock": "[[package]]\nname = 'a'\nversion = '0.1.0'\n"},
        {"Cargo.toml": "[package]\nname = 'a'\n[dependencies]\nb = { path = 'b' }\n"},
        {"examples/web/package.json": '{"dependencies": {"a": "1"}}', "docs/requirements.txt": "sphinx"},
    ],
)
async def test_a_project_without_dependencies_needs_no_setup(files: dict[str, str]) -> None:
    clients = Clients()
    assert await plan(files, clients=clients) == SetupPlan()
    assert clients.asked == 0


async def test_a_project_is_installed_editable_with_its_test_extras() -> None:
    pyproject = BUILD + '[project.optional-dependencies]\ntest = ["pytest"]\ndocs = ["sphinx"]\ndev = ["ruff"]\n'
    setup = await plan({"pyproject.toml": pyproject})
    assert setup.commands == (
        "/usr/bin/python3 -I -m venv /env",
        GET_UV,
        f"{UV}-e '.[test]' || {UV}'.[test]' || {PIP}-e '.[test]'",
        keep_generated(),
    )
    assert setup.origin == "detected"
    assert setup.hosts == ("https://index.test",)
    assert dict(setup.environment)["PIP_INDEX_URL"] == "https://index.test/"
    assert dict(setup.environment)["VIRTUAL_ENV"] == "/env"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": BUILD}, "-e ."),
        ({"pyproject.toml": BUILD, "tests/test_a.py": "import pytest"}, "-e . pytest"),
        ({"pyproject.toml": BUILD + '[project.optional-dependencies]\ndev = ["x"]\n'}, "-e '.[dev]'"),
        (
            {
                "pyproject.toml": BUILD
                + '[dependency-groups]\ntests = ["pytest>=8", {include-group = "b"}]\nb = ["six"]\n'
            },
            "-e . 'pytest>=8' six",
        ),
        ({"pyproject.toml": BUILD + '[dependency-groups]\ntest = ["A[x, y]", "a", "a-b"]\n'}, "-e '.[x,y]' a-b"),
        (
            {"pyproject.toml": BUILD + '[dependency-groups]\ntest = [{include-group = "test"}, "six"]\n'},
            "-e . six",
        ),
        (
            {
                "pyproject.toml": BUILD
                + '[tool.poetry.group.test.dependencies]\npytest = "^7.2"\nsix = "*"\npython = "^3.9"\n'
            },
            "-e . 'pytest>=7.2,<8' six",
        ),
        (
            {"pyproject.toml": BUILD + '[tool.hatch.envs.default]\ndependencies = ["pytest", "x{matrix:y}"]\n'},
            "-e . pytest",
        ),
        (
            {"setup.py": "from setuptools import setup\nsetup(extras_require={'testing': ['a'], 'x': []})"},
            "-e '.[testing]'",
        ),
        ({"setup.py": "import setuptools\nsetuptools.setup(tests_require=['mock'])"}, "-e . mock"),
        (
            {
                "setup.cfg": "[metadata]\nname = a\n[options.extras_require]\ntest = b\n",
                "setup.py": "import s; s.setup()",
            },
            "-e '.[test]'",
        ),
        (
            {
                "pyproject.toml": BUILD,
                "tox.ini": "[testenv]\ndeps =\n  pytest>=7\n  -rfoo.txt\n  py38: mock\n  flask[async]\n",
            },
            "-e . 'pytest>=7' 'flask[async]'",
        ),
        ({"requirements.txt": "six", "requirements-dev.txt": "pytest"}, "-r requirements.txt -r requirements-dev.txt"),
        (
            {"requirements.txt": "six", "requirements/test.txt": "pytest"},
            "-r requirements.txt -r requirements/test.txt",
        ),
        ({"requirements.txt": "six", "test-requirements.txt": "mock"}, "-r requirements.txt -r test-requirements.txt"),
        ({"requirements.txt": "", "a.py": "", "conftest.py": ""}, "pytest"),
        ({"pyproject.toml": '[project]\nname = "a"\ndependencies = ["six>=1; python_version > \'3\'"]\n'}, None),
        ({"pyproject.toml": '[project]\nname = "a"\n', "src/a/__init__.py": ""}, "-e ."),
        ({"pyproject.toml": '[project]\nname = "a"\n[project.optional-dependencies]\ntest = ["six"]\n'}, "six"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "a.py": ""}, "pytest"),
        ({"a.py": "", "test_a.py": "def test_a():\n    assert True\n"}, "pytest"),
        ({"server/pyproject.toml": BUILD, "README.md": ""}, "-e ./server"),
        ({"Pipfile": '[packages]\nsix = "*"\n[dev-packages]\npytest = "~=8.0"\n'}, "six 'pytest~=8.0'"),
    ],
)
async def test_test_dependencies_of_python_projects_are_found(files: dict[str, str], expected: str | None) -> None:
    found = await installs(files)
    assert found == expected if expected else found == "'six>=1; python_version > '\"'\"'3'\"'\"''"


async def test_test_requirements_are_preferred_to_all_of_development() -> None:
    pyproject = BUILD + '[dependency-groups]\ndev = ["ruff", "sphinx"]\ntest = ["pytest"]\n'
    assert await installs({"pyproject.toml": pyproject, "requirements-dev.txt": "mypy"}) == "-e . pytest"


async def test_an_option_is_not_a_requirement() -> None:
    pyproject = (
        BUILD + '[dependency-groups]\ntest = ["--index-url=https://evil.test", "-e /etc", "six; echo hi", "$(id)"]\n'
    )
    assert await installs({"pyproject.toml": pyproject}) == "-e . 'six; echo hi'"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0", ">=0,<1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("1.5", "==1.5"),
        (">=1,<3", ">=1,<3"),
    ],
)
async def test_poetrys_versions_mean_the_same_to_pip(version: str, expected: str) -> None:
    pyproject = BUILD + f'[tool.poetry.group.test.dependencies]\nx = "{version}"\n'
    assert await installs({"pyproject.toml": pyproject}) == f"-e . {shlex.quote('x' + expected)}"


LOCKS = {
    "uv.lock": """
[[package]]\nname = "a"\nversion = "0.1.0"\nsource = { editable = "." }
[[package]]\nname = "Six"\nversion = "1.16.0"\nsource = { registry = "https://index.test/simple" }
[[package]]\nname = "two"\nversion = "1"\nsource = { registry = "https://index.test/simple" }
[[package]]\nname = "two"\nversion = "2"\nsource = { registry = "https://index.test/simple" }
""",
    "poetry.lock": """
[[package]]\nname = "six"\nversion = "1.16.0"
[[package]]\nname = "b"\nversion = "1"\n[package.source]\ntype = "git"\nurl = "https://x.test"
""",
    "pdm.lock": '[[package]]\nname = "six"\nversion = "1.16.0"\n',
    "pylock.toml": '[[packages]]\nname = "six"\nversion = "1.16.0"\n',
    "Pipfile.lock": '{"default": {"six": {"version": "==1.16.0"}, "g": {"git": "x"}}, "develop": {}}',
}


@pytest.mark.parametrize("lock", LOCKS)
async def test_locked_versions_are_kept_where_they_fit(lock: str) -> None:
    _, _, pins, install, _ = (await plan({"pyproject.toml": BUILD, lock: LOCKS[lock]})).commands
    assert pins == "printf '%s\\n' six==1.16.0 > /env/constraints.txt"
    assert install == f"{UV}-e . -c /env/constraints.txt || {UV}-e . || {UV}. || {PIP}-e ."


async def test_a_hostile_lock_file_writes_no_command() -> None:
    lock = '[[package]]\nname = "a; id"\nversion = "1"\n[[package]]\nname = "b"\nversion = "1`id`"\n'
    assert (await plan({"pyproject.toml": BUILD, "pdm.lock": lock})).commands[2:] == (
        f"{UV}-e . || {UV}. || {PIP}-e .",
        keep_generated(),
    )


async def test_a_version_taken_from_git_is_replaced_by_the_changelogs() -> None:
    pyproject = BUILD.replace('"x"]', '"x", "hatch-vcs"]')
    files = {"pyproject.toml": pyproject}
    changelog = {"CHANGELOG.rst": "=========\nChangelog\n=========\n\nUnreleased\n\na 2.10.1 (2026-01-02)\n=====\n"}
    setup = await plan({**files, **changelog})
    assert dict(setup.environment)["SETUPTOOLS_SCM_PRETEND_VERSION"] == "2.10.1"
    assert dict((await plan(files)).environment)["SETUPTOOLS_SCM_PRETEND_VERSION"] == "999.0.0"
    assert "SETUPTOOLS_SCM_PRETEND_VERSION" not in dict((await plan({"pyproject.toml": BUILD})).environment)


PACKAGE = json.dumps({"name": "a", "devDependencies": {"b": "1"}})
PNPM_INSTALL = re.compile(
    r"^pnpm install --frozen-lockfile \|\| pnpm install --no-frozen-lockfile --ignore-scripts \|\| node /tmp/leave-out"
)
PNPM = "npm install --global --prefix /env --no-audit --no-fund pnpm@"
YARN_1 = "yarn install --frozen-lockfile"
YARN = "npm install --global --prefix /env --no-audit --no-fund "


@pytest.mark.parametrize(
    ("files", "tools", "commands"),
    [
        (
            {"package-lock.json": "{}"},
            (),
            [
                re.compile(
                    r"^npm ci --no-audit --no-fund \|\| npm ci --ignore-scripts .* \|\| npm install --no-package-lock"
                )
            ],
        ),
        (
            {"bun.lock": ""},
            (),
            [
                "npm install --global --prefix /env --no-audit --no-fund bun",
                re.compile(r"^bun install --frozen-lockfile \|\| bun install --ignore-scripts \|\| npm install"),
            ],
        ),
        (
            {"npm-shrinkwrap.json": "{}"},
            (),
            [
                re.compile(
                    r"^npm ci --no-audit --no-fund \|\| npm ci --ignore-scripts .* \|\| npm install --no-package-lock"
                )
            ],
        ),
        (
            {},
            (),
            [re.compile(r"^npm install --no-package-lock --no-audit --no-fund \|\| npm install .* --ignore-scripts")],
        ),
        ({"pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}, ("pnpm",), [PNPM_INSTALL]),
        ({"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"}, (), [f"{PNPM}8", PNPM_INSTALL]),
        (
            {"yarn.lock": "# yarn lockfile v1\n"},
            ("yarn",),
            [re.compile("sed .* yarn.lock; } && yarn install --frozen-lockfile")],
        ),
        ({"yarn.lock": "# yarn lockfile v1\n"}, (), [f"{YARN}yarn@1", re.compile("yarn install --frozen-lockfile")]),
        ({"yarn.lock": "__metadata:\n"}, (), [f"{YARN}@yarnpkg/cli-dist@4", re.compile("yarn install --no-immutable")]),
        (
            {"yarn.lock": "__metadata:\n", ".yarnrc.yml": "yarnPath: .yarn/releases/yarn-4.cjs\n"},
            (),
            [f"{YARN}yarn@1", re.compile("yarn install --no-immutable")],
        ),
    ],
)
async def test_node_projects_are_installed_by_the_manager_of_their_lock_file(
    files: dict[str, str], tools: Sequence[str], commands: list[str | re.Pattern[str]]
) -> None:
    setup = await plan({"package.json": PACKAGE, **files}, tools={**TOOLS, **dict.fromkeys(tools, "/bin/true")})
    executed = [command for command in setup.commands if not command.startswith("printf")]
    assert len(executed) == len(commands)
    for found, expected in zip(executed, commands, strict=True):
        assert found == expected if isinstance(expected, str) else expected.search(found)
    assert setup.directories == ("node_modules",)


async def test_pytest_is_installed_where_a_candidate_runs_it() -> None:
    commands = (await plan({"pyproject.toml": BUILD}, choice=SetupChoice(pytest=True))).commands
    assert install_of(commands).startswith(f"{UV}-e . pytest ")


@pytest.mark.parametrize(
    ("files", "before", "short"),
    [
        ({"pyproject.toml": BUILD, "test_a.py": "import pytest"}, "", ["pip install -e . pytest"]),
        ({"pyproject.toml": BUILD}, "2024-02-03", ["pip install uv", "uv pip install --exclude-newer 2024-02-03 -e ."]),
        ({"package.json": PACKAGE, "package-lock.json": "{}"}, "", ["npm ci"]),
        (
            {"package.json": PACKAGE, "yarn.lock": ""},
            "",
            [f"{YARN.replace(' --no-audit --no-fund', '')}yarn@1", YARN_1],
        ),
        ({"web/package.json": PACKAGE}, "", ["cd web/ && npm install --no-package-lock"]),
        ({"go.mod": "module a\n"}, "", ["GOCACHE=/env/go/cache go build std"]),
    ],
)
async def test_a_plan_has_lines_as_a_person_writes_them(files: dict[str, str], before: str, short: list[str]) -> None:
    assert list((await plan(files, choice=SetupChoice(before=before))).short) == short


async def test_the_package_manager_a_project_names_is_the_one_it_gets() -> None:
    package = json.dumps({"packageManager": "pnpm@9.1.2+sha512.abc", "dependencies": {"b": "1"}})
    setup = await plan({"package.json": package, "pnpm-lock.yaml": "lockfileVersion: '9.0'\n"})
    assert setup.commands[0] == f"{PNPM}9.1.2"
    hostile = json.dumps({"packageManager": "pnpm@1.2.3; id", "dependencies": {"b": "1"}})
    assert (await plan({"package.json": hostile, "pnpm-lock.yaml": ""})).commands[0] == f"{PNPM}1.2.3"


async def test_every_member_of_a_workspace_may_have_modules_of_its_own() -> None:
    root = json.dumps({"workspaces": ["packages/*", "tools/**", "./site", "!packages/c"]})
    members = ["packages/a", "packages/b", "packages/b/deep", "site", "tools/x/y", "elsewhere"]
    files = {"package.json": root, "package-lock.json": "{}"} | {f"{name}/package.json": PACKAGE for name in members}
    assert (await plan(files)).directories == (
        *("node_modules", "packages/a/node_modules", "packages/b/node_modules"),
        *("site/node_modules", "tools/x/y/node_modules"),
    )
    scripts = {"package.json": json.dumps({"scripts": {"postinstall": "sh all.sh"}, "dependencies": {"b": "1"}})}
    installed = {f"{name}/package.json": PACKAGE for name in ("a", "b/c", "examples/d")}
    assert (await plan(scripts | installed)).directories == ("node_modules", "a/node_modules", "b/c/node_modules")
    pnpm = {"package.json": PACKAGE, "pnpm-workspace.yaml": "packages: ['lib']\n", "lib/package.json": PACKAGE}
    assert (await plan(pnpm)).directories == ("node_modules", "lib/node_modules")


async def test_a_project_below_the_top_is_found() -> None:
    setup = await plan({"web/package.json": PACKAGE, "web/package-lock.json": "{}", "README.md": ""})
    assert setup.commands[-1].startswith("cd web/ && npm ci --no-audit --no-fund || ")
    assert setup.directories == ("web/node_modules",)


async def test_crates_are_fetched_into_the_environment() -> None:
    lock = '[[package]]\nname = "b"\nversion = "1.0.0"\nsource = "registry+https://index.test"\n'
    setup = await plan({"Cargo.toml": "[package]\nname = 'a'\n", "Cargo.lock": lock})
    assert setup.commands == ("cargo fetch --locked",)
    assert dict(setup.environment)["CARGO_HOME"] == "/env/cargo"
    loose = await plan({"Cargo.toml": "[package]\nname = 'a'\n[dev-dependencies]\nb = '1'\n"})
    assert loose.commands == ("cargo fetch",)


async def test_cargo_is_given_the_mirror_that_this_machine_uses() -> None:
    clients = Clients(PackageClients(cargo_config='[source.m]\nregistry = "sparse+https://m.test/"\n'))
    setup = await plan({"Cargo.toml": "[dependencies]\nb = '1'\n"}, clients=clients)
    assert setup.commands[0].startswith("mkdir -p /env/cargo && printf %s '[source.m]\nregistry = ")
    assert setup.commands[1] == "cargo fetch"


STANDARD = "GOCACHE=/env/go/cache go build std"


@pytest.mark.parametrize("vendored", [{}, {"vendor/modules.txt": "# x v1.0.0\n"}])
async def test_go_compiles_its_own_library_once_for_all_projects(vendored: dict[str, str]) -> None:
    files = {"go.mod": "module a\nrequire x v1.0.0\n" if vendored else "module a\n\ngo 1.22\n", **vendored}
    one, other = await plan(files, scope="one"), await plan({"go.mod": "module b\n"}, scope="other")
    assert one.commands == (STANDARD,)
    assert one.key == other.key


async def test_go_modules_are_downloaded_into_the_environment() -> None:
    setup = await plan({"go.mod": "module a\n\nrequire (\n\tx v1.0.0\n)\n", "go.sum": ""})
    assert setup.commands == (STANDARD, "go mod download")
    assert dict(setup.environment)["GOMODCACHE"] == "/env/go/mod"
    workspace = await plan({"go.work": "use ./m\n", "m/go.mod": "module m\nrequire x v1.0.0\n"})
    assert workspace.commands == (STANDARD, "go mod download")


async def test_maven_executes_one_test_so_that_all_it_needs_is_there_offline() -> None:
    files = {"pom.xml": "<project/>", "src/test/java/a/LongTest.java": "class Long {}", "src/test/java/ATest.java": ""}
    setup = await plan(files)
    (command,) = setup.commands
    assert " -Dtest=ATest " in command
    assert dict(setup.environment)["MAVEN_OPTS"] == "-Dmaven.repo.local=/env/m2"
    assert "not installed" in (await plan(files, tools={})).notes[0]


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128"),
        ({"AGENT_FIX_MAVEN_MIRROR": "https://m.test/x"}, "--settings /dev/null"),
    ],
)
def test_maven_is_told_of_proxy_and_mirror(variables: dict[str, str], arguments: str) -> None:
    (command,) = asyncio.run(plan({"pom.xml": "<project/>"})).commands
    shown = command.replace("mvn ", "echo ").replace("/tmp/settings.xml", "/dev/null")
    done = subprocess.run(
        ["sh", "-c", shown], env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, check=True
    )
    assert arguments in done.stdout
    assert bool(arguments) == ("proxy" in done.stdout or "settings" in done.stdout)


async def test_a_tool_that_is_not_here_is_said_and_nothing_is_tried() -> None:
    files = {"Cargo.toml": "[dependencies]\nb = '1'\n", "go.mod": "require x v1\n", "package.json": PACKAGE}
    setup = await plan(files, tools={})
    assert setup.commands == ()
    assert [note.rpartition("but ")[2] for note in setup.notes] == [
        "npm is not installed on this machine",
        "cargo is not installed on this machine",
        "go is not installed on this machine",
    ]


async def test_several_ecosystems_are_prepared_together() -> None:
    setup = await plan({"pyproject.toml": BUILD, "package.json": PACKAGE, "package-lock.json": "{}"})
    assert [command.split()[0] for command in setup.commands] == [
        str(PYTHON),
        "/env/bin/python",
        UV.split(maxsplit=1)[0],
        "cd",
        "printf",
        "npm",
    ]
    assert setup.directories == ("node_modules",)


async def test_configured_commands_stand_instead_of_detected_ones() -> None:
    files = {"pyproject.toml": BUILD, "package.json": PACKAGE, "a.py": ""}
    setup = await plan(files, commands=["make deps", "make deps"], hosts=["example.com"])
    assert setup.commands == ("/usr/bin/python3 -I -m venv /env", "make deps", "make deps", keep_generated())
    assert setup.origin == "configuration"
    assert setup.directories == ("node_modules",)
    assert setup.hosts == ("https://index.test", "example.com")
    assert (await plan({"Makefile": ""}, commands=["make deps"])).commands == ("make deps",)


async def test_no_set_up_can_be_configured_too() -> None:
    clients = Clients()
    setup = await plan({"pyproject.toml": BUILD, "a.py": ""}, commands=[], clients=clients)
    assert (setup.commands, setup.origin, clients.asked) == ((), "configuration", 0)


@pytest.mark.parametrize("host", ["localhost", "10.0.0.1", "*", "https://index.corp.test", "169.254.169.254"])
async def test_a_host_that_no_repository_may_open_is_an_error_of_its_configuration(host: str) -> None:
    with pytest.raises(ConfigError, match="network"):
        await plan({}, hosts=[host])


async def test_an_index_with_credentials_is_refused_before_anything_starts() -> None:
    clients = Clients(
        PackageClients(problems=(ClientProblem("pip", "pip uses an index with credentials", fatal=True),))
    )
    with pytest.raises(SetupError, match="pip uses an index with credentials"):
        await plan({"requirements.txt": "six"}, clients=clients)
    assert (await plan({"package.json": PACKAGE}, clients=clients)).notes == ()


async def test_a_further_index_with_credentials_is_told() -> None:
    clients = Clients(PackageClients(problems=(ClientProblem("pip", "another index is left out", fatal=False),)))
    assert (await plan({"requirements.txt": "six"}, clients=clients)).notes == ("another index is left out",)


async def test_certificates_and_proxies_of_this_machine_are_shown_to_clients() -> None:
    clients = Clients(PackageClients(directories=(Path("/srv/wheels"),)))
    assert (await plan({"requirements.txt": "six"}, clients=clients)).readable == ("/srv/wheels",)


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


async def test_manifests_that_are_links_or_enormous_are_not_read() -> None:
    tree = MemoryTree({"requirements.txt": b"/etc/passwd"}, modes={"requirements.txt": "120000"})
    huge = MemoryTree({"package.json": b"{" + b" " * 9_000_000})
    for each in (tree, huge):
        setup = await plan_setup(
            each, commands=None, extra_hosts=(), clients=Clients(), python=PYTHON, find_tool=TOOLS.get
        )
        assert setup.commands == ()
        assert each.reads == []


def test_package_clients_are_offline_during_work() -> None:
    assert dict(WORK_ENVIRONMENT)["PIP_NO_INDEX"] == "1"
    assert dict(WORK_ENVIRONMENT)["CARGO_NET_OFFLINE"] == "true"


GITMODULES = """
[submodule "public"]
	path = vendor/public
	url = https://forge.test/a/public.git
[submodule "private"]
	path = private
	url = git@forge.test:a/private.git
[submodule "relative"]
	path = relative
	url = ../relative.git
"""


async def test_public_submodules_are_fetched_where_their_host_is_opened() -> None:
    links = {"vendor/public": "1" * 40, "private": "2" * 40, "relative": "3" * 40}
    setup = await plan({".gitmodules": GITMODULES}, hosts=["forge.test"], submodules=links)
    assert setup.directories == ("vendor/public",)
    (command,) = setup.commands
    assert f"fetch -q --depth 1 -- https://forge.test/a/public.git {'1' * 40}" in command
    (note,) = setup.notes
    assert note.startswith("private, relative: submodules stay empty")
    closed = await plan({".gitmodules": GITMODULES}, submodules=links)
    assert closed.commands == ()
    assert closed.notes[0].startswith("vendor/public, private, relative: submodules stay empty")
    assert closed.notes[0].endswith("`network:` does not name forge.test")


async def test_dependencies_from_git_are_left_out_and_said(tmp_path: Path) -> None:
    package = {
        "dependencies": {"plain": "^1.0.0", "alias": "npm:plain@1", "local": "file:../x"},
        "devDependencies": {"secret": "git+ssh://git@forge.test/a/b.git", "short": "owner/name#v1", "plain2": "1.x"},
    }
    setup = await plan({"package.json": json.dumps(package), "package-lock.json": "{}"})
    assert setup.notes == (
        "secret is left out, as it can only be had from git (git+ssh://git@forge.test/a/b.git)",
        "short is left out, as it can only be had from git (owner/name#v1)",
    )
    (tmp_path / "package.json").write_text(json.dumps(package))
    lock = {"packages": {"": package, "node_modules/secret": {"resolved": "git+ssh://x"}, "node_modules/plain": {}}}
    (tmp_path / "package-lock.json").write_text(json.dumps(lock))
    shell(f"cd {tmp_path} && {setup.commands[0]}")
    assert json.loads((tmp_path / "package.json").read_text())["devDependencies"] == {"plain2": "1.x"}
    written = json.loads((tmp_path / "package-lock.json").read_text())["packages"]
    assert written.keys() == {"", "node_modules/plain"}
    assert written[""]["devDependencies"] == {"plain2": "1.x"}


async def test_packages_are_resolved_as_of_a_date() -> None:
    choice = SetupChoice(before="2022-01-15", python="/opt/python3.9")
    commands = (await plan({"pyproject.toml": BUILD, "package.json": PACKAGE}, choice=choice)).commands
    assert commands[0] == "/opt/python3.9 -I -m venv /env"
    assert "--exclude-newer 2022-01-15 " in install_of(commands)
    assert "--exclude-newer-package setuptools=2023-01-15" in install_of(commands)  # knows editable installs
    assert commands[-1].count("--before 2022-01-15") == 3


async def test_the_members_of_a_workspace_of_uv_are_installed_too() -> None:
    root = '[project]\nname = "top"\ndependencies = ["a"]\n[tool.uv]\npackage = false\n'
    files = {f"packages/{name}/pyproject.toml": BUILD for name in "ab"}
    members = {"pyproject.toml": f'{root}[tool.uv.workspace]\nmembers = ["packages/*"]\nexclude = ["packages/b"]\n'}
    assert await installs(files | members) == "a -e ./packages/a"


async def test_a_candidate_decides_what_is_installed() -> None:
    choice = SetupChoice(requirements=("-r dev.txt", "-e '.[a]'", "-e .", "-e '.[b]'", "six", "six"))
    commands = (await plan({"pyproject.toml": BUILD, "dev.txt": ""}, choice=choice)).commands
    assert install_of(commands).startswith(f"{UV}-r dev.txt -e '.[a,b]' six || ")


async def test_the_plainest_of_several_test_requirement_files_is_taken() -> None:
    files = {"setup.py": "setup(", **{f"requirements/tests{name}.txt": "six" for name in ("", "-min", "-dev")}}
    assert await installs(files) == "-e . -r requirements/tests.txt"


def interpreter(environment: Path) -> Path:
    """The interpreter of a new virtual environment."""
    python = environment / "bin" / "python"
    python.parent.mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    python.symlink_to(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
    return python


def test_modules_that_a_build_generates_in_the_tree_are_found_where_it_has_none(tmp_path: Path) -> None:
    environment, tree = tmp_path / "env", tmp_path / "tree"
    package = tree / "src" / "a"
    package.mkdir(parents=True)
    for name in ("__init__", "own"):
        (package / f"{name}.py").write_text("")
        os.utime(package / f"{name}.py", (0, 0))
    python = interpreter(environment)
    (environment / "lib" / f"python3.{sys.version_info.minor}" / "site-packages").mkdir(parents=True)
    (package / "_version.py").write_text("number = 1")
    compiled = Path(str(_ctypes.__file__))
    shutil.copy(compiled, package)
    os.utime(package / compiled.name)
    shell(keep_generated().replace("/env", str(environment)).replace("/workspace", str(tree)))
    assert not (environment / "generated/src/a/own.py").exists()
    for name in ("_version.py", compiled.name):
        (package / name).unlink()
    inside = f"cd {tree / 'src'} && {python} -c "
    assert shell(f"{inside}'import a._ctypes, a._version as v; print(v.number, a._ctypes.__name__)'") == "1 a._ctypes\n"
    with pytest.raises(subprocess.CalledProcessError, match="returned non-zero"):
        shell(f"{inside}'import a.absent'")


async def test_a_project_that_was_copied_is_imported_from_the_tree(tmp_path: Path) -> None:
    command = (await plan({"pyproject.toml": BUILD, "src/a/__init__.py": ""})).commands[-2]
    assert command.endswith(" a /workspace/src")
    site = tmp_path / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    tree = tmp_path / "tree" / "src"
    for directory in (site / "a", tree / "a"):
        directory.mkdir(parents=True)
        (directory / "__init__.py").write_text("")
    (site / "a-1.dist-info").mkdir()
    (site / "a-1.dist-info" / "RECORD").write_text("a/__init__.py,sha256=x,0\na-1.dist-info/RECORD,,\n")
    python = interpreter(tmp_path / "env")
    shell(command.replace("/env/bin/python", str(python)).replace("/workspace/src", str(tree)))
    told = shell(f"{python} -I -c 'import a; print(a.__file__)'").strip()
    assert told == str(tree / "a/__init__.py")
