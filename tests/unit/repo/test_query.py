"""What is read out of an issue's text."""

import pytest

from app.repo.index.ranking import MAX_CHARACTERS, parse, sections
from app.repo.index.terms import count_terms, identifiers, stem, term_id, terms

PYTHON_TRACEBACK = """Crash on save
Saving fails:
```
Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/shop/cli.py", line 10, in main
    save(cart)
  File "/usr/lib/python3/site-packages/shop/store.py", line 22, in save_all
    raise StoreError("full")
shop.errors.StoreError: full
```
"""


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("dryRun", ("dryrun", "dry", "run")),
        ("dry_run", ("dryrun", "dry", "run")),
        ("HTTPServer_errors", ("httpservererror", "http", "server", "error")),
        ("x", ()),
        ("Documenting", ("document",)),
        ("größe", ("größe",)),
        ("a" * 81, ()),
    ],
)
def test_identifiers_become_the_same_terms_in_every_spelling(identifier: str, expected: tuple[str, ...]) -> None:
    assert terms(identifier) == expected


@pytest.mark.parametrize(
    "words", ["document documents documented documenting", "type types typed typing", "query queries"]
)
def test_endings_do_not_matter(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["status", "class", "this", "string", "used", "bus"])
def test_words_that_only_look_inflected_keep_their_ending(word: str) -> None:
    assert stem(word) == word


def test_terms_are_counted_by_stable_ids() -> None:
    counts = count_terms(identifiers("save(save_all)"))
    assert counts == {term_id("sav"): 2, term_id("savall"): 1, term_id("all"): 1}
    assert term_id("save") == 0x55663ADE


def test_the_title_weighs_more_than_the_body() -> None:
    weights = parse("Wrong currency\nThe invoice shows it.").weights
    assert weights["currency"] > weights["invoic"] > 0
    assert "the" not in weights


def test_a_word_in_backticks_weighs_more_than_the_same_in_prose() -> None:
    assert parse("t\n`invoice`").weights["invoic"] > parse("t\ninvoice").weights["invoic"]


def test_comments_and_links_are_not_words() -> None:
    weights = parse("t\n<!-- please describe --> see https://example.org/wiki/Volcano and <!-- never closed").weights
    assert not {"please", "describ", "wiki", "volcano", "never"} & set(weights)


def test_neighbouring_words_are_also_one_name() -> None:
    weights = parse("Wrong type hints\nUse the dry-run option").weights
    assert {"typhint", "dryrun"} <= set(weights)


def test_frames_come_innermost_first_and_are_not_plain_paths() -> None:
    query = parse(PYTHON_TRACEBACK)
    assert [frame.rpartition("/")[2] for frame in query.frames] == ["store.py", "cli.py"]
    assert query.paths == ()
    assert {"StoreError"} <= query.names
    assert "shop.errors.StoreError" in query.modules


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("    at Object.run (/srv/app/lib/run.js:10:5)", "/srv/app/lib/run.js"),
        ("thread 'main' panicked at src/main.rs:4:10:", "src/main.rs"),
        ("\t/home/me/pkg/server.go:88 +0x1d", "/home/me/pkg/server.go"),
        ("\tat org.shop.Cart.add(Cart.java:31)", "Cart.java"),
        ("app/models/cart.rb:7:in `add'", "app/models/cart.rb"),
        ("#1 0x4a in parse src/json/parse.c:120", "src/json/parse.c"),
        ("E   src/shop/cart.py:12: AssertionError", "src/shop/cart.py"),
    ],
)
def test_frames_of_other_languages(line: str, frame: str) -> None:
    assert parse(f"Crash\n{line}\n").frames == (frame,)


def test_paths_are_found_in_prose_code_and_links_to_the_code() -> None:
    text = "t\nIn `src/shop/cart.py`, lib\\util.ts, https://example.org/o/r/blob/main/src/tax.py#L3 (not e.g. this)"
    assert set(parse(text).paths) == {"src/shop/cart.py", "lib\\util.ts", "src/tax.py"}


def test_modules_and_quoted_names() -> None:
    query = parse("t\n`Cart.add_item` calls shop.tax::rate and `total()`; also round_half() but not plain words")
    assert {"Cart.add_item", "shop.tax::rate"} <= set(query.modules)
    assert {"Cart", "add_item", "tax", "rate", "total", "round_half"} <= query.names
    assert "plain" not in query.names


def test_code_blocks_are_distinguished_from_prose() -> None:
    parts = sections("title\nbefore\n```py\ncart = 1\n```\nafter\n~~~\nopen end")
    assert "cart" in parts.code
    assert "open end" in parts.code
    assert parts.prose.split() == ["before", "after"]


@pytest.mark.parametrize("text", ["", "\n", "```", "`", "<!--", "...", "\0\ud800"])
def test_texts_that_say_nothing(text: str) -> None:
    assert parse(text).paths == ()


@pytest.mark.parametrize(
    "piece",
    ["`", "a.", "a/", "a\\", "<!--", "```\n", "a+", 'File "', "x_", "aB", "- a", "http://a/", "a::", "a.py:", "a"],
)
def test_hostile_texts_take_no_time(piece: str) -> None:
    """Quadratic patterns would run into the suite's time limit on these."""
    parse(piece * (MAX_CHARACTERS // len(piece) + 1))


def test_long_texts_are_read_at_both_ends() -> None:
    names = parse("first_name\n" + "x " * MAX_CHARACTERS + "\nlast_name").names
    assert {"first_name", "last_name"} <= names


def test_system_information_is_not_searched_for() -> None:
    machine = "- OS: Ubuntu\nPython version: 3.11\n\nnumpy 1.2.3\ncoverage==7.1.0\nsix   1.16.0\n"
    body = f"It rounds wrongly.\n{machine}\nThat is all.\n"
    found = parse(f"Rounding\n{body}").weights
    assert not {"ubuntu", "python", "numpy", "coverag", "coverage", "six"} & found.keys()
    assert {"round", "wrongly"} <= found.keys()
    assert "numpy" in parse("Rounding\nnumpy 1.2.3 breaks it").weights
