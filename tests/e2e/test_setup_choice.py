"""A job finds its set-up by trying before anything is paid for, and the pull request says which it was."""

from pathlib import Path

from tests.support import wallet_project
from tests.support.console import Console

WORKFLOW = """
on: push
jobs:
  tests:
    runs-on: ubuntu-latest
    steps:
      - run: python -m unittest discover -v -s tests -t .
"""


def test_the_set_up_is_found_before_the_plan_and_named_in_the_pull_request(tmp_path: Path) -> None:
    repository = wallet_project.make_wallet(tmp_path / "wallet", {".github/workflows/ci.yml": WORKFLOW})
    done = Console(tmp_path).fix(repository, wallet_project.ISSUE, recording=wallet_project.worked_on())
    assert done.code == 0, done.said
    found = done.stdout.find("set-up: what .github/workflows/ci.yml, job tests installs and runs")
    assert 0 <= found < done.stdout.find("cost     plan.1:")
    assert done.stdout.count("suite on the base: `python3 -m unittest discover -v -s tests -t .`") == 1
    text = (done.out / "pull-request.md").read_text()
    assert "Set-up: what `.github/workflows/ci.yml`, job tests installs and runs" in text
    assert "2 tests pass, 0 fail, 0 are not run." in text


NEEDS_A_VARIABLE = """
import os

if "WALLET" not in os.environ:
    raise ImportError("WALLET says where the wallet is")
"""


def test_a_model_is_asked_where_no_candidate_works_and_its_commands_are_named(tmp_path: Path) -> None:
    files = {".github/workflows/ci.yml": WORKFLOW, "tests/__init__.py": NEEDS_A_VARIABLE}
    repository = wallet_project.make_wallet(tmp_path / "wallet", files)
    recording = wallet_project.mended().propose_setup(
        "touch /env/installed", test="WALLET=1 python3 -m unittest discover -v -s tests -t ."
    )
    done = Console(tmp_path).fix(repository, wallet_project.ISSUE, recording=recording)
    text = (done.out / "pull-request.md").read_text()
    assert "Set-up: what a model proposed after others had failed (`touch /env/installed`)" in text
    assert "2 tests pass, 0 fail, 0 are not run." in text
    assert done.verification["suite"]["command"] == "WALLET=1 python3 -m unittest discover -v -s tests -t ."
    assert "cost     setup:" in done.stdout
    assert (done.verification["verdict"], done.verification["rules"]) == ("proved", [])


def test_dependencies_that_no_index_has_are_named_in_the_pull_request(tmp_path: Path) -> None:
    setup = "setup: [\"echo '@secret/tool cannot be had here, and is left out'\"]\n"
    repository = wallet_project.make_wallet(tmp_path / "wallet", {".github/agent-fix.yml": setup})
    done = Console(tmp_path).fix(repository, wallet_project.ISSUE, recording=wallet_project.worked_on())
    assert done.code == 0, done.said
    text = (done.out / "pull-request.md").read_text()
    assert "- `@secret/tool` cannot be had here, and is left out" in text
    assert "[!WARNING]" not in text
