"""What a project's own CI, tox, nox, make and scripts say about installing it and running its tests."""

import json
import shlex
import tracemalloc

import pytest

from app.sandbox.setup.declared.ci import MAX_JOBS, ci_jobs
from app.sandbox.setup.declared.commands import MAX_LINE, simple_commands
from app.sandbox.setup.declared.environments import script_behind
from app.sandbox.setup.declared.node import node_scripts
from app.sandbox.setup.declared.python import DeclaredSetup, declared_pythons, declared_setups
from app.sandbox.setup.manifests import ManifestFiles
from app.sandbox.setup.plan import is_manifest
from tests.support.memory_tree import MemoryTree

PROJECT = '[build-system]\nrequires = ["x"]\nbuild-backend = "x"\n[project]\nname = "a"\n'
WORKFLOW = """
on: push
jobs:
  lint:
    runs-on: ubuntu-latest
    steps:
      - run: pip install ruff && ruff check
  tests:
    runs-on: ${{ matrix.os }}
    strategy:
      matrix:
        include:
          - {os: windows-latest, python: '3.12', tox: py312}
          - {os: ubuntu-latest, python: '3.9', tox: py39, no: null}
    steps:
      - uses: actions/setup-python@v5
        with: {python-version: "${{ matrix.python }}"}
      - run: |
          python -m pip install --upgrade pip
          INSTALL
      - if: runner.os == 'Windows'
        run: choco install everything
      - run: TEST
"""


MAIN = 'import unittest\n\nif __name__ == "__main__":\n    unittest.main()\n'


def files(**contents: str) -> ManifestFiles:
    return ManifestFiles(MemoryTree({path: text.encode() for path, text in contents.items()}))


def declared(contents: dict[str, str]) -> DeclaredSetup:
    return declared_setups(files(**contents))[0]


def workflow(install: str, test: str) -> dict[str, str]:
    text = WORKFLOW.replace("INSTALL", install).replace("TEST", test)
    return {
        ".github/workflows/ci.yml": text,
        "pyproject.toml": PROJECT,
        "requirements/tests.txt": "",
        "tests/test_a.py": "",
        "dev.txt": "",
        "test.py": MAIN,
        "run_tests.sh": "set -x\npytest tests\n",
    }


@pytest.mark.parametrize(
    ("install", "test", "requirements", "command"),
    [
        ("pip install -e .[test]", "pytest", ("-e '.[test]'",), "python3 -m pytest"),
        (
            "pip install -U . -r requirements/tests.txt",
            "pytest -v --cov=a --cov-report xml --benchmark-disable --benchmark-autosave tests -k 'not slow'",
            ("-e .", "-r requirements/tests.txt"),
            "python3 -m pytest --benchmark-disable tests -k 'not slow'",
        ),
        ("pip install tox", "python -m pytest -n auto --tb=short docs tests", (), "python3 -m pytest docs tests"),
        (
            "pip install -r dev.txt",
            "pytest -xv --cov-context test --cov-branch requirements/tests.txt --hypothesis-profile ci test.py",
            ("-r dev.txt",),
            "python3 -m pytest requirements/tests.txt test.py",
        ),
        (
            "python -m pip install -r dev.txt ${{ matrix.more }} codecov",
            "coverage run -m pytest tests",
            ("-r dev.txt",),
            "python3 -m pytest tests",
        ),
        (
            "uv pip install --system 'six>=1' pytest .",
            "uv run --no-project pytest",
            ("'six>=1'", "pytest", "-e ."),
            "python3 -m pytest",
        ),
        (
            "python setup.py build_ext -i && pip install six ${{ matrix.no }}",
            "pytest",
            ("-e .", "six"),
            "python3 -m pytest",
        ),
        ("pip install dist/*.whl pytest", "cd tests && py.test", ("-e .", "pytest"), "python3 -m pytest"),
        ("pip install .", "coverage run --source=a test.py", ("-e .",), "python3 -m unittest -v test.py"),
        ("pip install .", "bash -e run_tests.sh", ("-e .",), "python3 -m pytest tests"),
        ("pip install .", "python -m unittest discover -s tests", ("-e .",), "python3 -m unittest discover -s tests"),
    ],
)
def test_a_workflow_that_installs_and_tests_by_itself(
    install: str, test: str, requirements: tuple[str, ...], command: str
) -> None:
    found = declared_setups(files(**workflow(install, test)))
    assert (found[0].requirements, found[0].test) == (requirements, command)
    assert found[0].source == ".github/workflows/ci.yml, job tests"
    assert "3.9" in found[0].pythons


