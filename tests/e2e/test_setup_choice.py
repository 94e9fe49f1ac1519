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
    assert 0 <= found < done.stdout.find("cost     plan:")
    assert done.stdout.count("suite on the base: `python3 -m unittest discover -v -s tests -t .`") == 1
    text = (done.out / "pull-request.md").read_text()
    assert "Set-up: what `.github/workflows/ci.yml`, job tests installs and runs" in text
    assert "2 tests pass, 0 fail, 0 are not run." in text
