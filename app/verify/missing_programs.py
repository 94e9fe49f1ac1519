"""Names the program that a test command needs and the sandbox lacks, and what has it."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple


class ProgramSource(NamedTuple):
    """A package of Debian that installs a program, and an image that has it; each empty if there is none."""

    package: str = ""
    image: str = ""


_RUBY, _PHP, _ELIXIR, _GO = "ruby", "php", "elixir", "golang"
_SOURCES = {
    "bundle": ProgramSource("bundler", _RUBY),
    "bundler": ProgramSource("bundler", _RUBY),
    "cargo": ProgramSource("cargo", "rust"),
    "cmake": ProgramSource("cmake"),
    "composer": ProgramSource("composer", "composer"),
    "ctest": ProgramSource("cmake"),
    "dart": ProgramSource("", "dart"),
    "dotnet": ProgramSource("", "dotnet/sdk"),
    "elixir": ProgramSource("elixir", _ELIXIR),
    "g++": ProgramSource("g++", "gcc"),
    "gcc": ProgramSource("gcc", "gcc"),
    "go": ProgramSource("golang-go", _GO),
    "gradle": ProgramSource("gradle", "gradle"),
    "java": ProgramSource("default-jdk", "eclipse-temurin"),
    "make": ProgramSource("make", "gcc"),
    "meson": ProgramSource("meson"),
    "mix": ProgramSource("elixir", _ELIXIR),
    "mvn": ProgramSource("maven", "maven"),
    "ninja": ProgramSource("ninja-build"),
    "node": ProgramSource("nodejs", "node"),
    "npm": ProgramSource("npm", "node"),
    "php": ProgramSource("php-cli", _PHP),
    "phpunit": ProgramSource("phpunit"),
    "prove": ProgramSource("perl", "perl"),
    "rake": ProgramSource("rake", _RUBY),
    "rspec": ProgramSource("ruby-rspec"),
    "ruby": ProgramSource("ruby", _RUBY),
    "swift": ProgramSource("", "swift"),
}
_INSTALLED_BY = {
    "vendor/bin": "composer install",
    "node_modules/.bin": "npm install",
    "bin": "bundle binstubs",
}
_NOT_FOUND = re.compile(
    r"(?m)^(?:\S*(?:bash|sh|env|make(?:\[\d+\])?): )?(?:line \d+: |\d+: )?['\"\u2018]?(?P<program>[\w./+-]+)"
    r"['\"\u2019]?: (?:command not found|not found|No such file or directory)$"
    r"|^bundler: command not found: (?P<gem>\S+)$"
)
_NO_SUCH_COMMAND = re.compile(r"(?m)\bError 127\b|^(?:bundler|\S*env): ")


_NOT_INSTALLED = (
    (re.compile(r"Bundler::GemNotFound|Could not find gem '"), "gems of the Gemfile", "bundle install"),
    (
        re.compile(r"Could not find Hex\b|Could not find an SCM for"),
        "packages of mix.exs",
        "mix local.hex --force; mix deps.get",
    ),
    (
        re.compile(r"vendor/autoload\.php\b.*(?:No such file|Failed opening)"),
        "packages of composer.json",
        "composer install",
    ),
)


def missing_packages(output: str) -> str:
    """A sentence on the packages that nobody has installed, if that is why a command failed; else empty."""
    found = next((each for each in _NOT_INSTALLED if each[0].search(output)), None)
    return f"The {found[1]} are not installed: `{found[2]}` belongs into `setup:`." if found else ""


def missing_program(exit_code: int, output: str) -> str:
    """A sentence on the program that is missing, if that is why a command ended with this code; else empty."""
    if exit_code not in (126, 127) and not _NO_SUCH_COMMAND.search(output):
        return ""
    found = [each["program"] or each["gem"] for each in _NOT_FOUND.finditer(output)]
    return about_program(found[-1]) if found else ""


def about_program(program: str) -> str:
    """That it is not in the sandbox, and what has it."""
    directory, name = str(PurePosixPath(program).parent), PurePosixPath(program).name
    if directory in _INSTALLED_BY:
        return f"{program} does not exist: `{_INSTALLED_BY[directory]}`, or what else makes it, belongs into `setup:`."
    source = _SOURCES.get(name, ProgramSource())
    known = [
        f"Debian's package {source.package}" if source.package else "",
        f"the image {source.image}" if source.image else "",
    ]
    have = " or ".join(filter(None, known))
    return f"The command {program} is not in the sandbox." + (f" {have[0].upper()}{have[1:]} has it." if have else "")
