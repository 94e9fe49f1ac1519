"""Other agents as data: what a recipe may say, how it is filled in, and what a broken one is told."""

import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from app.agent.external.recipe import AgentRecipe, built_in, fill_placeholders, parse, recipes
from app.agent.registry import find_recipe
from app.core.errors import AgentFixError, ConfigError

SMALL = """\
name = "small"
title = "Small agent"
client = "npm"
packages = ["@scope/small@1.2.3"]
wire = "chat"
command = ["$tools/node_modules/.bin/small", "$task"]
"""
VALUES = {
    "tools": "/opt/agent",
    "task": "a $5 'task' with \"quotes\"",
    "model": "agent-fix",
    "base": "http://127.0.0.1:8787",
    "token": "t",
    "home": "/home/agent",
    "turns": "9",
}


def test_six_recipes_are_built_in() -> None:
    assert set(built_in()) == {"claude-code", "codex", "kilo", "mini-swe-agent", "opencode", "openhands"}


@pytest.mark.parametrize("recipe", built_in().values(), ids=lambda recipe: recipe.name)
def test_built_in_recipe_is_complete_and_holds_no_key(recipe: AgentRecipe) -> None:
    """It names its model's only address, holds no key, and what it installs has exact versions."""
    texts = [*recipe.command, *recipe.environment.values(), *recipe.files.values()]
    everything = "\n".join(fill_placeholders(text, VALUES) for text in texts)
    assert VALUES["base"] in everything
    assert VALUES["task"] in everything
    assert recipe.version[0].isdigit()
    assert all(recipe.version not in package.partition(recipe.version)[2] for package in recipe.packages[:1])
    assert not any(word in everything.lower() for word in ("https://", "sk-"))


@pytest.mark.parametrize("recipe", built_in().values(), ids=lambda recipe: recipe.name)
def test_recipe_files_parse_as_their_type(recipe: AgentRecipe) -> None:

    for path, text in recipe.files.items():
        content = fill_placeholders(text, VALUES | {"task": "t"})
        if path.endswith(".json"):
            json.loads(content)
        elif path.endswith(".toml"):
            tomllib.loads(content)
        else:
            compile(content, path, "exec")


def test_placeholder_values_are_not_expanded_again() -> None:
    assert fill_placeholders("say $task", VALUES) == "say a $5 'task' with \"quotes\""
    assert fill_placeholders("a $$ sign", VALUES) == "a $ sign"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ('packages = ["@scope/small"]', "has no exact version"),
        ('packages = ["@scope/small@latest"]', "has no exact version"),
        ('packages = ["small; rm -rf /@1.0"]', "has no exact version"),
        ("packages = []", "packages"),
        ('client = "brew"', "client"),
        ('wire = "smoke"', "wire"),
        ('name = "No Name"', "name"),
        ('name = "native"', "our own runner"),
        ('command = ["$unknown"]', "stands for nothing"),
        ("command = []", "command"),
        ('colour = "red"', "colour"),
        ("name = ", "small.toml"),
    ],
)
def test_broken_recipe_error_names_file_and_problem(change: str, complaint: str) -> None:
    key = change.partition(" ")[0]
    kept = [line for line in SMALL.splitlines() if not line.startswith(f"{key} ")]
    with pytest.raises(ConfigError, match=r"small\.toml") as error:
        parse("\n".join([*kept, change]), "small.toml")
    assert complaint in error.value.message


def test_operators_can_add_and_override_recipes(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "kilo.toml").write_text(SMALL.replace('"small"', '"kilo"'))
    known = recipes(tmp_path)
    assert known["small"].version == "1.2.3"
    assert known["small"].package == "@scope/small"
    assert known["kilo"].title == "Small agent"
    assert known.keys() == {*built_in(), "small"}
    assert find_recipe("native", tmp_path) is None
    with pytest.raises(AgentFixError, match="no runner 'smal'") as error:
        find_recipe("smal", tmp_path)
    assert "small" in error.value.hint


def test_installing_goes_below_one_directory() -> None:
    npm = parse(SMALL, "small.toml").install("/usr/bin/python3")
    assert npm == ("npm install --prefix /opt/agent --no-audit --no-fund --no-package-lock '@scope/small@1.2.3'",)
    pip = built_in()["mini-swe-agent"].install("/usr/bin/python3")
    assert pip[0] == "/usr/bin/python3 -I -m venv /opt/agent"
    assert pip[1].startswith("/opt/agent/bin/python -I -m pip install")


def test_another_version_also_changes_companion_packages() -> None:
    newer = {name: recipe.at("99.1") for name, recipe in built_in().items()}
    assert newer["kilo"].packages == ("@kilocode/cli@99.1", "@kilocode/cli-linux-x64@99.1")
    assert newer["openhands"].packages[:2] == ("openhands-sdk==99.1", "openhands-tools==99.1")
    assert newer["openhands"].packages[2] == built_in()["openhands"].packages[2], "a pin of its own"
    for name, recipe in newer.items():
        assert (recipe.version, recipe.package) == ("99.1", built_in()[name].package)


def test_recipes_are_part_of_the_package() -> None:
    names = {entry.name for entry in resources.files("app.agent.external").joinpath("catalog").iterdir()}
    assert {f"{name}.toml" for name in built_in()} <= names
