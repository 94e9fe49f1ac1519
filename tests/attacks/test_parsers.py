"""Files made to break parsers: each is done with, and the next file is answered."""

from collections.abc import Iterator

import pytest

from app.repo.syntax import first_error, symbols
from app.repo.syntax_process import SyntaxProcess
from app.verify.rust_tests import with_test_items

LARGE = b"def f(): pass\n" * 1_000


@pytest.fixture
def parser() -> Iterator[SyntaxProcess]:
    process = SyntaxProcess("app.repo.syntax")
    yield process
    process.close()


@pytest.mark.parametrize("path", ["a.py", "a.js", "a.go", "a.rs", "a.java", "a.rb", "a.c", "a.cpp", "a.json", "a.yml"])
@pytest.mark.parametrize(
    "content",
    [b"(" * 400_000, b"[" * 100_000, b"{[(" * 20_000, b"a.b(" * 100_000, b"\0\xff"],
    ids=["parentheses", "brackets", "all brackets", "calls", "no text"],
)
def test_hostile_files_end(path: str, content: bytes) -> None:
    first_error(path, content)
    assert all(symbol.line > 0 for symbol in symbols(path, content))


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.java", b"a<" * 200_000),  # gigabytes of memory
        ("a.cpp", b"a<b&&" * 100_000),
        ("a.ts", b"a<b," * 100_000),
        ("a.js", b"a.b(" * 120_000),  # a deep stack
        ("a.js", b"else if" * 70_000),  # minutes
    ],
    ids=["memory", "comparisons", "type arguments", "a deep stack", "minutes"],
)
def test_hostile_files_say_nothing_and_the_next_file_is_answered(
    parser: SyntaxProcess, path: str, content: bytes
) -> None:
    parser.ask("symbols", path, content)
    assert len(parser.ask("symbols", "a.py", LARGE)) == 1_000


@pytest.mark.parametrize("content", [b"(" * 60_000, b"#[cfg(test)]\n" * 20_000, b"mod a { " * 30_000, b"\0\xff"])
def test_rust_files_made_to_break_parsers_end(content: bytes) -> None:
    assert isinstance(with_test_items(b"#[cfg(test)]\nmod tests {}\n", content), bytes)
