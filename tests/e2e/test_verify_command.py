"""`agent-fix verify`: somebody's change in a local repository is judged; only the model's answers are recorded."""

import json
from pathlib import Path

import pytest

from tests.support import wallet_project
from tests.support.console import Console
from tests.support.recorded_answers import RecordedAnswers
from tests.support.repositories import commit_files, git, make_repository, snapshot
from tests.support.wallet_project import COUNTER, EXAMPLES, FILES, SOURCE, TEST
from tests.support.written_examples import example

pytestmark = pytest.mark.xdist_group("story")
MESSAGE = wallet_project.ISSUE.removeprefix("# ")
RIGHT = FILES[SOURCE].replace(wallet_project.WRONG, wallet_project.RIGHT)
LAST_PAY = "    extra = total - share * people\n    return [share] * (people - extra) + [share + 1] * extra\n"
TESTED = FILES[TEST] + wallet_project.NEW_TEST


def changed(place: Path, source: str = RIGHT, tests: str = TESTED) -> Path:
    """The wallet with somebody's branch `mend`, and a `main` that went on: there another file is broken meanwhile."""
    repository = make_repository(place / "wallet", FILES)
    git(repository, "switch", "-q", "-c", "mend")
    commit_files(repository, {SOURCE: source, TEST: tests, ".github/workflows/ci.yml": "on: push\n"}, MESSAGE)
    git(repository, "switch", "-q", "main")
    commit_files(repository, {"wallet/bill.py": "raise SystemExit('broken on main')\n"}, "Break main")
    return repository


def written(*examples: dict[str, object]) -> RecordedAnswers:
    return RecordedAnswers().plan("Shares come to the total; the first people pay more.", examples=examples)


def test_a_right_change_is_proved_and_nothing_is_changed(tmp_path: Path) -> None:
    console, repository = Console(tmp_path), changed(tmp_path)
    before, refs = snapshot(repository), git(repository, "for-each-ref")
    recording = written(*EXAMPLES).counter(*COUNTER)
    found = console.verify(repository, "--base", "main", "--change", "mend", "--json", recording=recording)
    assert found.code == 0, found.said
    assert json.loads(found.stdout)["exit_status"] == "verified"
    assert found.verification["verdict"] == "proved"
    assert "The agent" not in json.dumps(found.verification["reasons"])
    assert found.job["summary"] == "Shares come to the total; the first people pay more."
    assert (snapshot(repository), git(repository, "for-each-ref")) == (before, refs)
    shown = "\n".join(line for line in found.stderr.splitlines() if not line.startswith("  | "))
    for words in ("is this what you meant?", "split(100, 3)", "before    [33, 33, 33]", "after     [34, 33, 33]"):
        assert words in shown, shown
    text = (console.out / "verdict.md").read_text()
    assert "**Proved.**" in text
    assert "Is this what you meant?" in text
    assert "protected paths (review)" in text  # a person may change CI


def test_a_wrong_change_is_broken_if_another_derives_the_same(tmp_path: Path) -> None:
    console, tests = Console(tmp_path), FILES[TEST]
    recording = written(*EXAMPLES).opinion("author", "[34, 33, 33]\n", "[278, 278, 278, 277]\n", "I cannot tell.")
    repository = changed(tmp_path, FILES[SOURCE].replace(wallet_project.WRONG, LAST_PAY), tests)
    found = console.verify(
        repository, "--base", "main", "--change", "mend", recording=recording.counter(reason="None.")
    )
    assert found.code == 21, found.said
    assert found.verification["verdict"] == "broken"
    assert "after     [33, 33, 34]" in found.stdout
    assert "expected  [34, 33, 33]" in found.stdout
    doubtful = [one["unconfirmed"] for one in found.verification["examples"]["examples"]]
    assert [bool(why) for why in doubtful] == [False, False, True, False]


def test_a_wrong_example_does_not_make_a_right_change_red(tmp_path: Path) -> None:
    console, repository = Console(tmp_path), changed(tmp_path)
    mistaken = example(
        "split(200, 3)", "[66, 67, 67]", "The extra is shared fairly.", "one cent is lost", EXAMPLES[0]["program"][:32]
    )
    recording = written(*EXAMPLES, mistaken).counter(*COUNTER).opinion("author", "[67, 67, 66]")
    found = console.verify(repository, "--base", "main", "--change", "mend", recording=recording)
    assert found.code == 20, found.said
    assert found.verification["verdict"] == "unproved"
    assert "A question: The extra is shared fairly." in found.stdout
    assert "another conversation derived another output" in found.stdout


def test_a_change_that_is_none_is_refused(tmp_path: Path) -> None:
    console, repository = Console(tmp_path), changed(tmp_path)
    found = console.verify(repository, "--base", "mend", "--change", "mend", recording=written(*EXAMPLES))
    assert found.code == 23, found.said
    assert "already contains the change 'mend'" in found.said
