"""Patterns of paths: what they match, and that many stars do not take for ever."""

from itertools import product

import pytest

from app.core.globs import glob_expression, has_too_many_stars


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("*.py", "a.py", "b/a.py"),
        ("src/*/a*.py", "src/x/ab.py", "src/x/y/ab.py"),
        ("**/a.py", "x/y/a.py", "x/ya.py"),
        ("src/**", "src/x/y", "sr/x"),
        ("src/**/*.py", "src/a.py", "src/a.pyc"),
        ("pages/[id]/*.tsx", "pages/[id]/a.tsx", "pages/i/a.tsx"),
        ("a?", "a?", "ab"),
    ],
)
def test_glob_stops_at_slashes_and_knows_no_other_letters(pattern: str, matched: str, not_matched: str) -> None:
    assert glob_expression(pattern).fullmatch(matched)
    assert not glob_expression(pattern).fullmatch(not_matched)


def _parts_match(pattern: list[str], path: list[str]) -> bool:
    """The same by trying everything."""
    if not pattern or (pattern[0] != "**" and not path):
        return not pattern and not path
    if pattern[0] == "**":
        return _parts_match(pattern[1:], path) or (bool(path) and _parts_match(pattern, path[1:]))
    return _text_matches(pattern[0], path[0]) and _parts_match(pattern[1:], path[1:])


def _text_matches(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return _text_matches(pattern[1:], text) or (bool(text) and _text_matches(pattern, text[1:]))
    return text[:1] == pattern[0] and _text_matches(pattern[1:], text[1:])


def test_first_place_that_fits_is_as_good_as_any_other() -> None:
    parts = ("a", "*", "a*b", "*ab*a", "**")
    texts = ("a", "ab", "aabab", "abba")
    patterns = ["/".join(chosen) for length in (1, 2, 3) for chosen in product(parts, repeat=length)]
    paths = ["/".join(chosen) for length in (1, 2, 3) for chosen in product(texts, repeat=length)]
    wrong = [
        (pattern, path)
        for pattern in patterns
        if not pattern.endswith("**")  # these want something below
        for path in paths
        if bool(glob_expression(pattern).fullmatch(path)) is not _parts_match(pattern.split("/"), path.split("/"))
    ]
    assert wrong == []


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "**/a/" * 30 + "b", "**/*a*a/" * 30 + "b"])
def test_many_stars_do_not_take_for_ever(pattern: str) -> None:
    assert not glob_expression(pattern).fullmatch("a" * 200)
    assert not glob_expression(pattern).fullmatch("a/" * 200)


@pytest.mark.parametrize(
    ("pattern", "too_many"),
    [("*a*b*", False), ("*/*/*/*/*", False), ("*a*a*a*b", True), ("**/a/**/b/**", False), ("**/a/**/b/**/c/**", True)],
)
def test_number_of_stars_in_an_ignore_pattern_is_limited(pattern: str, *, too_many: bool) -> None:
    assert has_too_many_stars(pattern) is too_many