@pytest.mark.parametrize(
    ("options", "parallel"),
    [
        ("-n auto -q", "auto"),
        ("-n4 --dist=loadfile tests", "4 --dist=loadfile"),
        ("--numprocesses=logical --dist loadscope", "logical --dist=loadscope"),
        ("-n 0 tests", ""),
        ("-n1", ""),
        ("-n $MANY --dist=no", ""),
        ("--count 4", ""),
    ],
)
def test_how_ci_runs_pytest_in_parallel(options: str, parallel: str) -> None:
    assert declared(workflow("pip install .", f"pytest {options}")).parallel == parallel


TOX = """
[tox]
envlist = py3{9,10}, lint

[testenv]
deps =
    -r requirements/tests.txt
    min: -r requirements/min.txt
    py39: only-for-39
extras = fast
commands = pytest --tb=short --basetemp={envtmpdir} {posargs:tests}

[testenv:lint]
deps = pre-commit
commands = pre-commit run
"""


def test_variables_of_a_workflow_are_known_and_what_it_has_built_is_the_project() -> None:
    contents = workflow("pip install dist/$BUILT $NOWHERE a==$A", "pytest --pyargs $MODULE ${{ env.MODULE }}_more")
    text = contents[".github/workflows/ci.yml"]
    text = text.replace("on: push", "on: push\nenv: {MODULE: module, LATER: $NOWHERE}")
    text = text.replace("    strategy:", "    env: {A: '1.${{ matrix.python }}'}\n    strategy:")
    found = declared({**contents, ".github/workflows/ci.yml": text})
    assert found.requirements == ("-e .", "a==1.3.9")
    assert found.test == "MODULE=module A=1.3.9 python3 -m pytest --pyargs module module_more"


def test_steps_of_an_action_of_the_tree_are_those_of_the_job() -> None:
    contents = workflow("pip install a", "pytest")
    text = contents[".github/workflows/ci.yml"].replace("- run: pytest", "- uses: ./.github/actions/test/")
    action = "runs: {steps: [{uses: ./deeper}, {uses: ./.github/actions/test}, {run: pytest b}]}"
    deeper = {"deeper/action.yaml": "runs: {steps: [{run: pip install c}]}"}
    found = declared(
        {**contents, ".github/workflows/ci.yml": text, ".github/actions/test/action.yml": action, **deeper}
    )
    assert (found.requirements, found.test) == (("a", "c"), "python3 -m pytest b")


def test_actions_that_use_each_other_end() -> None:
    contents = workflow("pip install a", "pytest")
    uses = "- uses: ./a\n      - uses: ./b\n      - run: pytest\n"
    text = contents[".github/workflows/ci.yml"].replace("- run: pytest", uses)
    steps = ", ".join(f"{{uses: ./{name}}}" for name in "abcdefghij" * 100)
    actions = {
        f"{name}/action.yml": f"runs: {{steps: [{steps}, {{run: pip install {name}}}]}}" for name in "abcdefghij"
    }
    found = declared({**contents, **actions, ".github/workflows/ci.yml": text})
    assert {*found.requirements} == {*"abcdefghij"}
    assert found.test == "python3 -m pytest"


def test_packages_that_a_workflow_installs_after_its_tests_are_for_other_ones() -> None:
    found = declared(workflow("pip install a", "pytest && pip install 'a<2' && pytest tests/old"))
    assert (found.requirements, found.test) == (("a",), "python3 -m pytest")


def test_tox_behind_a_workflow_is_followed_to_the_environment_of_the_matrix() -> None:
    found = declared(
        workflow("pip install tox", "tox -e ${{ matrix.tox }}") | {"tox.ini": TOX, "requirements/min.txt": ""}
    )
    assert found.requirements == ("-r requirements/tests.txt", "only-for-39", "-e '.[fast]'")
    assert found.test == "python3 -m pytest tests"


def test_tox_alone_uses_its_newest_plain_environment() -> None:
    found = declared({"tox.ini": TOX, "pyproject.toml": PROJECT, "requirements/tests.txt": ""})
    assert found.source == "tox.ini"
    assert found.requirements == ("-r requirements/tests.txt", "-e '.[fast]'")


@pytest.mark.parametrize(
    ("tox", "name"),
    [
        ("[testenv]\ndeps =\n    six >= 1.7  # newer: https://a.invalid\n    b; python_version < '4'\n", "tox.ini"),
        ("[env_run_base]\ndeps = ['six >= 1.7', \"b; python_version < '4'\"]\n", "tox.toml"),
    ],
)
def test_requirements_of_tox_may_have_spaces(tox: str, name: str) -> None:
    commands = 'commands = [["pytest"]]\n' if name == "tox.toml" else "commands = pytest\n"
    wanted = ("'six >= 1.7'", shlex.quote("b; python_version < '4'"), "-e .")
    assert declared({name: tox + commands, "pyproject.toml": PROJECT}).requirements == wanted


