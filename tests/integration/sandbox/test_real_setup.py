"""Set-up for real: this machine's own index, through proxy and forwarder, under bubblewrap; then work offline."""

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.errors import SetupError
from app.sandbox.base import CompletedCommand, Sandbox, SandboxSpec, SetupPlan
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.setup.package_clients import asked_once
from app.sandbox.setup.plan import plan_setup
from tests.support.memory_tree import MemoryTree

PYTHON = Path(sys.base_prefix).resolve() / "bin" / "python3"
CLIENTS = asked_once(dict(os.environ), PYTHON)

PYTHON_PROJECT = {
    "pyproject.toml": """
[build-system]
requires = ["flit_core>=3.4"]
build-backend = "flit_core.buildapi"
[project]
name = "greeter"
version = "1.2.3"
description = "A greeter"
dependencies = ["iniconfig"]
[project.optional-dependencies]
test = ["six"]
""",
    "src/greeter/__init__.py": "import iniconfig\n\ndef greet():\n    return 'hello'\n",
    "tests/test_greeter.py": """
import importlib.metadata, unittest
import greeter, six

class Greets(unittest.TestCase):
    def test_greets(self):
        self.assertEqual(greeter.greet(), "hello")
        self.assertTrue(greeter.__file__.startswith("/workspace/src/"))
        self.assertEqual(importlib.metadata.version("greeter"), "1.2.3")
""",
}
NODE_PROJECT = {
    "package.json": '{"name": "odd", "version": "1.0.0", "dependencies": {"is-number": "7.0.0"}}',
    "test.js": "require('node:assert').ok(require('is-number')(7)); console.log('a number')",
}


class SetupSandboxes:
    """Sandboxes over projects in memory, with one cache."""

    def __init__(self, directory: Path) -> None:
        self.output = bytearray()
        self._provider = BubblewrapProvider(
            directory / "jobs", caches=directory / "caches", environment=dict(os.environ)
        )

    @asynccontextmanager
    async def open(self, key: str, files: dict[str, str], setup: SetupPlan) -> AsyncIterator[Sandbox]:
        self.output.clear()
        spec = SandboxSpec(key, filler(files), setup)
        sandbox = await self._provider.open(spec, on_output=self.output.extend)
        try:
            yield sandbox
        finally:
            await sandbox.destroy()


def filler(files: dict[str, str]) -> Callable[[Path], None]:
    def fill(directory: Path) -> None:
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)

    return fill


async def plan(files: dict[str, str], *, commands: list[str] | None = None) -> SetupPlan:
    tree = MemoryTree({path: text.encode() for path, text in files.items()})
    return await plan_setup(tree, commands=commands, extra_hosts=(), clients=CLIENTS, python=PYTHON)


def text(completed: CompletedCommand) -> str:
    return completed.output.decode(errors="replace")


@pytest.fixture
def services(tmp_path: Path) -> SetupSandboxes:
    return SetupSandboxes(tmp_path)


async def test_a_python_project_is_installed_and_works_offline_in_any_fresh_tree(services: SetupSandboxes) -> None:
    setup = await plan(PYTHON_PROJECT)
    async with services.open("first", PYTHON_PROJECT, setup) as sandbox:
        tested = await sandbox.exec(["python", "-m", "unittest", "discover", "-s", "tests"])
        assert tested.ok, text(tested)
        offline = await sandbox.exec(["pip", "install", "attrs"])
        assert not offline.ok
    async with services.open("second", PYTHON_PROJECT, await plan(PYTHON_PROJECT)) as sandbox:
        assert services.output == b"", "the second job on a commit finds the result of the first"
    edited = {**PYTHON_PROJECT, "src/greeter/__init__.py": "def greet():\n    return 'goodbye'\n"}
    async with services.open("third", edited, await plan(edited)) as sandbox:
        assert services.output == b"", "its build runs no code of the project, so trees with equal manifests share it"
        tested = await sandbox.exec(["python", "-m", "unittest", "discover", "-s", "tests"])
        assert "'goodbye' != 'hello'" in text(tested)
    own_code = {**edited, "setup.py": "from setuptools import setup\n\nsetup()\n"}
    async with services.open("fourth", own_code, await plan(own_code)):
        assert services.output != b"", "its set-up runs the project's own code, so another tree has another result"


