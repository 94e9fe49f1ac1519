"""The table of package managers, and what derives from it."""

import pytest

from app.sandbox.setup.package_tools import NODE_TOOLS, PACKAGE_TOOLS, RUN_COMMANDS_RE, SYSTEM_TOOLS, TEST_SCRIPT_RE
from app.verify.recognise import _LAUNCHER_RE, _NODE_SCRIPT


def test_each_manager_stands_in_the_table_once() -> None:
    names = [each.name for each in PACKAGE_TOOLS]
    assert len(names) == len(set(names))


def test_set_up_looks_for_these_programs() -> None:
    assert SYSTEM_TOOLS == ("node", "npm", "yarn", "pnpm", "cargo", "go", "mvn")
    assert frozenset({"npm", "yarn", "pnpm", "bun"}) == NODE_TOOLS


@pytest.mark.parametrize("name", RUN_COMMANDS_RE.split("|"))
def test_a_command_behind_a_managers_run_is_recognised(name: str) -> None:
    found = _LAUNCHER_RE.match(f"{name} run python -m pytest")
    assert found is not None
    assert found[0] == f"{name} run python -m "


@pytest.mark.parametrize("name", TEST_SCRIPT_RE.split("|"))
def test_a_managers_test_script_is_recognised(name: str) -> None:
    assert _NODE_SCRIPT.match(f"{name} test")
    assert _NODE_SCRIPT.match(f"{name} run test")