def test_variables_and_arguments_of_tox_are_those_of_the_tests() -> None:
    tox = (
        '[testenv]\nsetenv =\n    FIRST = a{tty:--color}\n    py39: CHOSEN=-m "not {env:FIRST}"\n'
        "    py38: CHOSEN=-k no\n"
        "    PYTHONPATH = {toxinidir}/src\n    PYTEST_ADDOPTS=-q\n    COVERAGE_FILE=x\n    EMPTY=\n"
        "commands =\n    python -m pytest {env:CHOSEN:} {env:OTHER:--strict-config} {posargs:tests}\n"
    )
    files = {"tox.ini": tox, "pyproject.toml": PROJECT}
    test = "FIRST=a PYTHONPATH=./src python3 -m pytest -m 'not a' --strict-config"
    assert declared(workflow("pip install tox", "tox -e py39 -- --own ${{ matrix.x }}") | files).test == f"{test} --own"
    assert declared(workflow("pip install tox", "tox -e py39") | files).test == f"{test} tests"
    native = (
        "[env_run_base]\nset_env.SETTINGS = 'tests.a'\n"
        "commands = [['pytest', {replace = 'posargs', default = ['tests'], extend = true}]]\n"
    )
    found = declared(workflow("", "tox -e py39 -- --own") | {"tox.toml": native, "pyproject.toml": PROJECT})
    assert found.test == "SETTINGS=tests.a python3 -m pytest --own"


@pytest.mark.parametrize(
    ("environment", "start"),
    [("{SETTINGS: tests.b}", "SETTINGS=tests.b A=1 B=2 "), ("{SETTINGS: b, URL: 'db://localhost'}", "A=1 B=2 ")],
)
def test_variables_that_ci_sets_are_those_of_the_tests(environment: str, start: str) -> None:
    written = workflow("C=3 pip install .", "export A=1; B=2 bash run_tests.sh")
    name = ".github/workflows/ci.yml"
    written[name] = written[name].replace("  tests:\n", f"  tests:\n    env: {environment}\n")
    assert declared(written).test == f"{start}python3 -m pytest tests"


def test_tox_with_groups_and_factors() -> None:
    tox = (
        "[tox]\nenv_list = lint, 3.1{0-2}-tests\n[testenv]\ndependency_groups =\n    tests: test\n    mypy: types\n"
        "commands =\n    tests: pytest {posargs:-n auto}\n    mypy: mypy a\n"
    )
    groups = (
        PROJECT + '[dependency-groups]\ntest = ["pytest", {include-group = "more"}]\nmore = ["six"]\ntypes = ["mypy"]\n'
    )
    found = declared({"tox.ini": tox, "pyproject.toml": groups})
    assert (found.requirements, found.test) == (("pytest", "six", "-e ."), "python3 -m pytest")


def test_a_tox_environment_with_factors_stands_in_for_a_plain_one() -> None:
    """Its factors may bring what half of the tests need."""
    tox = (
        "[tox]\nenvlist = lint, py{39,311}-{crypto,nocrypto}\n[testenv]\ndeps = pytest\n"
        "    crypto: cryptography\ncommands = pytest\n"
    )
    assert declared({"tox.ini": tox, "pyproject.toml": PROJECT}).requirements == ("pytest", "cryptography", "-e .")


def test_the_newest_plain_environment_comes_before_one_with_the_oldest_packages() -> None:
    tox = """
env_list = ["py3.14", "py3.14t", "py3.9", "pypy3.11", "tests-min", "style"]
[env_run_base]
dependency_groups = ["tests"]
commands = [["pytest", "-v"]]
[env.tests-min]
commands = [["uv", "pip", "install", "click==8.1.3"], ["pytest"]]
[env."py3.9"]
deps = ["older"]
"""
    groups = PROJECT + "[dependency-groups]\ntests = ['pytest']\n"
    found = declared({"pyproject.toml": groups, "tox.toml": tox, "tests/test_a.py": ""})
    assert "click==8.1.3" not in found.requirements
    assert "older" not in found.requirements
    assert "pytest" in found.requirements


def test_tox_in_its_native_form() -> None:
    native = (
        '[tool.tox.env_run_base]\ndeps = ["pytest"]\nextras = ["all"]\n'
        'commands = [["pytest", { replace = "posargs", default = ["tests"], extend = true }]]\n'
    )
    found = declared({"pyproject.toml": PROJECT + native})
    assert (found.requirements, found.test) == (("pytest", "-e '.[all]'"), "python3 -m pytest tests")


NOX = """
import nox

@nox.session(python=["3.9", "3.10"])
def tests(session):
    session.install("-r", "requirements/tests.txt")
    session.install("-e", ".[extra]")
    session.run("coverage", "run", "-m", "pytest", "--strict-markers", *session.posargs)

@nox.session
def lint(session):
    session.install("pre-commit")
"""


