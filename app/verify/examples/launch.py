"""What an executor of examples says: the files of one program, how it is built, and how it is started."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from app.core.examples import Example
from app.core.patch import Tree
from app.sandbox.setup.manifests import ManifestFiles, table


@dataclass(frozen=True, slots=True)
class Launch:
    """How one program is run. `command` and `build` are bash, in the project's root; `$own` is the program's own
    directory, which is outside the project and gone after the run.

    `files` lie in the project for the time of the run, `own` in the program's own directory; each of `links` is a link
    in the root to a file of that name in `$own/program`. `needs` are programs without which nothing can run.
    """

    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    build: str = ""
    own_failure: re.Pattern[str] | None = None
    """In the output of a failed `build`: the program itself is wrong, whatever the project has."""
    not_here: re.Pattern[str] | None = None
    """In the output of a failed `build`: something is not installed."""
    host_seconds: float = 0.0
    """More time, for the start of a test runner."""
    host: bool = False
    """Prints to `$own/printed` instead of the standard output, and has a file `$own/started` once it runs."""


_DEPENDENCIES = ("dependencies", "devDependencies")
MAX_MANIFESTS = 100


class Project:
    """What executors need to know of the files of a project."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.files = ManifestFiles(tree)

    @cached_property
    def package(self) -> dict[str, Any]:
        """The package.json at the top."""
        return self.files.json("package.json")

    def depends_on(self, package: str) -> bool:
        """Whether a package.json names a package of npm's."""
        manifests = (self.files.json(path) for path in self.files.named(("package.json",))[:MAX_MANIFESTS])
        return any(package in table(manifest, group) for manifest in manifests for group in _DEPENDENCIES)

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """The texts of several files, by path."""
        return {path: content.decode("utf-8", "replace") for path, content in self.tree.read_many(paths).items()}

    def has(self, path: str) -> bool:
        return path in self.files

    def below(self, *suffixes: str) -> bool:
        return any(path.endswith(suffixes) for path in self.files)


_JSX = re.compile(r"(?:\breturn|=>|[(=?:,]|&&)\s*<(?:[A-Za-z][\w.]*[\s/>]|>)")


def has_jsx(program: str) -> bool:
    return _JSX.search(program) is not None


def inside(name: str) -> str:
    """The text of a file of this package that is used inside."""
    return Path(__file__).with_name(name).read_text("utf-8")


Executor = Callable[[Project, Example, str], Launch]
"""How to run an example of this project if its file has this stem. Raises ValueError if it cannot, with a sentence."""
