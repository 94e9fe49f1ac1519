"""Instruction files in the field's order, cut honestly."""

import pytest

from app.repo.instructions import InstructionFile, ignored_by_git, instructions
from tests.support.memory_tree import MemoryTree


def told(
    files: dict[str, bytes], budget_tokens: int = 1_000, modes: dict[str, str] | None = None
) -> list[InstructionFile]:
    return list(instructions(MemoryTree(files, modes=modes or {}), budget_tokens))


def test_the_order_is_the_fields() -> None:
    files = {
        "CONTRIBUTING.md": b"contributing",
        "CLAUDE.md": b"claude",
        ".github/copilot-instructions.md": b"copilot",
        "AGENTS.md": b"agents",
        "docs/AGENTS.md": b"of a folder",
    }
    assert told(files) == [
        ("AGENTS.md", "agents"),
        ("CLAUDE.md", "claude"),
        (".github/copilot-instructions.md", "copilot"),
        ("CONTRIBUTING.md", "contributing"),
    ]


@pytest.mark.parametrize("path", ["agents.md", "Agents.MD", ".github/CONTRIBUTING.md", "docs/contributing.md"])
def test_other_spellings_and_places_are_found(path: str) -> None:
    assert told({path: b"rules"}) == [(path, "rules")]


def test_the_root_comes_before_other_places() -> None:
    assert told({".github/CONTRIBUTING.md": b"inner", "CONTRIBUTING.md": b"outer"}) == [("CONTRIBUTING.md", "outer")]


def test_copies_and_links_are_shown_once() -> None:
    files = {"AGENTS.md": b"rules\n", "CLAUDE.md": b"rules", "CONTRIBUTING.md": b"AGENTS.md"}
    assert told(files, modes={"CONTRIBUTING.md": "120000"}) == [("AGENTS.md", "rules")]


def test_a_file_that_says_nothing_of_code_hides_no_other_one() -> None:
    files = {
        "AGENTS.md": b"# Pull requests\nSign every commit.\n",
        "CLAUDE.md": b"# Testing\nRun the tests with make check, never pytest.\n",
    }
    assert [file.path for file in told(files)] == ["CLAUDE.md"]


def test_none_and_empty_files() -> None:
    assert told({}) == []
    assert told({"AGENTS.md": b" \n"}) == []


def test_a_long_file_is_cut_at_a_line_and_says_how_long_it_is() -> None:
    (only,) = told({"AGENTS.md": b"one rule a line\n" * 1_000, "CLAUDE.md": b"never reached"}, budget_tokens=200)
    assert len(only.text) <= 800
    *rules, note = only.text.splitlines()
    assert set(rules) == {"one rule a line"}
    assert note == "[cut here: AGENTS.md goes on, 15,999 characters in all]"


def test_a_budget_too_small_for_a_piece_leaves_it_out() -> None:
    assert told({"AGENTS.md": b"x" * 10_000}, budget_tokens=10) == []
    assert told({"AGENTS.md": b"x" * 10_000}, budget_tokens=0) == []


def test_text_is_cut_at_the_limit() -> None:
    first, second = told({"AGENTS.md": b"a" * 400, "CLAUDE.md": b"b\n" * 1_000}, budget_tokens=200)
    assert first.text == "a" * 400
    assert second.text.endswith("1,999 characters in all]")
    assert len(first.text) + len(second.text) <= 800


def test_bytes_that_are_not_text_do_no_harm() -> None:
    assert told({"AGENTS.md": b"caf\xe9"}) == [("AGENTS.md", "caf\ufffd")]


CONTRIBUTING = b"""# Contributing

Thank you!

## Reporting bugs

Good bug reports have a title.

## Running the tests

Use `make check`.

## Code of conduct

Be kind.
"""


def test_rules_are_reduced_to_code_and_tests() -> None:
    assert told({"CONTRIBUTING.md": CONTRIBUTING}) == [("CONTRIBUTING.md", "# Running the tests\nUse `make check`.")]


def test_sections_about_tests_come_first_in_a_long_file() -> None:
    long = b"# Architecture\n\n" + b"It has layers.\n\n" * 100 + b"# Tests\n\nRun `make check`.\n"
    (only,) = told({"AGENTS.md": long}, budget_tokens=100)
    assert "Run `make check`." in only.text
    assert len(only.text) <= 400


def test_patterns_that_git_ignores_everywhere_are_not_shown() -> None:
    tree = MemoryTree({".gitignore": b"# ours\n*.pyc\n__pycache__/\n/build/\n!keep\nlib/generated.py\n*.snap\n"})
    assert ignored_by_git(tree) == "lib/generated.py *.snap"
    assert ignored_by_git(MemoryTree({})) == ""
