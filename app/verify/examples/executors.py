"""The executors of examples: one entry for each way to run a program."""

from collections.abc import Mapping
from typing import Final

from app.core.examples import Run
from app.core.patch import Tree
from app.verify.examples import command_lines, compiled, hosts, scripts
from app.verify.examples.launch import Executor, Project

EXECUTORS: Final[Mapping[Run, Executor]] = {
    "python": scripts.python,
    "node": scripts.node,
    "typescript": scripts.typescript,
    "go": compiled.go,
    "rust": compiled.rust,
    "java": compiled.java,
    "ruby": scripts.ruby,
    "php": scripts.php,
    "shell": command_lines.shell,
    "vitest": hosts.vitest,
    "jest": hosts.jest,
}
_HOSTED = (
    "The body of a test, for JSX, a DOM or the bundler; prints by console.log. Relative imports start at the root."
)
HELP: Final[Mapping[Run, str]] = {
    "python": "Runs in the project's root. Imports search the standard library, the project, then installed packages.",
    "node": "A file in the project's root. Import the project by a relative path or its package's name.",
    "typescript": "A file in the project's root. Import sources by a relative path. Types are not checked.",
    "go": "`package main` in the module. For unexported names: `package x // its/directory`, and `func Example()`.",
    "rust": "An example of the crate, with `fn main`. `// features: a, b` in the first line enables features.",
    "java": "A class with a main method. Declare the project's package to reach package-private names.",
    "ruby": "Runs in the project's root, with lib on the load path.",
    "php": "Runs in the project's root. Its classes are loaded as composer.json says.",
    "shell": "bash in the project's root, for command lines and other languages. The project's commands are found.",
    "vitest": _HOSTED,
    "jest": _HOSTED,
}
"""One line for the author of a program, at most 25 words."""


_SOURCES: Final[Mapping[Run, tuple[str, ...]]] = {
    "python": (".py",),
    "typescript": (".ts", ".tsx", ".mts"),
    "node": (".js", ".mjs", ".cjs", ".jsx"),
    "go": (".go",),
    "rust": (".rs",),
    "java": (".java",),
    "ruby": (".rb",),
    "php": (".php",),
}
_HOSTS: Final[tuple[Run, ...]] = ("vitest", "jest")
_SHARE = 0.05
"""Languages with fewer of the files are of scripts beside the project."""


def languages_here(tree: Tree) -> tuple[Run, ...]:
    """The ways to run a program that make sense in this project, the best first; a shell is always one."""
    project = Project(tree)
    size = {run: sum(path.endswith(suffixes) for path in project.files) for run, suffixes in _SOURCES.items()}
    least = max(1.0, _SHARE * sum(size.values()))
    found = sorted((run for run in size if size[run] >= least), key=lambda run: -size[run])
    return (*found, *(host for host in _HOSTS if project.depends_on(host)), "shell")
