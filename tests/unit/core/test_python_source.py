"""Python that anybody may have written is parsed, or is None."""

import pytest

from app.core.python_source import none_if_unparsable, parse_python


@pytest.mark.parametrize("text", ["def", "a\0b", "[" * 5_000, "-" * 100_000 + "1", "9" * 5_000, "\ud800"])
def test_python_that_cannot_be_parsed_is_none(text: str) -> None:
    assert parse_python(text) is None


def test_a_parser_that_was_disturbed_by_another_thread_is_asked_again() -> None:
    answers = iter((SystemError("AST constructor recursion depth mismatch"), None))

    def parse() -> str:
        if error := next(answers):
            raise error
        return "parsed"

    assert none_if_unparsable(parse) == "parsed"
