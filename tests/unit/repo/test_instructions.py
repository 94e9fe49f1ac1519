"""Instruction files in the field's order, cut honestly."""

import pytest

from app.repo.instructions import ignored_by_git, instructions, skills
from tests.support.memory_tree import MemoryTree


def told(
    files: dict[str, bytes], budget_tokens: int = 1_000, modes: dict[str, str] | None = None, near: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    found = instructions(MemoryTree(files, modes=modes or {}), budget_tokens, near)
    return [(file.path, file.text) for file in found.files]


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


def test_files_for_agents_are_shown_in_full() -> None:
    files = {
        "AGENTS.md": b"# Pull requests\nSign every commit.\n",
        "CLAUDE.md": b"# Testing\nRun the tests with make check, never pytest.\n",
    }
    assert [path for path, _ in told(files)] == ["AGENTS.md", "CLAUDE.md"]


def test_none_and_empty_files() -> None:
    assert told({}) == []
    assert told({"AGENTS.md": b" \n"}) == []


def test_a_long_file_is_cut_at_a_line_and_says_how_long_it_is() -> None:
    ((_, only),) = told({"AGENTS.md": b"one rule a line\n" * 1_000, "CLAUDE.md": b"never reached"}, budget_tokens=200)
    assert len(only) <= 800
    *rules, note = only.splitlines()
    assert set(rules) == {"one rule a line"}
    assert note == "[cut here: AGENTS.md goes on, 15,999 characters in all]"


def test_a_budget_too_small_for_a_piece_leaves_it_out() -> None:
    assert told({"AGENTS.md": b"x" * 10_000}, budget_tokens=10) == []
    assert told({"AGENTS.md": b"x" * 10_000}, budget_tokens=0) == []


def test_text_is_cut_at_the_limit() -> None:
    (_, first), (_, second) = told({"AGENTS.md": b"a" * 400, "CLAUDE.md": b"b\n" * 1_000}, budget_tokens=200)
    assert first == "a" * 400
    assert second.endswith("1,999 characters in all]")
    assert len(first) + len(second) <= 800


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


def test_sections_about_tests_come_first_in_what_is_written_for_people() -> None:
    long = b"# Architecture\n\n" + b"It has layers.\n\n" * 100 + b"# Tests\n\nRun `make check`.\n"
    ((_, only),) = told({"CONTRIBUTING.md": long})
    assert "Run `make check`." in only
    assert len(only) <= 800


def test_rule_far_down_in_a_long_file_is_shown() -> None:
    lines = [f"{number}. Rule {number} of this team, in a dozen words or a few more of them." for number in range(200)]
    ((_, only),) = told({"AGENTS.md": "\n".join(lines).encode()}, budget_tokens=8_000)
    assert lines[150] in only


MONOREPO = {
    "AGENTS.md": b"root",
    "packages/api/AGENTS.md": b"api",
    "packages/api/db/CLAUDE.md": b"db",
    "packages/web/AGENTS.md": b"web",
    "node_modules/x/README.md": b"nothing",
}


def test_files_of_folders_are_shown_nearest_first() -> None:
    near = ("packages/api/db/query.py", "README.md")
    assert [path for path, _ in told(MONOREPO, near=near)] == [
        "packages/api/db/CLAUDE.md",
        "packages/api/AGENTS.md",
        "AGENTS.md",
    ]
    assert instructions(MemoryTree(MONOREPO), 1_000, near).further == ("packages/web/AGENTS.md",)


def test_a_file_beyond_the_budget_is_named() -> None:
    found = instructions(MemoryTree({"AGENTS.md": b"a" * 4_000, "CLAUDE.md": b"b" * 4_000}), 1_000)
    assert [file.path for file in found.files] == ["AGENTS.md"]
    assert found.further == ("CLAUDE.md",)


def test_hidden_characters_of_rules_are_left_out() -> None:
    assert told({"AGENTS.md": "use \u200btabs\U000e0041".encode()}) == [("AGENTS.md", "use tabs")]


SKILL = b"---\nname: release\ndescription: >\n  How a release\n  is made.\n---\nLong text.\n"


def test_skills_are_listed_once_by_name_and_description() -> None:
    files = {
        ".agents/skills/release/SKILL.md": SKILL,
        ".claude/skills/release/SKILL.md": SKILL,
        ".github/skills/plain/skill.md": b"No front matter.",
        ".github/skills/broken/SKILL.md": b"---\nname: [\n---\nx",
        "docs/skills/other/SKILL.md": SKILL,
        ".claude/skills/link": b"../../elsewhere",
    }
    assert skills(MemoryTree(files, modes={".claude/skills/link": "120000"})).splitlines() == [
        "- release (.agents/skills/release/SKILL.md): How a release is made.",
        "- broken (.github/skills/broken/SKILL.md)",
        "- plain (.github/skills/plain/skill.md)",
    ]


def test_many_and_long_skills_are_counted_and_cut() -> None:
    long = b"---\ndescription: " + b"x" * 5_000 + b"\n---\n"
    lines = skills(MemoryTree({f".agents/skills/s{number:03}/SKILL.md": long for number in range(60)})).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "… and 10 skills more"
    assert max(map(len, lines)) < 400


def test_patterns_that_git_ignores_everywhere_are_not_shown() -> None:
    tree = MemoryTree({".gitignore": b"# ours\n*.pyc\n__pycache__/\n/build/\n!keep\nlib/generated.py\n*.snap\n"})
    assert ignored_by_git(tree) == "lib/generated.py *.snap"
    assert ignored_by_git(MemoryTree({})) == ""
    slow = b"pip-" + b"." * 900_000 + b"a b\n"  # for the comparison: it would take hours
    assert ignored_by_git(MemoryTree({".gitignore": b"*.snap\n" + slow})) == "*.snap …"
