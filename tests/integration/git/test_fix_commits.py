"""Which commit is meant: by id, by number, and never one that the base does not have."""

from pathlib import Path

import pytest

from app.core.errors import ExitCode, RepositoryError
from app.repo.inspection import mentioned_fix, named_commits, named_numbers, requested_fix
from tests.support.repositories import commit_files, git, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r")


def head(repository: Path) -> str:
    return git(repository, "rev-parse", "HEAD")


def test_commits_and_numbers_named_in_a_text() -> None:
    text = "Fixed in 8f3c1a2 (see #41, GH-7, https://forge.example/o/r/pull/12) and deadbeef, 1234567, not x8f3c1a2y."
    assert named_commits(text) == ("8f3c1a2",)
    assert named_numbers(text) == (41, 7, 12)
    assert named_numbers("a&#39;s C#7 #0 o/r#5") == ()


def test_a_commit_that_is_asked_for(repository: Path) -> None:
    fix = commit_files(repository, {"a": "1"})
    base = commit_files(repository, {"a": "2"})
    assert requested_fix(repository, base, fix[:9]) == fix
    assert requested_fix(repository, base, "HEAD~1") == fix


@pytest.mark.parametrize("name", ["nothing", "", "a\0b", "--help"])
def test_a_name_that_is_not_a_commit_is_refused(repository: Path, name: str) -> None:
    with pytest.raises(RepositoryError, match="is not a commit") as caught:
        requested_fix(repository, head(repository), name)
    assert caught.value.code == ExitCode.UNKNOWN_BASE


def test_a_commit_that_the_base_does_not_have_is_refused(repository: Path) -> None:
    base = head(repository)
    later = commit_files(repository, {"a": "1"})
    with pytest.raises(RepositoryError, match="is not in the history of the base"):
        requested_fix(repository, base, later)
    assert mentioned_fix(repository, base, f"see {later}") == ""


def test_the_most_likely_commit_of_a_number(repository: Path) -> None:
    commit_files(repository, {"a": "1"}, "Prepare for #41")
    closing = commit_files(repository, {"a": "2"}, "Round halves up\n\nFixes #41")
    assert mentioned_fix(repository, head(repository), "Test for #41") == closing
    squashed = commit_files(repository, {"a": "3"}, "Round halves up (#41)")
    commit_files(repository, {"a": "4"}, "Speak of #41, and of (#411)")
    commit_files(repository, {"a": "5"}, "Later (#42)\n\nfixes #41 again")
    assert mentioned_fix(repository, head(repository), "Test for #41") == squashed
    merged = commit_files(repository, {"a": "6"}, "Merge pull request #41 from o/topic")
    assert mentioned_fix(repository, head(repository), "Test for #41") == merged


def test_an_id_says_more_than_a_number(repository: Path) -> None:
    fix = commit_files(repository, {"a": "1"}, "Rounding")
    commit_files(repository, {"a": "2"}, "Other (#41)")
    assert mentioned_fix(repository, head(repository), f"#41 was fixed in {fix[:10]}") == fix


def test_nothing_is_guessed(repository: Path) -> None:
    assert mentioned_fix(repository, head(repository), "Add tests for rounding, see #99 and 8f3c1a2") == ""


def test_the_first_number_with_a_commit_is_used(repository: Path) -> None:
    first = commit_files(repository, {"a": "1"}, "One (#7)")
    commit_files(repository, {"a": "2"}, "Two (#8)")
    assert mentioned_fix(repository, head(repository), "Test for #9 and #7, not #8") == first