def test_the_literal_calls_of_a_nox_session() -> None:
    found = declared({"noxfile.py": NOX, "pyproject.toml": PROJECT, "requirements/tests.txt": ""})
    assert found.requirements == ("-r requirements/tests.txt", "-e '.[extra]'")
    assert found.test == "python3 -m pytest --strict-markers"


MAKEFILE = """
PIP = python -m pip

init:
\t$(PIP) install -e . -r dev.txt

ci: lint
\tpytest tests --junitxml=report.xml

lint:
\truff check
"""


def test_a_makefile_behind_a_workflow() -> None:
    make = MAKEFILE
    found = declared(workflow("make", "make ci") | {"Makefile": make})
    assert (found.requirements, found.test) == (("-e .", "-r dev.txt"), "python3 -m pytest tests")


JUSTFILE = """
set dotenv-load
runner := "python -m pytest"

_default:
    just --list

[private]
install extra="test":
    pip install -e .[{{ extra }}] -r dev.txt

@test target="" *args: (install "fast") && report
    # all of them
    #!/usr/bin/env bash
    {{runner}} tests {{ args }} --junitxml={{ justfile_directory() / "report.xml" }}

report:
    coverage xml
"""


def test_recipes_of_just_are_those_of_make() -> None:
    found = declared(workflow("pip install just", "just test 3.12") | {"justfile": JUSTFILE})
    assert (found.requirements, found.test) == (("-r dev.txt",), "python3 -m pytest tests")
    assert all(map(is_manifest, ("justfile", "sub/.justfile", "tasks.py")))


INVOKE = """
from invoke import task

@task
def install_all(c):
    c.run("pip install -r dev.txt")

@task(pre=[install_all], help={"k": "which"})
def unit_tests(c, k=""):
    chosen = f" -k {k}" if k else ""
    c.run(f"coverage run -m pytest tests{chosen} {k}", pty=True)

def other(c):
    c.run("pip install six")
"""


@pytest.mark.parametrize("command", ["invoke unit-tests", "inv unit_tests", "uv run --no-project invoke unit-tests"])
def test_the_literal_calls_of_a_task_of_invoke(command: str) -> None:
    found = declared(workflow("pip install invoke", command) | {"tasks.py": INVOKE})
    assert (found.requirements, found.test) == (("invoke", "-r dev.txt"), "python3 -m pytest")


def test_tasks_of_invoke_that_lead_nowhere_say_nothing() -> None:
    tasks = "@task(b)\ndef a(c): pass\n@task(a)\ndef b(c): c.run(a + b)\n"
    contents = workflow("inv", "inv a") | {"tasks.py": tasks}
    assert [one for one in declared_setups(files(**contents)) if one.test] == []


def test_scripts_of_the_tree_are_read() -> None:
    scripts = {
        "scripts/install": "#!/bin/sh\npip install -r dev.txt\n",
        "scripts/test": "#!/bin/sh\nset -e\n${PREFIX}coverage run -m pytest $@\n",
    }
    found = declared(workflow("scripts/install", "./scripts/test") | scripts)
    assert (found.requirements, found.test) == (("-r dev.txt",), "python3 -m pytest")


@pytest.mark.parametrize(
    ("command", "more", "expected"),
    [
        ("uv sync --extra fast", "", ("-e '.[fast]'", "pytest")),
        ("uv sync --group docs --no-dev", "", ("-e .", "sphinx")),
        ("poetry install --with docs", "", ("-e .", "pytest", "sphinx")),
        ("pdm install -G docs", "", ("-e .", "pytest", "sphinx")),
        ("rye install six && pip install rye six", "", ("six",)),
    ],
)
def test_dependencies_that_each_package_manager_installs(command: str, more: str, expected: tuple[str, ...]) -> None:
    project = (
        PROJECT
        + '[project.optional-dependencies]\nfast = ["x"]\n[dependency-groups]\ndev = ["pytest"]\ndocs = ["sphinx"]\n'
        + more
    )
    found = declared(workflow(command, "pytest") | {"pyproject.toml": project})
    assert found.requirements == expected


def test_the_local_hooks_of_pre_commit() -> None:
    hooks = """
repos:
- repo: https://example.test/style
  hooks: [{id: style}]
- repo: local
  hooks:
  - {id: types, entry: mypy src, language: system}
  - {id: tests, entry: python -m pytest, args: [tests, -q], additional_dependencies: [pytest, attrs>=22]}
"""
    found = declared({".pre-commit-config.yaml": hooks, "tests/test_a.py": ""})
    assert (found.requirements, found.test) == (("pytest", "'attrs>=22'"), "python3 -m pytest tests")
    assert found.source == ".pre-commit-config.yaml"


