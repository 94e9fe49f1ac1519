"""A small project for each fault that was seen on real ones: its set-up is found by trying, without a network.

What a set-up executes is real (uv, npm, node), over an index on this machine; `make test` runs these.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.pipeline.wiring.project_setup import ChosenSetup, ProjectSetup, SetupProject
from app.pipeline.wiring.sandboxes import SetupTools
from app.sandbox.setup.ecosystems.base import ABSENT
from app.sandbox.setup.package_clients import PackageClients
from app.sandbox.setup.plan import find_tool_for_sandbox
from app.sandbox.unsandboxed import UnsandboxedProvider
from tests.support.memory_tree import MemoryTree
from tests.support.package_index import Release, package_index
from tests.support.recorded_progress import ListProgress
from tests.support.sandboxes import filler

UV = Path(sys.executable).with_name("uv")
OWN = f"3.{sys.version_info.minor}"
NOWHERE = (
    ("GIT_SSH_COMMAND", "/bin/false"),
    ("npm_config_fetch_retries", "0"),
)
"""What would leave this machine fails at once."""
OLD_LIBRARY = Release("library", "1.0", "2021-06-01", "def old():\n    return 1\n")
BROKEN = Release("broken", "1.0", "2025-06-01", built=False)
NEW_LIBRARY = Release("library", "2.0", "2025-06-01", "def new():\n    return 2\n")


def interpreter(directory: Path, version: str) -> str:
    """The name of a program that makes virtual environments as Python's own `venv` does, without pip, and leaves its
    version there; uv is put where pip would have installed it."""
    program = directory / f"interpreter-{version}"
    program.write_text(
        "#!/bin/sh -e\n"
        f'mkdir -p "$TMPDIR/uv/bin" && ln -sf {shlex.quote(str(UV))} "$TMPDIR/uv/bin/uv"\n'
        f'{shlex.quote(sys.executable)} "$@" --without-pip\n'
        f'for place; do :; done; echo {version} > "$place/made-by"\n'
    )
    program.chmod(0o755)
    return program.name


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    with package_index([OLD_LIBRARY, NEW_LIBRARY, BROKEN]) as address:
        yield address


class Projects:
    """Finds set-ups of projects, with the interpreters of `versions` and one package index."""

    def __init__(self, directory: Path, index: str) -> None:
        self.directory = directory
        self.progress = ListProgress()
        self.output = bytearray()
        self._index = index

    async def set_up(
        self,
        files: Mapping[str, str],
        *,
        committed: date | None = None,
        versions: tuple[str, ...] = (OWN,),
        network: tuple[str, ...] = (),
        test: str | None = None,
    ) -> ChosenSetup:
        content = {path: text.encode() for path, text in files.items()}
        pythons = {version: interpreter(self.directory, version) for version in versions}

        async def clients() -> PackageClients:
            registry = self._index.removesuffix("simple")  # it has no package of npm's
            indexes = (("UV_DEFAULT_INDEX", self._index), ("npm_config_registry", registry))
            return PackageClients(environment=(*indexes, *NOWHERE))

        async def tools() -> SetupTools:
            return SetupTools(Path(pythons[versions[0]]), clients, find_tool_for_sandbox, pythons)

        today = datetime.now(UTC).date()
        setup = ProjectSetup(
            SetupProject(MemoryTree(content), lambda: committed or today, "scope", network=network, test=test),
            UnsandboxedProvider(self.directory / "jobs", path=f"{self.directory}:{os.environ['PATH']}"),
            tools,
            filler(content),
            "job",
            self.progress,
            memory=None,
            on_output=self.output.extend,
            trials="always",
        )
        return await setup.chosen()


@pytest.fixture
def projects(tmp_path: Path, index: str) -> Projects:
    return Projects(tmp_path, index)


def results(chosen: ChosenSetup) -> list[tuple[str, int, int]]:
    """Candidate, passed and failed of each trial, the best first."""
    return [(trial.candidate.name, trial.count.passed, trial.count.failed) for trial in chosen.trials]


def checks(number: int, imports: str) -> str:
    methods = "".join(f"    def test_{at}(self):\n        {imports}\n" for at in range(number))
    return f"import unittest\n\nclass Case(unittest.TestCase):\n{methods}"


ADDRESS = "git+ssh://git@forge.invalid/a/secret.git"
WITH_GIT = {"name": "a", "dependencies": {"near": "file:near"}, "devDependencies": {"secret": ADDRESS}}


async def test_a_dependency_by_git_ssh_is_left_out_and_named(projects: Projects) -> None:
    lock = {
        "name": "a",
        "lockfileVersion": 3,
        "packages": {
            "": WITH_GIT,
            "near": {"version": "1.0.0"},
            "node_modules/near": {"resolved": "near", "link": True},
            "node_modules/secret": {"version": "1.0.0", "resolved": f"{ADDRESS}#{'1' * 40}", "dev": True},
        },
    }
    files = {
        "package.json": json.dumps({**WITH_GIT, "scripts": {"test": "node --test"}}),
        "package-lock.json": json.dumps(lock),
        "near/package.json": '{"name": "near", "version": "1.0.0"}',
        "near/index.js": "module.exports = 1\n",
        "test/a.test.js": "require('node:test')('a', () => require('node:assert').equal(require('near'), 1))\n",
    }
    chosen = await projects.set_up(files)
    assert results(chosen) == [("manifests", 1, 0)]
    assert chosen.plan.notes == (f"secret is left out, as it can only be had from git ({ADDRESS})",)


async def test_a_dependency_from_git_of_an_allowed_host_is_tried_before_it_is_left_out(projects: Projects) -> None:
    package = {
        "name": "a",
        "dependencies": {"near": "file:near", "far": "git+https://forge.invalid/a/far.git"},
        "scripts": {"test": "node --test"},
    }
    files = {
        "package.json": json.dumps(package),
        "near/package.json": '{"name": "near", "version": "1.0.0"}',
        "near/index.js": "module.exports = 1\n",
        "test/a.test.js": "require('node:test')('a', () => require('node:assert').equal(require('near'), 1))\n",
    }
    chosen = await projects.set_up(files, network=("forge.invalid",))
    assert results(chosen) == [("manifests", 1, 0)]
    assert chosen.plan.notes == ()
    assert "ls-remote" in projects.output.decode()
    assert "\nfar cannot be had here, and is left out" in projects.output.decode()


async def test_the_runner_behind_a_script_that_also_lints(projects: Projects) -> None:
    scripts = {"lint": "exit 3", "test": "npm run lint && node --test"}
    cases = "const test = require('node:test')\ntest('one', () => {})\ntest('two', () => {})\n"
    chosen = await projects.set_up({"package.json": json.dumps({"scripts": scripts}), "test/a.test.js": cases})
    assert results(chosen)[0] == ("package.json, runner", 2, 0)
    assert chosen.suite is not None
    assert chosen.suite.command == "node --test"


FAKE_MOCHA = """#!/usr/bin/env node
const { argv } = process, stops = argv.includes('--bail'), built = require('fs').existsSync('built');
const runner = new (require('events'))(), at = argv.indexOf('--reporter');
if (at > 0) require(argv[at + 1])(runner);
const test = (title) => ({ title, file: 'test/a.js' });
for (let each = 0; each < (stops || !built ? 1 : 30); each++) runner.emit('pass', test(`passes ${each}`));
runner.emit('fail', test('fails'), Error('1'));
runner.emit('end');
process.exit(1);
"""
"""Ends with the first failure where it is asked to, as mocha does."""


async def test_a_suite_that_ends_with_its_first_failure_is_run_to_its_end(projects: Projects) -> None:
    scripts = {"test": "npm run build && mocha --bail test/", "build": "node build.js"}
    build = "require('child_process').execFileSync('builder', ['built'])\n"  # a dependency's program
    package = {"name": "a", "scripts": scripts, "devDependencies": {"mocha": "file:mocha", "builder": "file:builder"}}
    files = {
        "package.json": json.dumps(package),
        "mocha/package.json": '{"name": "mocha", "version": "1.0.0", "bin": "m.js"}',
        "mocha/m.js": FAKE_MOCHA,
        "builder/package.json": '{"name": "builder", "version": "1.0.0", "bin": "b.js"}',
        "builder/b.js": "#!/usr/bin/env node\nrequire('fs').writeFileSync(process.argv[2], '')\n",
        "build.js": build,
        "test/a.js": "",
    }
    assert results(await projects.set_up(files))[0] == ("package.json, runner", 30, 1)


STARTER = """
const { spawnSync } = require('child_process'), mocha = require.resolve('mocha/bin/mocha.js');
const ended = ['a', 'b'].map((name) => spawnSync('node', [mocha, name, '-R', 'dot', '--bail'], { stdio: 'inherit' }));
process.exit(Math.max(...ended.map((one) => one.status)));
"""
STARTING_MOCHA = """
const { argv, env } = process, words = argv.slice(2).join(' ');
if (env.INNER) process.exit(words === 'inner' ? 0 : 9);
const inner = { env: { ...env, INNER: '1' } };
if (require('child_process').spawnSync('node', [__filename, 'inner'], inner).status) process.exit(9);
const runner = new (require('events'))(), reporter = /--reporter (\\S+)/.exec(words);
if (reporter) require(reporter[1])(runner);
const test = (title) => ({ title, file: `${argv[2]}.js` });
runner.emit('pass', test('passes'));
if (!words.includes('bail')) runner.emit('fail', test('fails'), Error('1'));
runner.emit('end');
process.exit(1);
"""
"""Before its tests it starts another mocha, which must not be asked for a report."""


async def test_runners_that_a_program_starts_report_their_tests(projects: Projects) -> None:
    package = {"scripts": {"test": "node start.js"}, "devDependencies": {"mocha": "file:mocha"}}
    files = {
        "package.json": json.dumps({"name": "a", **package}),
        "mocha/package.json": '{"name": "mocha", "version": "1.0.0", "bin": "bin/mocha.js"}',
        "mocha/bin/mocha.js": STARTING_MOCHA,
        "start.js": STARTER,
        "test/a.js": "",
    }
    chosen = await projects.set_up(files)
    assert results(chosen)[0] == ("manifests", 2, 2)
    assert chosen.base is not None
    assert chosen.base.failing == ("a.js::fails", "b.js::fails")


BACKEND = """
import importlib.util, os, pathlib, shutil, zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"]
    pathlib.Path("generated/_version.py").write_text(f"version = {version!r}")
    shutil.copy(importlib.util.find_spec("_ctypes").origin, "generated")
    name, about = f"generated-{version}-py3-none-any.whl", f"generated-{version}.dist-info"
    files = {
        "generated.pth": os.getcwd(),
        f"{about}/METADATA": f"Metadata-Version: 2.1\\nName: generated\\nVersion: {version}\\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\\n" for path in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(os.path.join(directory, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name
"""


async def test_modules_that_the_build_generates_and_compiles_beside_the_sources(projects: Projects) -> None:
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "generated"\ndynamic = ["version"]\n',
        "setup.py": "setup(use_scm_version=True, ext_modules=[Extension('generated._ctypes')])",
        "CHANGELOG.md": "# 4.5.6\n",
        "backend.py": BACKEND,
        "generated/__init__.py": "from generated._ctypes import sizeof\nfrom generated._version import version\n",
        "tests/__init__.py": "",
        "tests/test_a.py": checks(2, "import generated; self.assertEqual(generated.version, '4.5.6')"),
    }
    chosen = await projects.set_up(files)
    assert results(chosen)[0] == ("manifests", 2, 0)
    assert chosen.plan.notes == (
        "its extension modules are compiled from the base: a change of their sources needs a `build:` line",
    )


WORKFLOW = """
on: push
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - run: pip install -r requirements/{file}.txt
      - run: python -m unittest discover -v -s tests -t .
"""
PINNED = {
    "requirements/min.txt": "library==1.0\n",
    "requirements/test.txt": "library==2.0\n",
    "tests/__init__.py": "",
    "tests/test_a.py": checks(6, "from library import new"),
}


async def test_requirement_files_are_chosen_as_ci_does(projects: Projects) -> None:
    chosen = await projects.set_up({**PINNED, ".github/workflows/ci.yml": WORKFLOW.format(file="test")})
    assert results(chosen) == [(".github/workflows/ci.yml, job test", 6, 0)]


async def test_requirements_that_cannot_be_had_do_not_take_the_others_with_them(projects: Projects) -> None:
    files = {
        ".github/workflows/ci.yml": WORKFLOW.format(file="all"),
        "requirements/all.txt": "-r more.txt\nhttp://127.0.0.1:9/thing/zipball/main\nbroken==1.0\n",
        "requirements/more.txt": "library==1.0  # why\nNobody_has.it[x]>=1 ; python_version > '3'\n",
        "tests/__init__.py": "",
        "tests/test_a.py": checks(2, "from library import old"),
    }
    chosen = await projects.set_up(files)
    assert results(chosen)[0] == (".github/workflows/ci.yml, job test", 2, 0)
    names = {"127.0.0.1", "broken", "nobody-has-it"}
    told = projects.output.decode().splitlines()
    assert {line.removesuffix(ABSENT).partition(":")[0] for line in told if line.endswith(ABSENT)} == names


async def test_a_suite_in_which_nearly_all_fails_is_a_wrong_set_up(projects: Projects) -> None:
    chosen = await projects.set_up({**PINNED, ".github/workflows/ci.yml": WORKFLOW.format(file="min")})
    assert results(chosen) == [("manifests", 6, 0), (".github/workflows/ci.yml, job test", 0, 6)]
    assert chosen.trials[1].reason.startswith("6 of 6 tests fail: ImportError: cannot import name 'new' from 'library'")
    assert "Of 2 candidates most tests pass with it (" in chosen.sentence


OLD_PROJECT = {
    "requirements.txt": "library\n",
    "tests/__init__.py": "",
    "tests/test_a.py": checks(5, "from library import old"),
}


async def test_an_old_project_gets_the_packages_of_its_time(projects: Projects) -> None:
    chosen = await projects.set_up(OLD_PROJECT, committed=date(2022, 1, 14))
    assert results(chosen) == [("manifests as of 2022-01-15", 5, 0), ("manifests", 0, 5)]


async def test_the_python_that_a_project_asks_for(projects: Projects) -> None:
    read = "import sys, pathlib; made = pathlib.Path(sys.prefix, 'made-by').read_text().strip()"
    files = {
        "setup.cfg": "[options]\npython_requires = >=3.6,<3.9\n",
        "requirements.txt": "library\n",
        "tests/__init__.py": "",
        "tests/test_a.py": checks(1, f"{read}; self.assertEqual(made, '3.8')"),
    }
    chosen = await projects.set_up(files, versions=(OWN, "3.6", "3.8", "3.9"))
    assert results(chosen) == [("manifests", 1, 0)]


async def test_a_package_that_nobody_has_is_an_error_of_the_set_up(projects: Projects) -> None:
    with pytest.raises(SetupError, match="absent-package"):
        await projects.set_up({**OLD_PROJECT, "requirements.txt": "absent-package\n"})


async def test_a_development_dependency_that_no_index_has_is_left_out(projects: Projects) -> None:
    package = {
        "name": "a",
        "dependencies": {"near": "file:near"},
        "devDependencies": {"@secret/tool": "^1.0.0", "other-tool": "1.x"},
        "scripts": {"test": "node --test"},
    }
    files = {
        "package.json": json.dumps(package),
        "near/package.json": '{"name": "near", "version": "1.0.0"}',
        "near/index.js": "module.exports = 1\n",
        "test/a.test.js": "require('node:test')('a', () => require('node:assert').equal(require('near'), 1))\n",
    }
    chosen = await projects.set_up(files)
    assert results(chosen) == [("manifests", 1, 0)]
    told = [f"{name} cannot be had here, and is left out" for name in ("@secret/tool", "other-tool")]
    assert sorted(chosen.trials[0].left_out) == told
