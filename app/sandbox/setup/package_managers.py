"""The package managers that agent-fix knows; the lists of them elsewhere derive from this table."""

from typing import Final, Literal, NamedTuple

Language = Literal["python", "node", "rust", "go"]


class PackageManager(NamedTuple):
    """One package manager.

    `runs`: `NAME run COMMAND` starts a command in the project's environment. `in_system`: set-up uses it if the
    sandbox's system has it. `has_test_script`: `NAME test` starts the project's test script.
    """

    name: str
    language: Language
    runs: bool = False
    in_system: bool = False
    has_test_script: bool = False


PACKAGE_MANAGERS: Final = (
    PackageManager("uv", "python", runs=True),
    PackageManager("poetry", "python", runs=True),
    PackageManager("pdm", "python", runs=True),
    PackageManager("hatch", "python", runs=True),
    PackageManager("pipenv", "python", runs=True),
    PackageManager("rye", "python", runs=True),
    PackageManager("npm", "node", in_system=True, has_test_script=True),
    PackageManager("yarn", "node", in_system=True, has_test_script=True),
    PackageManager("pnpm", "node", in_system=True, has_test_script=True),
    PackageManager("bun", "node"),
    PackageManager("cargo", "rust", in_system=True),
    PackageManager("go", "go", in_system=True),
)
SYSTEM_TOOLS: Final = ("node", *(each.name for each in PACKAGE_MANAGERS if each.in_system))
"""Programs that set-ups use if a machine or an image has them."""
NODE_MANAGERS: Final = frozenset(each.name for each in PACKAGE_MANAGERS if each.language == "node")
RUNNING: Final = "|".join(each.name for each in PACKAGE_MANAGERS if each.runs)
"""A regular expression: managers with `NAME run COMMAND`."""
TESTING: Final = "|".join(each.name for each in PACKAGE_MANAGERS if each.has_test_script)
"""A regular expression: managers with `NAME test`."""