@pytest.mark.parametrize(
    "text", ["", "[", "repos: 3", "a: 2024-13-45", "repos: [{repo: local, hooks: [3, {entry: 3}]}]"]
)
def test_a_broken_pre_commit_file_says_nothing(text: str) -> None:
    assert declared_setups(files(**{".pre-commit-config.yaml": text})) == []


def test_hatch_and_its_scripts() -> None:
    project = (
        PROJECT + '[tool.hatch.envs.default]\ndependencies = ["pytest"]\n'
        '[tool.hatch.envs.default.scripts]\ncov = "pytest --cov=a {args:tests}"\n'
    )
    found = declared(workflow("pip install hatch", "hatch run cov") | {"pyproject.toml": project})
    assert (found.requirements, found.test) == (("pytest", "-e ."), "python3 -m pytest tests")


POE = """
[tool.poe.tasks]
unit = "pytest tests"
ci.shell = "ruff check; coverage run -m pytest docs && coverage xml"
all = ["lint", { cmd = "uv run --no-project pytest all" }]
lint = "ruff check"
check.sequence = ["lint", "unit", "check"]
"""
PIXI = """
[project.optional-dependencies]
test = ["x"]
[dependency-groups]
dev = ["y"]
full = ["z"]
[tool.pixi.environments]
all = { features = ["test", "full", "py312"] }
[tool.pixi.feature.test.tasks]
test = { cmd = "pytest --benchmark-skip a", depends-on = ["before"] }
before = "pip install six"
"""


@pytest.mark.parametrize(
    ("command", "more", "requirements", "test"),
    [
        ("poetry run poe unit", POE, (), "python3 -m pytest tests"),
        ("poe -q ci", POE, (), "python3 -m pytest docs"),
        ("poe all", POE, (), "python3 -m pytest all"),
        ("poe check", POE, (), "python3 -m pytest tests"),
        ("task test", "[tool.taskipy.tasks]\ntest = 'pytest a'\n", (), "python3 -m pytest a"),
        (
            "pdm run -p . all",
            "[tool.pdm.scripts]\nall = {composite = ['lint', 'test']}\ntest = ['pytest', 'a b']\n",
            (),
            "python3 -m pytest 'a b'",
        ),
        ("pdm run pytest", "", (), "python3 -m pytest"),
        ("pixi run -e all test", PIXI, ("-e '.[test]'", "z", "-e .", "six"), "python3 -m pytest --benchmark-skip a"),
        ("pixi run --environment=all pytest b", PIXI, ("-e '.[test]'", "z"), "python3 -m pytest b"),
    ],
)
def test_tasks_of_pyproject_are_followed(command: str, more: str, requirements: tuple[str, ...], test: str) -> None:
    found = declared(workflow("", command) | {"pyproject.toml": PROJECT + more})
    assert (found.requirements, found.test) == (requirements, test)


@pytest.mark.parametrize("tasks", ["", "a = 3", "a = ['a', ['a'], 3]", "a = {ref = 'a'}", "a.sequence = [{}]"])
def test_tasks_that_lead_nowhere_say_nothing(tasks: str) -> None:
    pyproject = f"{PROJECT}[tool.poe.tasks]\n{tasks}\n"
    assert declared_setups(files(**workflow("poe", "poe a") | {"pyproject.toml": pyproject})) == []


@pytest.mark.parametrize(
    "system",
    ["windows-2022", "[macos-14]", "{group: big, labels: [windows-2022]}", "{labels: windows-2022}", "{group: macos}"],
)
def test_jobs_on_other_systems_say_nothing(system: str) -> None:
    text = f"jobs: {{a: {{runs-on: {system}, steps: [{{run: pytest}}]}}}}"
    assert declared_setups(files(**{".github/workflows/ci.yml": text, "tests/test_a.py": ""})) == []
    assert ci_jobs(files(**{".github/workflows/ci.yml": text.replace(system, "{group: big, labels: linux}")}))


def test_the_jobs_that_seem_to_test_are_kept_of_many() -> None:
    lint = ", ".join(f"lint{number}: {{steps: [{{run: ruff check}}]}}" for number in range(MAX_JOBS))
    jobs = ci_jobs(files(**{".github/workflows/a.yml": f"jobs: {{{lint}, test: {{steps: [{{run: pytest}}]}}}}"}))
    assert (len(jobs), jobs[0].script) == (MAX_JOBS, "pytest")


def test_targets_of_make_are_made_once_after_what_they_need() -> None:
    tree = files(Makefile="a b: c\n\techo $@ $<\nb: d\nc:\n\techo $$c\n")
    assert script_behind(tree, ["make", "b", "a", "b"]) == "echo $c\necho b c\necho a c"
    assert script_behind(files(Makefile="a a: b b\n\techo $@ $<\nb:\n\techo b\n"), ["make"]) == "echo b\necho a b"


