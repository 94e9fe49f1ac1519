"""Describes how tests are written in a repository, for their author: the runner, its ids, and their place."""

from collections import Counter
from pathlib import PurePosixPath

from app.core.tree import Tree
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.test_paths import is_test_file

MAX_LISTED = 15
_IDS: dict[FrameworkName, str] = {
    "pytest": "`path/test_x.py::test_name`, or `path/test_x.py::TestClass::test_name`",
    "unittest": "`package.test_x.TestClass.test_name`, as `python -m unittest` takes them",
    "node": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "jest": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "vitest": "`path/x.test.js::title`, inside `describe` `path/x.test.js::suite > title`",
    "mocha": "`path/x.js::suite title`, all titles with spaces between them",
    "go": "`module/package::TestName`, the package by its import path",
    "cargo": "`tests/x.rs::name`; only integration tests, in `tests/`",
}


def test_layout(tree: Tree, suite: SuiteCommand) -> str:
    """A few lines; paths are from the top of the repository."""
    files = sorted(path for path in tree.entries() if is_test_file(path))
    directories = Counter(str(PurePosixPath(path).parent) for path in files)
    lines = [f"The suite is executed with: {suite.command}", f"Ids of tests: {_IDS.get(suite.framework, 'none')}"]
    if suite.directory:
        lines.append(f"The project stands in {suite.directory}/.")
    if files:
        found = ", ".join(f"{directory}/ ({count})" for directory, count in directories.most_common(MAX_LISTED))
        lines += [f"Test files by directory: {found}", f"Some of them: {', '.join(files[:MAX_LISTED])}"]
    else:
        lines.append("There are no test files yet.")
    return "\n".join(lines)
