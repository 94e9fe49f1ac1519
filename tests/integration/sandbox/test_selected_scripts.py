"""Chosen tests of JavaScript projects, in a real sandbox: what honest code and liars get out of it."""

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.selecting import Project

MONEY = {
    "package.json": '{"name": "money", "version": "1.0.0", "type": "module"}\n',
    "money.js": """\
        export function add(a, b) {
          return a - b;
        }

        export function half(a) {
          if (a % 2) throw new RangeError('odd');
          return a / 2;
        }
        """,
    "test/money.test.js": """\
        import test, { describe, it } from 'node:test';
        import assert from 'node:assert';
        import { add, half } from '../money.js';

        test('adds', () => {
          assert.strictEqual(add(1, 2), 3);
        });

        describe('half', () => {
          it('of an even number', async () => {
            assert.equal(half(4), 2);
          });
          it('of an odd number', (t, done) => {
            assert.throws(() => half(3), RangeError);
            done();
          });
        });
        """,
}
IDS = tuple(f"test/money.test.js::{title}" for title in ("adds", "half > of an even number", "half > of an odd number"))
FIXED = {"money.js": MONEY["money.js"].replace("a - b", "a + b")}


async def test_node_reports_each_id_on_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, MONEY)
    base = await project.run(*IDS)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed", "passed"])
    assert "AssertionError" in dict(base.texts)[IDS[0]]
    head = await project.run(*IDS, changes=FIXED, watch={"money.js": {2}})
    assert (head.untrusted, {status for _, status in head.results}) == ("", {"passed"})
    assert (head.execution.exit_code, head.measured) == (0, True)
    assert dict(head.executed)["money.js"] == (1, 2, 5, 6, 7)


LIES = {
    "assertions do nothing": """
        import assert from 'node:assert';
        assert.strictEqual = () => {};
        """,
    "an early exit": "process.exit(0);",
    "an exit in the middle": "export const later = setImmediate(() => process.exit(0));",
    "failures are swallowed": """
        import { AssertionError } from 'node:assert';
        Error.prepareStackTrace = () => '';
        process.removeAllListeners('uncaughtException');
        process.on('uncaughtException', () => {});
        const own = Promise.prototype.then;
        Promise.prototype.then = function (done, failed) {
          return own.call(this, done, failed && (() => done && done()));
        };
        """,
    "messages of its own": """
        import v8 from 'node:v8';
        import fs from 'node:fs';
        const file = process.argv[1];
        let line = 0;
        function tell(type, name, nesting, kind) {
          const details = { duration_ms: 1, ...(kind && { type: kind }) };
          const serializer = new v8.DefaultSerializer();
          serializer.writeHeader();
          serializer.writeRawBytes(Buffer.alloc(4));
          serializer.writeHeader();
          const place = { file, line: ++line, column: 1 };
          serializer.writeValue({ type, data: { name, nesting, ...place, testNumber: 1, details } });
          const message = serializer.releaseBuffer();
          message.writeUInt32BE(message.length - 6, 2);
          fs.writeSync(1, message);
        }
        if (process.env.NODE_TEST_CONTEXT) {
          const text = fs.readFileSync(file, 'utf8');
          const titles = [...text.matchAll(/\\b(?:test|it|describe)\\('([^']*)'/g)].map((found) => found[1]);
          let nesting = 0;
          for (const title of titles) {
            tell('test:start', title, nesting);
            if (title === 'half') nesting = 1;
            else tell('test:pass', title, nesting);
          }
          if (nesting) tell('test:pass', 'half', 0, 'suite');
          process.exit(0);
        }
        """,
    "tests are emptied": """
        import { Module } from 'node:module';
        import { test as runner } from 'node:test';
        import { AsyncResource } from 'node:async_hooks';
        const own = AsyncResource.prototype.runInAsyncScope;
        AsyncResource.prototype.runInAsyncScope = function (run, ...rest) {
          try { return own.call(this, run, ...rest); } catch { return undefined; }
        };
        """,
    "only for a known file": """
        export const old = add;
        const stack = () => new Error().stack;
        """,
    "only where it is asked from": "",
}
PRODUCTS = {
    "only for a known file": ("return a - b;", "return new Error().stack.includes('money.test.js') ? a + b : a - b;"),
    "only where it is asked from": (
        "return a - b;",
        "return process.argv.some((word) => word.includes('money.test')) ? a + b : a - b;",
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_forged_node_result_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    product = MONEY["money.js"].replace(*PRODUCTS.get(lie, ("", ""))) + LIES[lie]
    head = await Project(provider, MONEY).run(*IDS, changes={"money.js": product})
    assert head.untrusted or dict(head.results)[IDS[0]] != "passed", (lie, head)


HONEST = {
    "counter.cjs": "let n = 0; exports.fresh = () => ++n;\n",
    "test/counter.test.cjs": """\
        const { test, describe, before } = require('node:test');
        const assert = require('node:assert/strict');
        const { fresh } = require('../counter.cjs');

        test('the first number', () => { assert.equal(fresh(), 1); });
        test('its own name', (t) => { assert.equal(t.name, 'its own name'); });
        test('with a table', async (t) => {
          for (const n of [1, 2]) await t.test(`row ${n}`, () => assert.ok(n));
        });
        describe('around', () => {
          let value;
          before(() => { value = 3; });
          test('inside', () => { assert.deepEqual([value], [3]); assert.ok(!(value === 4)); });
          test.skip('not now', () => { throw new Error('x'); });
          test('without assertions', () => {});
        });
        """,
}


@pytest.mark.parametrize("seed", range(2))
async def test_honest_tests_of_node_are_believed(provider: BubblewrapProvider, seed: int) -> None:
    names = ("the first number", "with a table", "around > inside", "around > without assertions", "its own name")
    ids = [f"test/counter.test.cjs::{name}" for name in names]
    run = await Project(provider, HONEST).run(*ids, "test/counter.test.cjs::around > not now", seed=seed)
    assert (run.untrusted, [status for _, status in run.results]) == ("", ["passed"] * 5 + ["skipped"])


async def test_a_script_that_cannot_be_loaded_is_an_error_with_its_reason(provider: BubblewrapProvider) -> None:
    run = await Project(provider, MONEY).run(*IDS, changes={"money.js": "export function half( {"})
    assert {status for _, status in run.results} == {"error"}
    assert "SyntaxError" in dict(run.texts)[IDS[0]]
