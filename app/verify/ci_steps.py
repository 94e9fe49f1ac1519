"""The commands with which a project's CI builds and tests it, in languages whose set-up is not followed further."""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from app.sandbox.setup.declared.ci import CiJob, ci_jobs
from app.sandbox.setup.declared.commands import simple_commands, without_assignments
from app.sandbox.setup.manifests import ManifestFiles

_TESTS = {
    **dict.fromkeys(("ctest", "rspec", "phpunit", "simple-phpunit", "pest", "prove", "bats"), r""),
    **dict.fromkeys(("make", "gmake"), r".*\b(?:test|check)s?\b"),
    **dict.fromkeys(("gradle", "gradlew"), r".*\b(?:test|check|build)\b"),
    **dict.fromkeys(("mvn", "mvnw"), r".*\b(?:test|verify)\b"),
    **dict.fromkeys(("go", "swift", "dart", "dotnet", "mix"), r"test\b"),
    "ninja": r".*\b(?:test|check)\b",
    "meson": r"test\b",
    "cmake": r"--build .*--target (?:test|check)\b",
    "composer": r"(?:run(?:-script)? )?(?:test|phpunit)s?\b",
    "rake": r"(?!.*(?:rubocop|standard|release|yard|doc))",
}
"""Programs that run tests, with what their arguments have to match."""
_BUILDS = {
    **dict.fromkeys(
        ("configure", "autogen.sh", "bootstrap", "bootstrap.sh", "autoreconf", "phpize", "cd", "mkdir"), r""
    ),
    **dict.fromkeys(("make", "gmake", "cmake", "ninja"), r"(?!.*\binstall\b)"),
    "meson": r"setup\b",
    "mix": r"compile\b",
    "dotnet": r"build\b",
}


class CiTest(NamedTuple):
    """A job of CI that tests: where it is written, and its command."""

    source: str
    command: str


def ci_tests(files: ManifestFiles) -> Iterator[CiTest]:
    """What each job of CI builds and tests, as one command; the most likely first."""
    for job in ci_jobs(files):
        if command := _command(job):
            yield CiTest(job.source, command)


def _command(job: CiJob) -> str:
    """Empty without tests, or if a step has a variable that nobody knows: what follows may need it."""
    kept: list[str] = []
    tests = False
    for words in simple_commands(job.script, job.values, piped=False):
        testing = _is_among(_TESTS, words)
        if testing or _is_among(_BUILDS, words):
            kept.append(" ".join(map(_quoted, words)))
            tests = tests or testing
    known = not any("$" in command for command in kept)
    return " && ".join(dict.fromkeys(kept)) if tests and known else ""


def _is_among(programs: dict[str, str], words: list[str]) -> bool:
    words = without_assignments(words)
    if words[:2] == ["bundle", "exec"]:
        words = words[2:]
    if words[:1] == ["php"]:
        words = words[1:]
    name = PurePosixPath(words[0]).name if words else ""
    return name in programs and re.match(programs[name], " ".join(words[1:])) is not None


def _quoted(word: str) -> str:
    name, equals, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if equals and name.isidentifier() else shlex.quote(word)
