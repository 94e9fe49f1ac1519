"""What a set-up is decided to be, from the manifests of a commit."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.core.errors import ConfigError, SetupError
from app.sandbox.base import WORK_ENVIRONMENT, SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.package_clients import ClientProblem, PackageClients
from app.sandbox.setup.plan import plan_setup
from tests.support.memory_tree import MemoryTree
from tests.support.setup_plans import BUILD, GET_UV, PACKAGE, PIP, PYTHON, TOOLS, UV, Clients, install_of, plan


async def installs(files: dict[str, str]) -> str:
    """pip's arguments in the plan for a repository, at its first attempt."""
    commands = (await plan(files)).commands
    assert commands[:2] == ("/usr/bin/python3 -I -m venv /env", GET_UV)
    return install_of(commands).partition(" || ")[0].removeprefix(UV)


def shell(command: str) -> str:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout


async def test_requirement_files_whose_pins_do_not_fit_are_tried_without_them(tmp_path: Path) -> None:
    install = install_of((await plan({"pyproject.toml": BUILD, "requirements/test.txt": "greenlet==1.1.0"})).commands)
    strict, copied, relaxed, bare, last = install.split(" || ")
    assert strict == f"{UV}-e . -r requirements/test.txt"
    assert copied == f"{UV}. -r requirements/test.txt"
    assert bare == f"{UV}-e ."
    assert last == f"{PIP}-e . -r requirements/test.txt"
    written = "a==1.2 ; python_version<'4'\n-r base.txt\nb==2 \\\n    --hash=sha256:aa\nc~=3.1  # why\nd>2\n"
    (tmp_path / "test.txt").write_text(written)
    (tmp_path / "base.txt").write_text("-r test.txt\n-c limits.txt\ne\n")
    installer = tmp_path / "installer"
    installer.write_text("#!/bin/sh\nfor word; do printf '%s|' \"$word\"; done; case $* in *=[=0-9]*) exit 1; esac\n")
    installer.chmod(0o755)
    repeated = relaxed.replace("requirements/test.txt", str(tmp_path / "test.txt")).replace(
        "/env/bin/python -I", sys.executable
    )
    shown = shell(repeated.replace(UV, f"{shlex.quote(str(installer))} "))
    assert [line for line in shown.splitlines() if line] == [
        f"-c|{tmp_path}/limits.txt|-e|.|a==1.2 ; python_version<'4'|e|b==2|c~=3.1|d>2|",
        "-e|.|a ; python_version<'4'|e|b|c|d>2|",
    ]


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
    )
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
        ({"requirements.txt": "", "a.py": "", ".pytest.ini": ""}, "pytest"),
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
    _, _, pins, install = (await plan({"pyproject.toml": BUILD, lock: LOCKS[lock]})).commands
    assert pins == "printf '%s\\n' six==1.16.0 > /env/constraints.txt"
    assert install == f"{UV}-e . -c /env/constraints.txt || {UV}-e . || {UV}. || {PIP}-e ."


async def test_a_hostile_lock_file_writes_no_command() -> None:
    lock = '[[package]]\nname = "a; id"\nversion = "1"\n[[package]]\nname = "b"\nversion = "1`id`"\n'
    assert (await plan({"pyproject.toml": BUILD, "pdm.lock": lock})).commands[2:] == (
        f"{UV}-e . || {UV}. || {PIP}-e .",
    )


async def test_a_version_taken_from_git_is_replaced_by_the_changelogs() -> None:
    pyproject = BUILD.replace('"x"]', '"x", "hatch-vcs"]')
    files = {"pyproject.toml": pyproject}
    changelog = {"CHANGELOG.rst": "=========\nChangelog\n=========\n\nUnreleased\n\na 2.10.1 (2026-01-02)\n=====\n"}
    setup = await plan({**files, **changelog})
    assert dict(setup.environment)["SETUPTOOLS_SCM_PRETEND_VERSION"] == "2.10.1"
    assert dict((await plan(files)).environment)["SETUPTOOLS_SCM_PRETEND_VERSION"] == "999.0.0"
    assert "SETUPTOOLS_SCM_PRETEND_VERSION" not in dict((await plan({"pyproject.toml": BUILD})).environment)