def test_travis() -> None:
    travis = (
        "language: python\npython: ['3.6', '3.8']\ninstall:\n- pip install -e .[tests]\nscript:\n- pytest . --cov .\n"
    )
    found = declared({".travis.yml": travis, "setup.py": "setup()"})
    assert (found.requirements, found.test) == (("-e '.[tests]'",), "python3 -m pytest .")
    assert found.pythons == ("3.6", "3.8")


def test_gitlab() -> None:
    gitlab = "before_script: ['pip install -r dev.txt']\ntest:\n  script:\n    - pytest\n"
    assert declared({".gitlab-ci.yml": gitlab, "dev.txt": ""}).requirements == ("-r dev.txt",)


def test_the_versions_of_python_that_are_named() -> None:
    tree = files(
        **{"setup.py": "classifiers=['Programming Language :: Python :: 3.7']", "tox.ini": "envlist = py38,py310\n"}
    )
    assert declared_pythons(tree) == ("3.7", "3.8", "3.10")


@pytest.mark.parametrize(
    "text",
    [
        "- [",
        "jobs: 3",
        "jobs: {a: {steps: {}}}",
        "jobs: {a: {steps: [3, {run: [1]}]}}",
        "jobs: {a: {steps: [], strategy: {matrix: {include: {a: b}}}}}",
        "\x00",
    ],
)
def test_a_broken_workflow_says_nothing(text: str) -> None:
    assert (
        declared_setups(files(**{".github/workflows/a.yml": text, "tox.ini": "[", "noxfile.py": "(", "Makefile": "\t"}))
        == []
    )


def test_a_tox_file_with_an_indented_line_below_a_key_without_a_value_says_nothing() -> None:
    assert declared_setups(files(**{"tox.ini": "[testenv]\ndeps\n    pytest\n"})) == []


def test_a_workflow_that_aliases_make_too_large_says_nothing() -> None:
    steps = f"steps: [{{run: &a 'echo {'x' * 10_000}'}}, {'{run: *a}, ' * 100}{{run: pytest}}]"
    tox = {"tox.ini": "[testenv]\ncommands = pytest a\n", "tests/test_a.py": ""}
    assert declared({".github/workflows/ci.yml": f"jobs: {{a: {{{steps}}}}}", **tox}).source == "tox.ini"


def test_aliases_of_a_workflow_are_followed() -> None:
    steps = "steps: [{run: &install pip install -r dev.txt}]}, b: {steps: [{run: *install}, {run: pytest}]"
    found = declared({".github/workflows/ci.yml": f"jobs: {{a: {{{steps}}}}}", "dev.txt": "", "tests/test_a.py": ""})
    assert (found.requirements, found.test) == (("-r dev.txt",), "python3 -m pytest")


DOUBLED = ", ".join(f"A{number}: $A{number - 1}$A{number - 1}" for number in range(1, 60))
CUBED = f"A = {'$(B)' * 2000}\nB = {'$(C)' * 2000}\nC = {'x' * 2000}\ntest:\n\tpytest\n\techo $(A)\n"
CUBED_TOX = f"[a]\nb = {'{[a]c}' * 2000}\nc = {'x' * 2000}\n"
LONG = 300_000
CHAIN = "".join(f"t{number}: t{number + 1}\n" for number in range(2000))


@pytest.mark.parametrize(
    "contents",
    [
        {".github/workflows/ci.yml": f"env: {{A0: xx, {DOUBLED}}}\njobs: {{a: {{steps: [{{run: pytest}}]}}}}"},
        {"tox.ini": f"[tox]\nenvlist = {'py{0-99}' * 9}\n[testenv]\ncommands = pytest\n"},
        {"tox.ini": f"[testenv]\ncommands =\n  {'a{0-99}' * 9}: nothing\n  pytest\n"},
        {"tox.ini": f"[testenv]\ncommands =\n  pytest\n  echo {'{[a]b}' * 2000}\n{CUBED_TOX}"},
        {"Makefile": CUBED, ".github/workflows/ci.yml": "jobs: {a: {steps: [{run: make test}]}}"},
        {
            "Makefile": f"a{' ' * LONG}b\ntest:\n\tpytest\n",
            ".github/workflows/ci.yml": "jobs: {a: {steps: [{run: make test}]}}",
        },
        {
            "justfile": f"a := {'{{' * LONG}\nb := {{{{{'c' * LONG}\ntest:\n  pytest\n",
            ".github/workflows/ci.yml": "jobs: {a: {steps: [{run: just test}]}}",
        },
        {"tox.ini": f"[testenv]\nsetenv = A={{env:{'x' * LONG}\n B={{tty:{'x' * LONG}\ncommands = pytest\n"},
        {"Makefile": f"test: t0\n\tpytest\n{CHAIN}", ".github/workflows/ci.yml": "jobs: {a: {steps: [{run: make}]}}"},
    ],
)
def test_repository_text_is_not_read_without_end(contents: dict[str, str]) -> None:
    assert declared({**contents, "tests/test_a.py": ""}).test.endswith("python3 -m pytest")


