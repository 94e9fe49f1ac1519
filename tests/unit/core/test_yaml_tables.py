"""YAML of other programs that strangers wrote is read, or refused with a ValueError, and never ends the process."""

import pytest

from app.core.yaml_and_toml import yaml_table

LEVELS = [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]\n" for level in range(1, 40)]
HOSTILE = {
    "open lists": f"a: {'[' * 50_000}",
    "lists": f"a: {'[' * 3_000}{']' * 3_000}",
    "tables": f"{'{a: ' * 3_000}{'}' * 3_000}",
    "lists of lines": f"{'- ' * 3_000}a",
    "aliases of aliases": f"x0: &x0 [a, a]\n{''.join(LEVELS)}",
    "aliases of a text": f"a: &a {'x' * 10_000}\nb: [{'*a, ' * 3_000}]",
    "aliases of a key": f"&a {'x' * 10_000}: 1\nb: [{'*a, ' * 3_000}]",
    "an alias of what is around it": "a: &a [*a]",
    "a large file": "a: b\n" * 200_000,
    "no YAML": "- [",
    "a control character": "\x00",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tables_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        yaml_table(HOSTILE[name])


def test_usual_tables_are_read_as_text() -> None:
    nested = f"{'{a: ' * 50}1{'}' * 50}"
    text = f"a: &a [2024-99-99, yes]\nb: {{c: *a, d: *a}}\ne: {nested}\n"
    found = yaml_table(text)
    assert found["b"] == {"c": ["2024-99-99", "yes"], "d": ["2024-99-99", "yes"]}
    assert yaml_table("run: pytest\n" * 20_000) == {"run": "pytest"}


def test_other_values_are_an_empty_table() -> None:
    assert [yaml_table(text) for text in ("", "a", "[a]")] == [{}, {}, {}]