PNPM_INSTALL = re.compile(
    r"^pnpm install --frozen-lockfile \|\| \{ pnpm install --no-frozen-lockfile --ignore-scripts && .* node /tmp/l"
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
                    r"^npm ci --no-audit --no-fund \|\| \{ npm ci --ignore-scripts .* \{ npm install --no-package-lock"
                )
            ],
        ),
        (
            {"bun.lock": ""},
            (),
            [
                "npm install --global --prefix /env --no-audit --no-fund bun",
                re.compile(r"^bun install --frozen-lockfile \|\| \{ bun install --ignore-scripts && .* \{ npm install"),
            ],
        ),
        (
            {"npm-shrinkwrap.json": "{}"},
            (),
            [
                re.compile(
                    r"^npm ci --no-audit --no-fund \|\| \{ npm ci --ignore-scripts .* \{ npm install --no-package-lock"
                )
            ],
        ),
        (
            {},
            (),
            [
                re.compile(
                    r"^npm install --no-package-lock --no-audit --no-fund \|\| \{ npm install .* --ignore-scripts"
                )
            ],
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


async def test_pytest_is_installed_where_a_candidate_runs_it() -> None:
    commands = (await plan({"pyproject.toml": BUILD}, choice=SetupChoice(pytest=True))).commands
    assert install_of(commands).startswith(f"{UV}-e . pytest ")


@pytest.mark.parametrize(
    ("files", "before", "short"),
    [
        ({"pyproject.toml": BUILD, "test_a.py": "import pytest"}, "", ["pip install -e . pytest"]),
        ({"pyproject.toml": BUILD}, "2024-02-03", ["pip install uv", "uv pip install --exclude-newer 2024-02-03 -e ."]),
        ({"package.json": PACKAGE, "package-lock.json": "{}"}, "", ["npm ci"]),
        ({"package.json": PACKAGE, "package-lock.json": "{}", "yarn.lock": ""}, "", ["npm ci"]),
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


async def test_programs_that_ci_installs_globally_are_installed_beside_the_dependencies() -> None:
    travis = "before_script: ['npm install -g grunt-cli@1 npm@8 @a/b', 'npm i --global $X yarn', 'npm i c']\n"
    command = "npm install --global --prefix /env --no-audit --no-fund grunt-cli@1 @a/b"
    commands = (await plan({"package.json": "{}", ".travis.yml": travis})).commands
    assert commands[-1] == f"{command} || echo 'what CI installs beside it cannot be had'"
    assert "--global" not in " ".join((await plan({"package.json": PACKAGE})).commands)


async def test_a_project_below_the_top_is_found() -> None:
    setup = await plan({"web/package.json": PACKAGE, "web/package-lock.json": "{}", "README.md": ""})
    assert setup.commands[-1].startswith("cd web/ && npm ci --no-audit --no-fund || ")


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
    _, command = setup.commands
    assert " -Dtest=ATest " in command
    assert setup.short == (command,)
    assert dict(setup.environment)["MAVEN_OPTS"] == "-Dmaven.repo.local=/env/m2"
    assert "not installed" in (await plan(files, tools={})).notes[0]


@pytest.mark.parametrize(
    ("variables", "hosts", "mirrors"),
    [
        ({}, [], []),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, ["127.0.0.1:3128"] * 2, []),
        ({"AGENT_FIX_MAVEN_MIRROR": "https://m.test/x"}, [], ["https://m.test/x"]),
    ],
)
@pytest.mark.parametrize("configured", [None, ["mvn -q test-compile"]])
def test_maven_gets_proxy_and_mirror_whoever_wrote_the_command(
    tmp_path: Path, variables: dict[str, str], hosts: list[str], mirrors: list[str], configured: list[str] | None
) -> None:
    command, other = asyncio.run(plan({"pom.xml": "<project/>"}, commands=configured)).commands
    assert other.startswith("mvn ")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **variables}
    subprocess.run(["sh", "-c", command], env=environment, check=True)
    settings = ElementTree.parse(tmp_path / ".m2" / "settings.xml")
    proxies = settings.iterfind("proxies/proxy")
    assert [f"{proxy.findtext('host')}:{proxy.findtext('port')}" for proxy in proxies] == hosts
    assert [mirror.text for mirror in settings.iterfind("mirrors/mirror/url")] == mirrors


async def test_a_missing_tool_is_reported_and_nothing_is_tried() -> None:
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
        "printf",
        "npm",
    ]


