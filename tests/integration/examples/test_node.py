"""Examples in JavaScript and TypeScript."""

import shutil

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")

COMMON = {"package.json": '{"name": "half", "main": "lib/half"}', "lib/half.js": "exports.half = (a) => a >> 1;\n"}
MODULES = {
    "package.json": '{"name": "half", "type": "module", "exports": "./half.js"}',
    "half.js": "export const half = (a) => a >> 1;\n",
}
INNOCENT = {
    "vitest.config.ts": "throw 1",
    ".npmrc": "node-options=--nonsense\n",
    "node_modules/half/index.js": "throw 1",
}


@pytest.mark.parametrize(
    ("files", "program"),
    [
        (COMMON, "const { half } = require('half');\n"),
        (COMMON, "const { half } = require('./lib/half');\n"),
        (COMMON, "import { half } from 'half';\n"),
        (COMMON, "const { half } = await import('half');\n"),
        (COMMON, "const { half } = require('half');\nasync function wait() {\n  await 1;\n}\nwait();\n"),
        (MODULES, "import { half } from 'half';\n"),
        (MODULES, "import { half } from './half.js';\n"),
        (MODULES, "const { half } = await import('half');\n"),
        (
            MODULES,
            "require('node:path');\nimport('half').then(({ half }) => console.log(half(3)));\n",
        ),
    ],
)
async def test_node_shows_a_fix_and_keeps_the_rest(
    provider: BubblewrapProvider, files: dict[str, str], program: str
) -> None:
    path = next(path for path in files if path.endswith("half.js"))
    change = {path: files[path].replace(">> 1", "/ 2")}
    last = "" if "then(" in program else "console.log(half(3));\n"
    shows = example("node", program + last, "1.5\n")
    keeps = example("node", "console.log(process.argv.length, new Date(0).getUTCHours())", "2 0\n")
    await ExampleProject(provider, {**INNOCENT, **files}).story(shows, keeps, dict(change))