JOBS = ", ".join(f"j{number}: *j" for number in range(300))
IN_EACH_JOB = f"jobs: {{a: &j {{steps: [STEPS{{run: pytest}}]}}, {JOBS}}}"
ACTIONS = {f"a{number}/action.yml": f"runs: {{steps: [{{run: 'echo {'x' * 50_000}'}}]}}" for number in range(20)}
USED = "".join(f"{{uses: ./{path.partition('/')[0]}}}, " for path in ACTIONS)
VARIABLES = f"env: {{A: {'x' * 1_000}, {', '.join(f'A{number}: $A' for number in range(3_000))}}}\n"
KEYS = ", ".join(f"k{number}: [a]" for number in range(4_000))
MATRIX = f"{{matrix: {{a: [{'a, ' * 256}], {KEYS}}}}}"
NAMES = " ".join(f"t{number}" for number in range(3_000))
MULTIPLIED = {
    "actions": {**ACTIONS, ".github/workflows/ci.yml": IN_EACH_JOB.replace("STEPS", USED)},
    "variables": {".github/workflows/ci.yml": VARIABLES + IN_EACH_JOB.replace("STEPS", "")},
    "a matrix": {".github/workflows/ci.yml": f"jobs: {{a: {{strategy: {MATRIX}, steps: [{{run: pytest}}]}}}}"},
    "earlier commands": {
        ".gitlab-ci.yml": f"before_script: [echo {'x' * 90_000}]\njobs: {{a: &j {{script: pytest}}, {JOBS}}}"
    },
    "names of targets": {"Makefile": f"{'t' * 10_000}:\n\techo {'$@' * 3_000}\n"},
    "targets of a rule": {"Makefile": f"{NAMES}:\n" + "\ttrue\n" * 3_000},
    "one name of a rule": {"Makefile": f"{'a ' * 3_000}: {'b ' * 3_000}\n\ttrue\n"},
    "lines of a rule": {"Makefile": f"all: {NAMES}\n{NAMES}:\n\techo {'x' * 90_000}\n"},
}


@pytest.mark.parametrize("name", MULTIPLIED)
def test_repository_text_is_not_multiplied(name: str) -> None:
    tree = files(**MULTIPLIED[name])
    tracemalloc.start()
    try:
        jobs, script = ci_jobs(tree), script_behind(tree, ["make"])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 25_000_000
    assert jobs or script


def test_a_line_that_is_too_long_is_no_command() -> None:
    assert simple_commands(f"{'x' * (MAX_LINE + 1)}\npytest") == [["pytest"]]


def test_commands_of_a_script() -> None:
    script = "set -e\nif true; then\n  A=1 pip install \\\n    x && echo 'a;b' > /dev/null 2>&1\nfi # end\n"
    script += "$UNKNOWN/run ${{ matrix.a }}\nfor x in a b; do\nrun $(x y); done"
    assert simple_commands(script, {"matrix.a": "b"}) == [
        ["set", "-e"],
        ["true"],
        ["A=1", "pip", "install", "x"],
        ["echo", "a;b"],
        ["$/run", "b"],
        ["run", "$"],
    ]


