"""Describes another coding agent as data: how it is installed, started, and told its model. One TOML file each.

`$tools`, `$task`, `$model`, `$base`, `$token`, `$home` and `$turns` are replaced when it starts.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from app.core.errors import AgentFixError, ConfigError, ExitCode
from app.core.record import StrictRecord
from app.core.text import nearest
from app.llm.base import WireProtocol
from app.sandbox.base import TOOLS

NATIVE = "native"
"""Our own runner, which has no recipe."""
PLACEHOLDERS = frozenset({"tools", "task", "model", "base", "token", "home", "turns"})
_PINNED = {
    "npm": re.compile(r"(?:@[\w.-]+/)?[\w.-]+@\d[\w.+-]*"),
    "pip": re.compile(r"[\w.-]+(?:\[[\w,-]+\])?==\d[\w.!+-]*"),
}
_NAME = r"^[a-z][a-z0-9-]{0,39}$"
_LEAST_PYTHON = "3.11"
_UV = "uv==0.13.9"
_UV_PLACE = "/tmp/uv"  # noqa: S108  # inside, while the set-up lasts: no part of its result
_NEWER_PYTHON = f"""\
if {{python}} -I -c 'import sys; sys.exit(sys.version_info < ({{least}}))'; then {{python}} -I -m venv {TOOLS}; else
{{python}} -I -m venv {_UV_PLACE} && {_UV_PLACE}/bin/python -I -m pip install --disable-pip-version-check {_UV} &&
export UV_PYTHON_INSTALL_DIR={TOOLS}/python && {_UV_PLACE}/bin/uv python install --no-bin {{version}} &&
"$({_UV_PLACE}/bin/uv python find --managed-python {{version}})" -I -m venv {TOOLS}; fi"""
"""Makes the environment with the sandbox's own interpreter if that is new enough, otherwise with one that uv brings."""

Text = Annotated[str, Field(max_length=20_000)]


class AgentRecipe(StrictRecord):
    """`client` downloads `packages` with exact versions; the first is the agent itself.

    `again` is the command that continues the last conversation, if the agent has one; only then can it be interrupted.
    `model` is the agent's name for the model if it requires a certain form; `least_python` is what it needs.
    """

    name: Annotated[str, Field(pattern=_NAME)]
    title: Annotated[str, Field(min_length=1, max_length=80)]
    client: Literal["npm", "pip"]
    packages: Annotated[tuple[str, ...], Field(min_length=1, max_length=40)]
    wire: WireProtocol
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    again: tuple[Text, ...] = ()
    environment: dict[str, Text] = Field(default_factory=dict)
    files: dict[str, Text] = Field(default_factory=dict)
    leaves_out: Annotated[tuple[str, ...], Field(max_length=100)] = ()
    """Request fields that are dropped instead of refused."""
    model: str = "agent-fix"
    least_python: Annotated[str, Field(pattern=r"^3\.\d{1,2}$")] = _LEAST_PYTHON

    @model_validator(mode="after")
    def _check_recipe(self) -> "AgentRecipe":
        loose = [package for package in self.packages if not _PINNED[self.client].fullmatch(package)]
        if loose:
            raise ValueError(f"{loose[0]!r} has no exact version")
        for text in (*self.command, *self.again, *self.environment.values(), *self.files, *self.files.values()):
            template = Template(text)
            if not template.is_valid() or not set(template.get_identifiers()) <= PLACEHOLDERS:
                raise ValueError(f"{text[:60]!r} has a $ that stands for nothing; write $$ for the sign itself")
        return self

    @property
    def version(self) -> str:
        return re.split(r"==|(?<=.)@", self.packages[0])[-1]

    @property
    def package(self) -> str:
        """The agent's own package, without its version."""
        return self.packages[0].removesuffix(self.version).rstrip("@=").partition("[")[0]

    @property
    def needs_newer_python(self) -> bool:
        """True if the agent needs a newer Python than we do."""
        return self.least_python != _LEAST_PYTHON

    def install(self, python: str) -> tuple[str, ...]:
        """Shell commands for the set-up phase, which install below `TOOLS`."""
        packages = " ".join(f"'{package}'" for package in self.packages)
        if self.client == "npm":
            return (f"npm install --prefix {TOOLS} --no-audit --no-fund --no-package-lock {packages}",)
        create = f"{python} -I -m venv {TOOLS}"
        if self.needs_newer_python:
            version = self.least_python
            create = _NEWER_PYTHON.format(python=python, version=version, least=version.replace(".", ", "))
        install = f"{TOOLS}/bin/python -I -m pip install --disable-pip-version-check {packages}"
        return (create, install)


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    return Template(text).substitute(values)


def built_in() -> dict[str, AgentRecipe]:
    """The recipes that come with agent-fix."""
    catalog = resources.files("app.agent.external").joinpath("catalog")
    texts = {entry.name: entry.read_text("utf-8") for entry in catalog.iterdir() if entry.name.endswith(".toml")}
    return _by_name(texts)


def recipes(directory: Path | None) -> dict[str, AgentRecipe]:
    """The built-in ones and the operator's, which may replace them. Raises ConfigError naming the file."""
    if directory is None:
        return built_in()
    try:
        own = {path.name: path.read_text("utf-8") for path in sorted(directory.glob("*.toml"))}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The runners in {directory} cannot be read: {error}") from error
    return built_in() | _by_name(own)


def find_recipe(name: str, directory: Path | None = None) -> AgentRecipe | None:
    """The recipe of another agent; None for our own. Raises AgentFixError for an unknown name."""
    if name == NATIVE:
        return None
    known = recipes(directory)
    if name not in known:
        raise unknown_runner_error(name, known)
    return known[name]


def unknown_runner_error(name: str, known: Iterable[str]) -> AgentFixError:
    names = (NATIVE, *sorted(known))
    similar = nearest(name.casefold(), names)
    meant = f"Did you mean {similar}? " if similar else ""
    hint = f"{meant}Runners are: {', '.join(names)}."
    return AgentFixError(f"There is no runner {name!r}.", code=ExitCode.CONFIG, hint=hint)


def _by_name(texts: Mapping[str, str]) -> dict[str, AgentRecipe]:
    return {recipe.name: recipe for recipe in (parse(text, source) for source, text in sorted(texts.items()))}


def parse(text: str, source: str) -> AgentRecipe:
    """Raises ConfigError that names the file and the error in it."""
    try:
        recipe = AgentRecipe.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: {error}") from error
    except ValidationError as error:
        lines = []
        for details in error.errors(include_url=False):
            place = ".".join(map(str, details["loc"])) or "the file"
            lines.append(f"{source}: {place}: {details['msg'].removeprefix('Value error, ')}")
        raise ConfigError("\n".join(lines)) from error
    if recipe.name == NATIVE:
        raise ConfigError(f"{source}: `native` is the name of our own runner")
    return recipe
