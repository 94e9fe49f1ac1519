"""Chosen tests of the frameworks that have to be installed: vitest, jest, mocha, each really run."""

import json
import textwrap
from collections.abc import Mapping

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandbox_projects import npm_setup
from tests.support.sandboxes import provider
from tests.support.selecting import Project

__all__ = ["provider"]

PACKAGE = """{
  "name": "money", "version": "1.0.0",
  "devDependencies": {"vitest": "^4", "jest": "^30", "mocha": "^11", "chai": "^6"}
}
"""
PRODUCT = """\
    function add(a, b) {
      return a - b;
    }

    function half(a) {
      if (a % 2) throw new RangeError('odd');
      return { value: a / 2 };
    }
    """
TESTS = """\
    describe('money', () => {
      test('adds', () => {
        expect(add(1, 2)).toBe(3);
      });
      test('halves', async () => {
        expect(half(4)).toEqual({ value: 2 });
        await expect(Promise.resolve(half(2).value)).resolves.toBe(1);
      });
      test.skip('not now', () => {});
    });

    test('odd numbers', () => {
      expect(() => half(3)).toThrow(RangeError);
      expect(half(2)).not.toBeNull();
    });
    """
NEW = f"export {{ add, half }};\n{textwrap.dedent(PRODUCT)}"
OLD = f"{textwrap.dedent(PRODUCT)}\nmodule.exports = {{ add, half }};\n"
CHAI = """\
    const { add, half } = require('../money.js');
    let expect;
    before(async () => { ({ expect } = await import('chai')); });

    describe('money', () => {
      it('adds', () => { expect(add(1, 2)).to.equal(3); });
      it('halves', (done) => { expect(half(4)).to.deep.equal({ value: 2 }); done(); });
      it.skip('not now', () => {});
    });
    it('odd numbers', function () {
      expect(() => half(3)).to.throw(RangeError);
      expect(half(2)).to.be.not.null;
    });
    """
CASES: Mapping[str, tuple[str, dict[str, str]]] = {
    "vitest": (
        "npx vitest run",
        {
            "money.mjs": NEW,
            "test/money.test.ts": "import { describe, expect, test } from 'vitest';\n"
            "import { add, half } from '../money.mjs';\n\nconst typed: number = 1;\n" + textwrap.dedent(TESTS),
        },
    ),
    "jest": (
        "npx jest",
        {
            "money.js": OLD,
            "test/money.test.js": "const { add, half } = require('../money.js');\n\n" + textwrap.dedent(TESTS),
        },
    ),
    "mocha": ("npx mocha", {"money.js": OLD, "test/money.test.js": CHAI}),
}
LIES = {
    "vitest": """
        import { expect } from 'vitest';
        const pass = () => ({ pass: true, message: () => '' });
        expect.extend({ toBe: pass, toEqual: pass });
        """,
    "jest": """
        const all = global[Symbol.for('$$jest-matchers-object')];
        const pass = () => ({ pass: true, message: () => '' });
        for (const name of ['toBe', 'toEqual', 'toThrow']) all.matchers[name] = pass;
        """,
    "mocha": """
        const { Runnable } = require('mocha');
        Runnable.prototype.run = function (done) { done(); };
        """,
}


@pytest.mark.timeout(1200)  # the first of them installs all three
@pytest.mark.parametrize("framework", CASES)
async def test_each_id_is_reported_on_base_and_head(provider: BubblewrapProvider, framework: str) -> None:
    command, files = CASES[framework]
    setup = await npm_setup(PACKAGE)
    project = Project(provider, {"package.json": PACKAGE, **files}, test=command, setup=setup)
    assert project.suite.framework == framework
    test = next(path for path in files if path.startswith("test/"))
    source = next(path for path in files if not path.startswith("test/"))
    joined = " " if framework == "mocha" else " > "
    ids = [f"{test}::money{joined}{title}" for title in ("adds", "halves", "not now")] + [f"{test}::odd numbers"]
    base = await project.run(*ids)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed", "skipped", "passed"])
    assert dict(base.texts)[ids[0]]
    fixed = {source: files[source].replace("a - b", "a + b")}
    head = await project.run(*ids, changes=fixed)
    assert (head.untrusted, [status for _, status in head.results]) == ("", ["passed", "passed", "skipped", "passed"])
    lies = {source: files[source] + textwrap.dedent(LIES[framework])}
    lied = await project.run(*ids, changes=lies)
    assert lied.untrusted or dict(lied.results)[ids[0]] != "passed", lied


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", CASES)
async def test_too_little_coverage_and_a_script_after_the_tests_are_no_failure_of_chosen_tests(
    provider: BubblewrapProvider, framework: str
) -> None:
    command, files = CASES[framework]
    scripts = {"test": command.removeprefix("npx "), "posttest": "exit 3"}
    limits = {"collectCoverage": True, "coverageThreshold": {"global": {"lines": 100}}}
    settings = {"scripts": scripts, **({"jest": limits} if framework == "jest" else {})}
    files = {**files, "package.json": json.dumps({**json.loads(PACKAGE), **settings})}
    project = Project(provider, files, setup=await npm_setup(PACKAGE))
    test = next(path for path in files if path.startswith("test/"))
    source = next(path for path, text in files.items() if "a - b" in text)
    name = f"{test}::money{' ' if framework == 'mocha' else ' > '}adds"
    head = await project.run(name, changes={source: files[source].replace("a - b", "a + b")})
    assert (head.untrusted, head.execution.exit_code, head.unchecked) == ("", 0, ())


TDD = "suite('money', () => {\n  test('adds', () => { require('assert').equal(1 + 2, 3); });\n});\n"
SETTINGS: Mapping[str, tuple[str, dict[str, str]]] = {
    "vitest": (
        "npx vitest run",
        {
            "vitest.config.mjs": "export default { test: { include: ['**/*.unit.test.ts'] } };\n",
            "a.unit.test.ts": "import { expect, test } from 'vitest';\n\n"
            "test('adds', () => {\n  expect(1 + 2).toBe(3);\n});\n",
        },
    ),
    "jest": (
        "npx jest --injectGlobals=false",
        {
            "a.test.js": "const { expect, test } = require('@jest/globals');\n\n"
            "test('adds', () => {\n  expect(1 + 2).toBe(3);\n});\n"
        },
    ),
    "mocha": ("npx mocha --ui tdd", {"test/a.test.js": TDD}),
}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", SETTINGS)
async def test_copies_keep_to_the_settings_of_the_framework(provider: BubblewrapProvider, framework: str) -> None:
    command, files = SETTINGS[framework]
    project = Project(provider, {"package.json": PACKAGE, **files}, test=command, setup=await npm_setup(PACKAGE))
    test = f"{next(path for path in files if 'config' not in path)}::{'money ' if framework == 'mocha' else ''}adds"
    found = await project.run(test)
    assert (found.untrusted, found.results, found.unchecked) == ("", ((test, "passed"),), ())
