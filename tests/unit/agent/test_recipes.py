"""Other agents as data: what a recipe may say, how it is filled in, and what a broken one is told."""

import json
import subprocess
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from app.agent.external.exchange import Exchange
from app.agent.external.recipe import AgentRecipe, built_in, fill_placeholders, find_recipe, parse, recipes
from app.agent.external.runner import AgentRun, lines
from app.agent.step import Checkpoint
from app.core.errors import AgentFixError, ConfigError
from app.llm.base import ToolCall

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


def test_trajectory_with_half_a_surrogate_pair_can_be_stored() -> None:
    call = ToolCall(id="c", name="bash", arguments='{"command": "echo \\ud83d"}')
    exchange = Exchange(number=1, wire="chat", calls=(call,))
    (line,) = lines((AgentRun(number=1, exit_code=0, exchanges=(exchange,), checkpoint=Checkpoint(base="b")),))
    assert "echo \ufffd" in line.encode().decode()


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


@pytest.mark.parametrize(("minor", "made_by"), [(11, "uv"), (12, "python3"), (13, "python3")])
def test_python_that_is_too_old_is_replaced_by_one_that_uv_brings(tmp_path: Path, minor: int, made_by: str) -> None:
    """Its commands are executed with programs that only say what they were called with."""
    create, _ = built_in()["openhands"].install(str(tmp_path / "python3"))
    place = tmp_path / "uv" / "bin"
    place.mkdir(parents=True)
    log = tmp_path / "log"
    old = f"exit $((3{minor:02} < 312))"
    says = f'#!/bin/sh\nif [ "$2" = -c ]; then {old}; fi\necho "$0 $*" >> {log}\n'
    uv = f'#!/bin/sh\necho "$0 $*" >> {log}\nif [ "$2" = find ]; then echo {tmp_path}/found; fi\n'
    for path, text in (("python3", says), ("uv/bin/python", says), ("found", says), ("uv/bin/uv", uv)):
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o700)
    command = create.replace("/tmp/uv", str(tmp_path / "uv"))
    subprocess.run(["/bin/sh", "-e", "-c", command], check=True)
    done = log.read_text().replace(f"{tmp_path}/", "").splitlines()
    own = "python3 -I -m venv"
    if made_by == "python3":
        assert done == [f"{own} /opt/agent"]
        return
    assert done[0] == f"{own} uv"
    assert done[1].startswith("uv/bin/python -I -m pip install")
    assert done[2:] == [
        "uv/bin/uv python install --no-bin 3.12",
        "uv/bin/uv python find --managed-python 3.12",
        "found -I -m venv /opt/agent",
    ]


def test_recipes_are_part_of_the_package() -> None:
    names = {entry.name for entry in resources.files("app.agent.external").joinpath("catalog").iterdir()}
    assert {f"{name}.toml" for name in built_in()} <= names
