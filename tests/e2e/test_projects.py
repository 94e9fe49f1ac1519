"""Projects as people have them: other frameworks, a set-up, configured commands, failures that were there before."""

import os
import shutil
from pathlib import Path

import pytest

from app.config.repository import SOURCE
from tests.support import wallet_project
from tests.support.console import Console, branches
from tests.support.recorded_answers import RecordedAnswers, bash, edit, write
from tests.support.repositories import git, make_repository

PACKAGE = {
    "pyproject.toml": """\
[build-system]
requires = ["flit_core>=3.4"]
build-backend = "flit_core.buildapi"

[project]
name = "greeter"
version = "1.0"
description = "Greets"
requires-python = ">=3.11"

[project.optional-dependencies]
test = ["pytest", "six"]
""",
    "src/greeter/__init__.py": 'def greet(name):\n    return f"Hello {nmae}"\n',
    "tests/test_greeter.py": (
        "import pytest\nimport six\n\nimport greeter\n\n\n"
        '@pytest.mark.parametrize("kind", ["function", "named greet"])\n'
        "def test_a_greeting_is_callable(kind):\n    assert six.callable(greeter.greet)\n"
    ),
}
PACKAGE_ISSUE = "# greet raises NameError\n\n`greeter.greet('Ada')` raises NameError: name 'nmae' is not defined.\n"
PACKAGE_TEST = '\n\ndef test_greets_by_name():\n    assert greeter.greet("Ada") == "Hello Ada"\n'


def _greeter_mended() -> RecordedAnswers:
    test = edit(
        "tests/test_greeter.py", "six.callable(greeter.greet)\n", f"six.callable(greeter.greet)\n{PACKAGE_TEST}"
    )
    fix = edit("src/greeter/__init__.py", "{nmae}", "{name}")
    recording = RecordedAnswers().plan().turn("Mend it.", test, fix, bash("python -m pytest -q; pip install attrs"))
    return recording.submit("A misspelt name.", "python -m pytest tests/test_greeter.py -k by_name")


def test_a_package_is_installed_once_with_what_its_tests_need(tmp_path: Path) -> None:
    """The set-up asks this machine's own package index; a second job of the repository finds the result."""
    console = Console(
        tmp_path, {name: value for name, value in os.environ.items() if name.startswith("PIP_") or name == "HOME"}
    )
    repository = make_repository(tmp_path / "greeter", PACKAGE)
    first = console.fix(repository, PACKAGE_ISSUE, recording=_greeter_mended())
    assert first.code == 0, first.said
    assert first.verification["verdict"] == "tested"
    assert "set-up: " in first.stdout
    assert "3 passed" in first.observation(1, 2)
    assert "ERROR: No matching distribution found for attrs" in first.observation(1, 2), "no network while it works"
    suite = first.verification["suite"]
    assert (suite["command"], suite["base"]["count"]["passed"]) == ("python3 -m pytest", 2)
    assert "tests/test_greeter.py::test_greets_by_name" in suite["own_tests"]["passing"]

    prepared = _prepared(console)
    second = console.fix(repository, PACKAGE_ISSUE, "--restart", recording=_greeter_mended())
    assert second.code == 0, second.said
    assert second.job["branch"] == "agent-fix/greet-raises-nameerror-2"
    assert prepared == _prepared(console) != {}


def _prepared(console: Console) -> dict[str, int]:
    """Results of set-ups, and what tells a result from another built in its place."""
    return {path.name: path.stat().st_ino for path in (console.state / "caches" / "setup").iterdir()}


NODE = {
    "package.json": '{"name": "slugs", "version": "1.0.0", "type": "module", "scripts": {"test": "node --test"}}\n',
    "slug.js": "export const slug = (text) => text.toLowerCase().replace(' ', '-');\n",
    "test/slug.test.js": (
        "import assert from 'node:assert/strict';\nimport { test } from 'node:test';\n"
        "import { slug } from '../slug.js';\n\n"
        "test('two words', () => assert.equal(slug('Two Words'), 'two-words'));\n"
    ),
}
NODE_ISSUE = "# Only the first space is replaced\n\n`slug('a b c')` is `a-b c`; it should be `a-b-c`.\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on this machine")
def test_a_node_project(console: Console, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "slugs", NODE)
    added = "test('three words', () => assert.equal(slug('a b c'), 'a-b-c'));\n"
    recording = (
        RecordedAnswers()
        .plan()
        .turn("A test.", edit("test/slug.test.js", "'two-words'));\n", f"'two-words'));\n{added}"))
        .turn("Mend it.", edit("slug.js", "replace(", "replaceAll("), bash("npm test"))
        .submit("All spaces are replaced.", "node --test test/slug.test.js")
    )
    finished = console.fix(repository, NODE_ISSUE, recording=recording)
    assert finished.code == 0, finished.said
    assert finished.verification["verdict"] == "tested"
    suite = finished.verification["suite"]
    assert (suite["base"]["count"]["passed"], suite["head"]["count"]["passed"]) == (1, 1)
    assert any("three words" in name for name in suite["own_tests"]["passing"])