async def test_a_node_project_is_installed_and_works_offline(services: SetupSandboxes) -> None:
    async with services.open("node", NODE_PROJECT, await plan(NODE_PROJECT)) as sandbox:
        tested = await sandbox.exec(["node", "test.js"])
        assert tested.ok, text(tested)
        assert text(tested) == "a number\n"
        listed = await sandbox.exec(["ls", "-A"])
        assert text(listed).split() == ["node_modules", "package.json", "test.js"]


async def test_development_dependencies_that_need_a_git_repository_are_left_out(services: SetupSandboxes) -> None:
    wanted = {"evalmd": "0.0.19", "is-number": "7.0.0"}  # evalmd's own dependency on fs-extra is one on GitHub
    project = {"package.json": json.dumps({"name": "marked", "devDependencies": wanted})}
    setup = await plan(project)
    async with services.open("marked", project, setup) as sandbox:
        listed = await sandbox.exec(["ls", "node_modules"], timeout=20)
    assert text(listed).split() == ["is-number"]


VITEST_PROJECT = {
    "package.json": json.dumps(
        {
            "name": "typed",
            "private": True,
            "type": "module",
            "scripts": {"test": "vitest run --typecheck"},
            "devDependencies": {"vitest": "2.1.9", "typescript": "5.6.3"},
        }
    ),
    "tsconfig.json": '{"compilerOptions": {"module": "esnext", "moduleResolution": "bundler", "skipLibCheck": true}}',
    "src/sum.ts": "export const sum = (a: number, b: number): number => a + b\n",
    "test/sum.test.ts": (
        "import { expect, test } from 'vitest'\nimport { sum } from '../src/sum'\n"
        "test('adds', () => { expect(sum(1, 2)).toBe(3) })\n"
    ),
    "test/sum.test-d.ts": (
        "import { expectTypeOf, test } from 'vitest'\nimport { sum } from '../src/sum'\n"
        "test('a number', () => { expectTypeOf(sum(1, 2)).toBeNumber() })\n"
    ),
}


async def test_vitest_checks_types_and_keeps_caches_in_node_modules(services: SetupSandboxes) -> None:
    """It writes `tsconfig.vitest-temp.json` and `node_modules/.vite`, whatever its configuration says."""
    setup = await plan(VITEST_PROJECT)
    async with services.open("vitest", VITEST_PROJECT, setup) as sandbox:
        for _ in range(2):
            tested = await sandbox.exec(["npm", "test"], timeout=200)
            assert tested.ok, text(tested)
            assert "2 passed" in text(tested), text(tested)
            assert "no errors" in text(tested), text(tested)
        assert ".vite" in text(await sandbox.exec(["ls", "-A", "node_modules"])), "otherwise this shows nothing"
    async with services.open("another", VITEST_PROJECT, setup) as sandbox:
        assert ".vite" not in text(await sandbox.exec(["ls", "-A", "node_modules"]))


async def test_a_configured_command_finds_a_virtual_environment(services: SetupSandboxes) -> None:
    files = {"a.py": "import iniconfig; print('there')", "email.py": "raise SystemExit('the project was asked')"}
    async with services.open("own", files, await plan(files, commands=["pip install iniconfig"])) as sandbox:
        assert text(await sandbox.exec(["python", "a.py"])) == "there\n"


async def test_a_host_outside_the_list_is_refused_and_named(services: SetupSandboxes) -> None:
    fetch = "python3 -c \"import urllib.request as u; u.urlopen('https://elsewhere.example.com/')\""
    with pytest.raises(SetupError) as caught:
        async with services.open("refused", {"a.txt": ""}, await plan({"a.txt": ""}, commands=[fetch])):
            pytest.fail("the set-up should not have succeeded")
    assert "refused: elsewhere.example.com (allow with `network:` in .github/agent-fix.yml)" in caught.value.message


async def test_without_the_proxy_there_is_no_way_out(services: SetupSandboxes) -> None:
    connect = "import socket; socket.create_connection(('192.0.2.1', 443), 5)"
    past = f'env -u HTTPS_PROXY -u https_proxy python3 -c "{connect}"'
    with pytest.raises(SetupError, match="Network is unreachable"):
        async with services.open("past", {"a.txt": ""}, await plan({"a.txt": ""}, commands=[past])):
            pytest.fail("the set-up should not have succeeded")