async def test_configured_commands_stand_instead_of_detected_ones() -> None:
    files = {"pyproject.toml": BUILD, "package.json": PACKAGE, "a.py": ""}
    setup = await plan(files, commands=["make deps", "make deps"], hosts=["example.com"])
    assert setup.commands == ("/usr/bin/python3 -I -m venv /env", "make deps", "make deps")
    assert setup.hosts == ("https://index.test", "example.com")
    assert (await plan({"Makefile": ""}, commands=["make deps"])).commands == ("make deps",)


async def test_no_set_up_can_be_configured_too() -> None:
    clients = Clients()
    setup = await plan({"pyproject.toml": BUILD, "a.py": ""}, commands=[], clients=clients)
    assert (setup.commands, clients.asked) == ((), 0)


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


async def test_a_further_index_with_credentials_is_reported() -> None:
    clients = Clients(PackageClients(problems=(ClientProblem("pip", "another index is left out", fatal=False),)))
    assert (await plan({"requirements.txt": "six"}, clients=clients)).notes == ("another index is left out",)


async def test_certificates_and_proxies_of_this_machine_are_shown_to_clients() -> None:
    clients = Clients(PackageClients(directories=(Path("/srv/wheels"),)))
    assert (await plan({"requirements.txt": "six"}, clients=clients)).readable == ("/srv/wheels",)


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
    assert WORK_ENVIRONMENT["PIP_NO_INDEX"] == "1"
    assert WORK_ENVIRONMENT["CARGO_NET_OFFLINE"] == "true"


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
        "dependencies": {"plain": "^1.0.0", "alias": "npm:plain@1", "local": "file:../x", "up": "../lib"},
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


@pytest.mark.parametrize(
    ("address", "hosts", "left_out"),
    [
        ("../lib", (), False),
        ("./vendor", (), False),
        ("owner/name#v1:2", (), True),
        ("owner/name#v1:2", ("github.com",), False),
        ("gitlab:owner/name", ("github.com",), True),
        ("gitlab:owner/name", ("gitlab.com",), False),
        ("git+https://forge.test/a/b.git#v1", ("forge.test",), False),
        ("https://forge.test/a/b.git", ("forge.test",), False),
        ("https://forge.test/a/b.git", ("other.test",), True),
        ("git+ssh://git@forge.test/a/b.git", ("forge.test",), True),
        ("git@forge.test:a/b.git", ("forge.test", "github.com"), True),
        ("git://forge.test/a/b.git", ("forge.test",), True),
    ],
)
async def test_a_dependency_from_git_is_left_out_unless_its_host_is_allowed(
    address: str, hosts: tuple[str, ...], *, left_out: bool
) -> None:
    package = {"dependencies": {"a": address, "b": "1"}}
    notes = (await plan({"package.json": json.dumps(package)}, hosts=hosts)).notes
    assert notes == ((f"a is left out, as it can only be had from git ({address})",) if left_out else ())


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


LISTED = "-r requirements/test.txt"


@pytest.mark.parametrize(
    ("more", "arguments"),
    [
        ({}, f"{LISTED} -e ./a"),
        ({"b/pyproject.toml": BUILD}, LISTED),
        ({"b/pyproject.toml": BUILD, "a/tests/a.py": "", "a/tests/b.py": "", "b/test.py": ""}, f"{LISTED} -e ./a"),
        ({"b/pyproject.toml": BUILD, "a/test.py": "", "b/test.py": ""}, LISTED),
        ({"pyproject.toml": "[tool.ruff]\n[tool.poetry]\n"}, LISTED),
        ({"setup.py": "import setuptools"}, LISTED),
    ],
)
async def test_a_project_below_settings_of_linters_is_installed(more: dict[str, str], arguments: str) -> None:
    files = {"pyproject.toml": "[tool.ruff]\n", "requirements/test.txt": "six", "a/pyproject.toml": BUILD}
    assert await installs({**files, "tests/pyproject.toml": BUILD, **more}) == arguments


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


async def test_a_project_that_was_copied_is_imported_from_the_tree(tmp_path: Path) -> None:
    command = (await plan({"pyproject.toml": BUILD, "src/a/__init__.py": ""})).commands[-1]
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
