"""`agent-fix lessons`: what later jobs in a repository are told, from a terminal."""

import json
from pathlib import Path

import pytest

from app.cli import main
from app.core.lessons import MAX_REMEMBERED
from tests.support.repositories import make_repository


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_repository(tmp_path / "one", {"a.py": "x = 1\n"})
    make_repository(tmp_path / "two", {"a.py": "x = 1\n"})
    return tmp_path


def lessons(place: Path, *words: str, repository: str = "one") -> int:
    return main(["lessons", "--repo", str(place / repository), "--state", str(place / "state"), *words])


def test_lessons_can_be_added_listed_and_deleted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lessons(place) == 0
    assert "There are no lessons for this repository yet." in capsys.readouterr().out
    assert lessons(place, "remember", "Amounts are", "integer cents.") == 0
    assert capsys.readouterr().out.startswith("Added as lesson 1, until ")
    assert lessons(place, "list") == 0
    assert "   1  Amounts are integer cents.\n      told by you, shown to 0 jobs, until " in capsys.readouterr().out
    assert lessons(place, "list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["number"], listed["text"], listed["kind"]) == (1, "Amounts are integer cents.", "remembered")
    assert lessons(place, "forget", "1") == 0
    assert capsys.readouterr().out == "Lesson 1 was deleted.\n"
    assert lessons(place, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_each_repository_has_its_own_lessons(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lessons(place, "remember", "Amounts are integer cents.")
    (place / "one" / "below").mkdir()
    assert lessons(place, "list", "--json", repository="one/below") == 0
    capsys.readouterr()
    assert lessons(place, repository="two") == 0
    assert "There are no lessons" in capsys.readouterr().out
    assert lessons(place, "forget", "1", repository="two") == 2


def test_impossible_requests_are_refused_with_alternatives(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lessons(place, "forget", "4") == 2
    assert "Lesson 4 does not exist here." in capsys.readouterr().err
    assert lessons(place, "remember", "x" * 301) == 2
    assert "301 characters; the limit is 300" in capsys.readouterr().err
    for number in range(MAX_REMEMBERED):
        lessons(place, "remember", f"Rule number {number}.")
    assert lessons(place, "remember", "One rule too many.") == 2
    assert "Delete one with `agent-fix lessons forget N`." in capsys.readouterr().err
    assert lessons(place, "forget", "99") == 2
    assert "Existing lessons: 1, 2, 3," in capsys.readouterr().err


def test_directory_that_is_not_a_repository_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons", "--repo", str(tmp_path), "--state", str(tmp_path / "state")]) == 30
    assert "is not a git repository" in capsys.readouterr().err
