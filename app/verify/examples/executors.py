"""The executors of examples: one entry for each way to run a program."""

from collections.abc import Mapping
from typing import Final

from app.core.examples import Run
from app.core.patch import Tree
from app.verify.examples import scripts
from app.verify.examples.launch import Executor, Project

EXECUTORS: Final[Mapping[Run, Executor]] = {
    "python": scripts.python,
    "node": scripts.node,
    "typescript": scripts.typescript,
    "ruby": scripts.ruby,
    "php": scripts.php,
    "shell": scripts.shell,
}
HELP: Final[Mapping[Run, str]] = {
    "python": "Runs in the project's root. Imports search the standard library, the project, then installed packages.",
    "node": "A file in the project's root. Import the project by a relative path or its package's name.",
    "typescript": "A file in the project's root. Import sources by a relative path. Types are not checked.",
    "ruby": "Runs in the project's root, with lib on the load path.",
    "php": "Runs in the project's root. Its classes are loaded as composer.json says.",
    "shell": "bash in the project's root, for command lines and every other language.",
}
"""One line for the author of a program, at most 25 words."""


def languages_here(tree: Tree) -> tuple[Run, ...]:
    """The ways to run a program that make sense in this project, the most specific first; a shell is always one."""
    project = Project(tree)
    found: list[Run] = []
    if project.below(".py"):
        found.append("python")
    if project.below(".ts", ".tsx", ".mts"):
        found.append("typescript")
    if project.below("package.json", ".js", ".mjs", ".cjs"):
        found.append("node")
    if project.below(".rb"):
        found.append("ruby")
    if project.below(".php"):
        found.append("php")
    return (*found, "shell")