def test_failures_that_were_there_before_are_distinguished(console: Console, tmp_path: Path) -> None:
    broken = (
        "import unittest\n\n\nclass Old(unittest.TestCase):\n    def test_old(self):\n        self.fail('for years')\n"
    )
    repository = wallet_project.make_wallet(tmp_path / "wallet", {"tests/test_old.py": broken})
    finished = console.fix(repository, wallet_project.ISSUE, recording=wallet_project.mended())
    assert finished.code == 0, finished.said
    assert finished.verification["verdict"] == "proved"
    suite = finished.verification["suite"]
    assert suite["newly_failing"] == []
    assert suite["base"]["failing"] == suite["head"]["failing"] == ["tests.test_old.Old.test_old"]
    assert "1 failed" in finished.stdout
    assert "1 test already failing on the base" in finished.pull_request


def test_a_change_that_breaks_another_test_is_broken(console: Console, tmp_path: Path) -> None:
    """The other side: it is found, told to the model, and no branch is made when the model gives up."""
    repository = wallet_project.make_wallet(tmp_path / "wallet")
    wrong = wallet_project.FIX._replace(
        arguments=wallet_project.FIX.arguments.replace("[share + 1] * extra", "[share + 9] * people")
    )
    recording = wallet_project.planned().turn("Mend it.", wrong)
    for _ in range(8):
        recording.submit(
            wallet_project.SUMMARY, "python3 -c 'from wallet.shares import split; assert split(1, 1) == [1]'"
        )
    finished = console.fix(repository, wallet_project.ISSUE, recording=recording)
    assert finished.code == 21, finished.said
    assert "Newly failing: 2 tests (" in finished.job["reason"]
    assert "test_even" in finished.observation(2)
    assert branches(repository) == ["main"]
    assert not (console.out / "pull-request.md").exists()


CONFIGURED = """\
setup: printf 'VALUE = 7\\n' > "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/generated.py"
test: bash check.sh
lint: "! grep -rn TODO wallet"
"""
CHECK = "#!/bin/bash\nset -e\npython -c 'import generated; assert generated.VALUE == 7'\npython3 -m unittest -v\n"


def test_configured_commands_are_the_ones_that_run(console: Console, tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet", {"check.sh": CHECK, SOURCE: CONFIGURED})
    untidy = wallet_project.FIX._replace(
        arguments=wallet_project.FIX.arguments.replace("extra = ", "# TODO\\n    extra = ", 1)
    )
    tidy = edit(wallet_project.SOURCE, "# TODO\n    extra", "extra")
    recording = (
        wallet_project.planned()
        .turn("Mend it.", untidy, wallet_project.ADD_TEST)
        .submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION)
        .turn("Tidy up.", tidy)
        .submit(wallet_project.SUMMARY, wallet_project.REPRODUCTION)
    )
    finished = console.fix(repository, wallet_project.ISSUE, recording=recording)
    assert finished.code == 0, finished.said
    assert "lint" in finished.observation(2)
    assert [step.get("submission") for step in finished.steps] == [None, "rejected", None, "accepted"]
    assert finished.verification["suite"]["command"] == "bash check.sh"
    assert finished.verification["verdict"] == "proved"
    assert finished.verification["suite"]["base"]["execution"]["exit_code"] == 0


SHADOWS = {
    "app/__init__.py": "raise SystemExit('the harness imported a project')\n",
    "app/cli/__init__.py": "raise SystemExit('the harness imported a project')\n",
    "sitecustomize.py": "import pathlib\npathlib.Path('imported-by-the-host').touch()\n",
    "json.py": "raise SystemExit('json was shadowed')\n",
}


def test_a_repository_with_names_of_ours_is_only_data(console: Console, tmp_path: Path) -> None:
    """Its `app` is not our `app`, also where the command is given inside of it."""
    repository = wallet_project.make_wallet(tmp_path / "wallet", SHADOWS)
    arguments = console.fix_arguments(repository, wallet_project.ISSUE, recording=_beside_shadows())
    finished = console.execute(*arguments, directory=repository)
    assert finished.code == 20, finished.said
    assert not (repository / "imported-by-the-host").exists()
    assert git(repository, "status", "--porcelain") == ""


def _beside_shadows() -> RecordedAnswers:
    """`json.py` breaks unittest in that project, so it is run in isolated mode, which proves nothing."""
    check = "import sys; sys.path.append('.'); from wallet.shares import split; assert sum(split(9, 2)) == 9"
    reproduction = f'python3 -I -c "{check}"'
    recording = RecordedAnswers().plan().turn("Mend it.", wallet_project.FIX, write("notes.md", "mended\n"))
    return recording.submit(wallet_project.SUMMARY, reproduction).submit(wallet_project.SUMMARY, reproduction)
