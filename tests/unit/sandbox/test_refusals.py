"""What of a work tree may become part of a patch, decided from a listing alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sandbox.changes import (
    ListedFile,
    SortedFiles,
    compare,
    escaped,
    kind_problem,
    name_problem,
    repository,
    sort_files,
)


def record(path: str, kind: str = "f", mode: int = 0o644, size: int = 1) -> ListedFile:
    return ListedFile(mode, size, kind, path)


def sorted_out(*records: ListedFile, tracked: tuple[str, ...] = ()) -> SortedFiles:
    return sort_files(records, tracked, lambda path: path.startswith("ignored/"))


@pytest.mark.parametrize("kind", ["p", "s", "b", "c", "d", "D", "U"])
def test_only_files_and_links(kind: str) -> None:
    found = sorted_out(record("x", kind))
    assert not found.files
    assert [refusal.path for refusal in found.refusals] == ["x"]
    assert found.refused == ("x",)


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1644, 0o6755])
def test_no_special_bits(mode: int) -> None:
    assert "setuid" in (kind_problem(record("x", mode=mode)) or "")


def test_the_bits_of_a_link_mean_nothing() -> None:
    assert kind_problem(record("x", "l", 0o777)) is None


@pytest.mark.parametrize(
    "path",
    ["/abs", "../up", "a/../b", "a//b", "a/./b", "", "a/", "tab\tx", "new\nline", "\x7f", "\x85", "x" * 4001, "\udcff"],
)
def test_names_that_are_refused(path: str) -> None:
    assert name_problem(path)


@pytest.mark.parametrize(
    "path", ["a", "a b", "ü", "-rf", "a:b", "...", "..a", "a..", "x" * 4000, "\u202e", "con", "'\""]
)
def test_names_that_are_data(path: str) -> None:
    assert name_problem(path) is None


@pytest.mark.parametrize(
    ("path", "root"),
    [
        (".git/hooks/x", ".git"),
        ("a/.git/config", "a/.git"),
        (".GIT/x", ".GIT"),
        ("a/.gIt", "a/.gIt"),
        (".git/modules/.git/x", ".git"),
        (".github/x", None),
        ("a.git/x", None),
        (".gitignore", None),
    ],
)
def test_repositories(path: str, root: str | None) -> None:
    assert repository(path) == root


def test_hooks_are_named_and_samples_are_not() -> None:
    paths = [".git/HEAD", ".git/hooks/pre-push", ".git/hooks/pre-push.sample", "a/.git/hooks/post-checkout"]
    found = sorted_out(*map(record, paths))
    assert sorted(refusal.path for refusal in found.refusals) == [
        ".git",
        ".git/hooks/pre-push",
        "a/.git/hooks/post-checkout",
    ]
    assert sorted(found.refused) == [".git", "a/.git"]


def test_a_thousand_hooks_are_twenty_and_a_number() -> None:
    found = sorted_out(*(record(f".git/hooks/h{number}") for number in range(1000)))
    assert len(found.refusals) == 21
    assert "980" in found.refusals[-1].reason


def test_ignored_is_for_untracked_files_only() -> None:
    found = sorted_out(record("ignored/a"), record("ignored/b"), tracked=("ignored/b",))
    assert [one.path for one in found.files] == ["ignored/b"]
    assert not found.refusals


def test_an_ignored_device_is_nobodys_business() -> None:
    assert sorted_out(record("ignored/fifo", "p")) == SortedFiles((), (), ())


@given(st.text(st.characters(codec=None), max_size=400))
def test_escaped_paths_are_printable_short_and_valid(path: str) -> None:
    try:
        path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return  # no file system gives such a name
    shown = escaped(path)
    assert shown.isprintable()
    assert len(shown) <= 300
    shown.encode()


def test_a_listing_of_names_that_look_like_listings() -> None:
    old = b"1 1.0 644 5 f a\x002 1.0 644 5 f =\x003 1.0 755 0 f x 1 2 3\x00"
    new = b"1 1.0 644 5 f a\x002 2.0 644 5 f =\x004 1.0 777 9 l x 1 2 3\x009 9.9 644 0 f  lead\x00"
    seen = compare(old + b"=\0" + new)
    assert seen.fresh == (record("=", size=5), ListedFile(0o777, 9, "l", "x 1 2 3"), record(" lead", size=0))
    assert seen.present == {"a", "=", "x 1 2 3", " lead"}