SCRIPTS = [
    ({"test": "vitest"}, "npx --no-install vitest run", [], []),
    (
        {
            "test": "pnpm lint && pnpm test:types && vitest run --coverage",
            "lint": "eslint .",
            "test:types": "tsc --noEmit",
        },
        "npx --no-install vitest run",
        [],
        ["npm run lint", "npm run test:types"],
    ),
    (
        {"test": "npm run lint && npm run unit", "lint": "eslint .", "unit": "c8 --100 node --test test/*.js"},
        "node --test test/*.js",
        [],
        ["npm run lint"],
    ),
    (
        {"test": "nyc --reporter=text mocha --require ./a 'test/**/*.js'"},
        "npx --no-install mocha --require ./a 'test/**/*.js'",
        [],
        [],
    ),
    (
        {"test": "run-s test:lint test:unit", "test:lint": "eslint .", "test:unit": "cross-env TZ=UTC jest --coverage"},
        "TZ=UTC npx --no-install jest",
        [],
        ["npm run test:lint"],
    ),
    ({"test": "run-s test:*", "test:a": "ava", "test:b:c": "tap"}, "npx --no-install ava", [], []),
    ({"test": "run-s test:**", "test:b:c": "tap", "a": "ava"}, "npx --no-install tap", [], []),
    ({"test": f"run-s {'*a' * 30}b tap", "a" * 60: "ava", "tap": "tap"}, "npx --no-install tap", [], []),
    (
        {"pretest": "npm run build", "build": "tsc -p .", "test": "tape test/*.js"},
        "npx --no-install tape test/*.js",
        ["npx --no-install tsc -p ."],
        [],
    ),
    (
        {"pretest": "npm run readme", "readme": "evalmd README.md", "test": "nyc tape 'test/**/*.js'"},
        "npx --no-install tape 'test/**/*.js'",
        [],
        ["npx --no-install evalmd README.md"],
    ),
    (
        {"test": "npm run init && tap", "init": "esbuild --target=es2020 src/a.ts > test/a.cjs 2>&1"},
        "npx --no-install tap",
        ["npm run init"],
        [],
    ),
    (
        {"test": "npm run unit", "unit": "tsc --a 2>/dev/null && tap > out.txt"},
        "npx --no-install tap",
        ["npx --no-install tsc --a"],
        [],
    ),
    ({"test": "xo && ava"}, "npx --no-install ava", [], ["npx --no-install xo"]),
    ({"test": "npm test"}, "", [], []),
    (
        {"test": "eslint . && npm run borp && jest", "borp": "borp --timeout 9 --coverage --check-coverage --lines 95"},
        "npx --no-install borp --timeout 9",
        [],
        ["npx --no-install eslint ."],
    ),
    (
        {
            "test": "bun run unit && bun run types",
            "unit": "bun build.ts && bun test --only src",
            "types": "tsc --noEmit",
        },
        "bun test --only src",
        ["bun build.ts"],
        [],
    ),
    ({"test": "bun test --coverage --reporter=junit --reporter-outfile=a.xml"}, "bun test", [], []),
    ({"test": "node test.js"}, "", ["node test.js"], []),
    ({"test": "npm run unit --silent -- --ci a", "unit": "mocha"}, "npx --no-install mocha a", [], []),
    (
        {"test": "yarn jest", "jest": "NODE_OPTIONS=--experimental-vm-modules jest --ci"},
        "NODE_OPTIONS=--experimental-vm-modules npx --no-install jest",
        [],
        [],
    ),
]


def test_scripts_before_scripts_are_followed_to_a_depth() -> None:
    nested = {f"{'pre' * number}test": "true" for number in range(2_000)}
    assert node_scripts(files(**{"package.json": json.dumps({"scripts": nested})})).runner == ""


@pytest.mark.parametrize(("scripts", "runner", "before", "checks"), SCRIPTS)
def test_the_runner_behind_the_scripts(
    scripts: dict[str, str], runner: str, before: list[str], checks: list[str]
) -> None:
    found = node_scripts(files(**{"package.json": json.dumps({"scripts": scripts})}))
    assert (found.runner, found.before, found.checks) == (runner, before, checks)


MAKE_FOR_NODE = """
BIN = ./node_modules/.bin
TESTS = $(shell find test -name '*.js')

test: lint build
\t@NODE_ENV=test $(BIN)/mocha --reporter spec --require should $(TESTS)

lint:
\t$(BIN)/jshint lib

build: lib/parser.js

lib/parser.js: src/grammar
\t@mkdir -p lib
\t$(BIN)/jison src/grammar -o $@

.PHONY: test lint
"""
SHELL = """#!/usr/bin/env bash
set -e
export A=$B
cd $(dirname $0)/..
npm run build
if [ $A ]; then echo; fi
make unit
"""


@pytest.mark.parametrize(
    ("script", "more", "runner", "before", "checks"),
    [
        (
            "make test",
            {"Makefile": MAKE_FOR_NODE},
            "NODE_ENV=test npx --no-install mocha --require should",
            ["mkdir -p lib", "npx --no-install jison src/grammar -o lib/parser.js"],
            ["npx --no-install jshint lib"],
        ),
        (
            "bash scripts/test.sh && ./scripts/test.sh",
            {"scripts/test.sh": SHELL, "Makefile": "unit:\n\tnpx jest --ci $(ONLY)\n"},
            "npx --no-install jest",
            ["npx --no-install tsc"],
            [],
        ),
        ("sh -c 'tape test.js'", {}, "npx --no-install tape test.js", [], []),
        ("./run.js", {"run.js": "#!/usr/bin/env node\n"}, "", ["./run.js"], []),
        ("make", {"Makefile": "all:\n\tnpm test\n\tmake\n"}, "", [], []),
    ],
)
def test_the_runner_behind_make_and_scripts_of_the_shell(
    script: str, more: dict[str, str], runner: str, before: list[str], checks: list[str]
) -> None:
    package = {"package.json": json.dumps({"scripts": {"test": script, "build": "tsc"}})}
    found = node_scripts(files(**package, **more))
    assert (found.runner, found.before, found.checks) == (runner, before, checks)
