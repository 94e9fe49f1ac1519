"""Examples whose host is a test runner, in TypeScript with JSX and a DOM."""

import json

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example
from tests.support.sandbox_projects import missing_npm_package, npm_setup

SUM = "export const half = (a{number}) => Math.floor(a / 2);\n"
VITEST = {
    "package.json": json.dumps(
        {"name": "calc", "type": "module", "devDependencies": {"vitest": "2.1.9", "happy-dom": "15.11.7"}}
    ),
    "vitest.config.ts": "import { defineConfig } from 'vitest/config'\n"
    "export default defineConfig({ resolve: { alias: { '@': new URL('./src', import.meta.url).pathname } }, "
    "test: { include: ['src/**/*.spec.ts'], coverage: { enabled: true }, typecheck: { enabled: true }, "
    "setupFiles: ['watch.ts'] } })\n",
    "watch.ts": "import { afterEach, beforeEach, expect, vi } from 'vitest'\n"
    "beforeEach(() => void vi.spyOn(console, 'log'))\n"
    "afterEach(() => expect(vi.isMockFunction(console.log) && vi.mocked(console.log).mock.calls.length).toBe(false))\n",
    "src/deep/sum.ts": SUM.format(number=": number"),
    "src/deep/sum.spec.ts": "import { test } from 'vitest'\ntest('x', () => { throw Error('a test was run') })\n",
}
PROGRAM = """
    // @vitest-environment happy-dom
    import { half } from '@/deep/sum'
    import * as again from './src/deep/sum'

    type Found = { value: number }
    const found: Found = { value: half(3) }
    document.body.innerHTML = `<p>${found.value}</p>`
    console.log(document.querySelector('p')?.textContent, again.half === half)
    console.log(await Promise.resolve({ a: [1] }))
    LAST
"""


@pytest.mark.skipif(bool(missing_npm_package("vitest")), reason=missing_npm_package("vitest"))
async def test_vitest_as_a_host(provider: BubblewrapProvider) -> None:
    project = ExampleProject(provider, VITEST, setup=await npm_setup(VITEST["package.json"]))
    shows = example("vitest", PROGRAM.replace("LAST", ""), "1.5 true\n{ a: [ 1 ] }\n")
    keeps = example("vitest", "process.stdout.write('kept')\n", "kept")
    change = {"src/deep/sum.ts": VITEST["src/deep/sum.ts"].replace("Math.floor", "")}
    await project.story(shows, keeps, dict(change))
    missing = example("vitest", "import { third } from './src/deep/third'\nconsole.log(third(3))\n")
    fails = example("vitest", PROGRAM.replace("LAST", "half.third.fourth"))
    typed = example("typescript", "import { half } from './src/deep/sum'\nconsole.log(half(3) as number)\n", "1\n")
    names, ended, plain = await project.run(missing, fails, typed)
    assert all("third" in run.stderr and run.exit_code and not run.problem for run in names), names
    assert all("TypeError" in run.stderr and run.exit_code == 1 and not run.problem for run in ended), ended
    assert all(run.printed(typed) for run in plain), plain
    ((broken, _),) = await project.run(keeps, change={"vitest.config.ts": "throw Error('settings')"})
    assert broken.problem.startswith("The test runner did not start: ")


JEST = {
    "package.json": json.dumps(
        {"name": "calc", "scripts": {"test": "jest --config jest.own.json"}, "devDependencies": {"jest": "29.7.0"}}
    ),
    "jest.own.json": '{"testMatch": ["**/checks/*.js"], "resetModules": true}',
    "checks/sum.js": "test('x', () => { throw Error('a test was run') })\n",
    "lib/sum.js": "exports.half = (a) => Math.floor(a / 2);\n",
}


@pytest.mark.skipif(bool(missing_npm_package("jest")), reason=missing_npm_package("jest"))
async def test_jest_as_a_host(provider: BubblewrapProvider) -> None:
    files = {
        **JEST,
        "jest.own.json": '{"testMatch": ["**/checks/*.test.js"]}',
        "checks/sum.test.js": JEST["checks/sum.js"],
    }
    project = ExampleProject(provider, files, setup=await npm_setup(files["package.json"]))
    program = "const { half } = require('./lib/sum');\njest.useFakeTimers();\nconsole.log(half(3), { a: [1] });\n"
    shows = example("jest", program, "1.5 { a: [ 1 ] }\n")
    keeps = example("jest", "process.stdout.write('kept');\nconsole.error('not');\n", "kept")
    await project.story(shows, keeps, {"lib/sum.js": JEST["lib/sum.js"].replace("Math.floor", "")})
    missing = example("jest", "console.log(require('./lib/third'))\n")
    fails = example("jest", "const { third } = require('./lib/sum');\nthird(3);\n")
    names, ended = await project.run(missing, fails)
    assert all("third" in run.stderr and run.exit_code and not run.problem for run in names), names
    assert all("TypeError" in run.stderr and run.exit_code == 1 and not run.problem for run in ended), ended
