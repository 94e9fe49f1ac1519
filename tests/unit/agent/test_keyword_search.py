"""Searches that describe: which words count, which files come first, which lines tell."""

import pytest

from app.agent.search import MAX_FILES, SHOWN_FILES, FoundLine, best_files, best_lines, word_rarity, words_of


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Where are the items summed?", ("item", "sum")),
        ("roundHalf of type_hints", ("round", "half", "typ", "hint")),
        ("how is it to be in", ("how",)),
        ("a b c", ()),
        ("größe ändern", ("größe", "ändern")),
    ],
)
def test_query_words_are_stemmed_and_identifiers_split(query: str, words: tuple[str, ...]) -> None:
    assert words_of(query) == words


def test_files_need_two_query_words_and_tests_rank_last() -> None:
    having = {
        "round": ["tests/test_cart.py", "src/cart.py", "src/money.py", "src/other.py"],
        "cent": ["tests/test_cart.py", "src/cart.py"],
        "tax": ["src/money.py", "tests/test_cart.py"],
        "nowhere": [],
    }
    rare = word_rarity(having, files=20)
    assert "nowhere" not in rare
    assert rare["cent"] > rare["round"]
    assert best_files(having, rare) == ["src/cart.py", "src/money.py", "tests/test_cart.py"]


def test_path_matches_raise_the_rank() -> None:
    having = {"cart": ["src/a.py", "src/cart.py"], "total": ["src/a.py", "src/cart.py"]}
    assert best_files(having, word_rarity(having, 10)) == ["src/cart.py", "src/a.py"]


def test_few_files_are_shown_with_their_best_lines_in_order() -> None:
    rare = {"round": 1.0, "cent": 2.0}
    lines = [FoundLine("a.py", number, "round it") for number in range(1, 9)]
    lines += [FoundLine("a.py", 9, "def round_cents():"), FoundLine("b.py", 1, "round")]
    lines += [FoundLine(f"z{number}.py", 1, "round") for number in range(20)]
    shown = best_lines(lines, rare)
    assert [(line.path, line.number) for line in shown[:4]] == [("a.py", 1), ("a.py", 2), ("a.py", 9), ("b.py", 1)]
    assert len({line.path for line in shown}) == SHOWN_FILES


def test_number_of_files_is_limited() -> None:
    having = {word: [f"{number}.py" for number in range(500)] for word in ("one", "two")}
    assert len(best_files(having, word_rarity(having, 500))) == MAX_FILES
