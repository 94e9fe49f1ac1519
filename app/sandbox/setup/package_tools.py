"""The package managers that agent-fix knows. Lists of program names derive from this table; manifests do not."""

from typing import Final, Literal, NamedTuple

Language = Literal["python", "node", "rust", "go", "java"]


class PackageTool(NamedTuple):
    """One package manager.

    `runs`: `NAME run COMMAND` starts a command in the project's environment. `in_system`: set-up uses it if the
    sandbox's system has it. `beside_node`: a sandbox has it only below /usr or next to node's own programs.
    `has_test_script`: `NAME test` starts the project's test script.
    """

    name: str
    language: Language
    runs: bool = False
    in_system: bool = False
    beside_node: bool = False
    has_test_script: bool = False


PACKAGE_TOOLS: Final = (
    PackageTool("uv", "python", runs=True),
    PackageTool("poetry", "python", runs=True),
    PackageTool("pdm", "python", runs=True),
    PackageTool("hatch", "python", runs=True),
    PackageTool("pipenv", "python", runs=True),
    PackageTool("rye", "python", runs=True),
    PackageTool("npm", "node", in_system=True, has_test_script=True),
    PackageTool("yarn", "node", in_system=True, beside_node=True, has_test_script=True),
    PackageTool("pnpm", "node", in_system=True, beside_node=True, has_test_script=True),
    PackageTool("bun", "node"),
    PackageTool("cargo", "rust", in_system=True),
    PackageTool("go", "go", in_system=True),
    PackageTool("mvn", "java", in_system=True),
)
SYSTEM_TOOLS: Final = ("node", *(each.name for each in PACKAGE_TOOLS if each.in_system))
"""Programs that set-ups use if a machine or an image has them."""
BESIDE_NODE: Final = frozenset(each.name for each in PACKAGE_TOOLS if each.beside_node)
PYTHON_TOOLS: Final = frozenset(each.name for each in PACKAGE_TOOLS if each.language == "python")
NODE_TOOLS: Final = frozenset(each.name for each in PACKAGE_TOOLS if each.language == "node")
RUN_COMMANDS_RE: Final = "|".join(each.name for each in PACKAGE_TOOLS if each.runs)
"""A regular expression: managers with `NAME run COMMAND`."""
TEST_SCRIPT_RE: Final = "|".join(each.name for each in PACKAGE_TOOLS if each.has_test_script)
"""A regular expression: managers with `NAME test`."""
