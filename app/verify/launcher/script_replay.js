'use strict';
// Runs inside the sandbox with `node -e`: calls the functions of tests in a process that has no test framework.
// `job` is defined before: `files` (`path`, `text`, `ids`), `directory`, `shifted`, `seconds`, `pause`. Messages are
// JSON: ["result", id, phase, kind, text], where an empty kind means that the test passed; ["odd", …]; ["end"].

const fs = require('node:fs');
const { createRequire } = require('node:module');
const { performance } = globalThis;
const root = process.cwd();
const later = setTimeout;

const EQUAL = new Set(['deepStrictEqual', 'deepEqual', 'strictEqual', 'equal']);
const MAX_ROUNDS = 600;
const MAX_KEPT = 300;
const odd = new Map();
const kept = [];
let current = '';
let now = [];

if (job.shifted) {
  process.argv.push('--verbose');
  const real = Date.now;
  Date.now = () => real() + 3300 * 86400e3;
  const Then = Date;
  globalThis.Date = new Proxy(Then, {
    construct: (kind, given, made) => Reflect.construct(kind, given.length ? given : [Then.now()], made),
  });
  process.chdir('/');
}

function isData(value) {
  if (value === null || ['string', 'number', 'boolean', 'undefined'].includes(typeof value)) return true;
  if (Array.isArray(value)) return value.every(isData);
  if (typeof value !== 'object' || Object.getPrototypeOf(value) !== Object.prototype) return false;
  return Reflect.ownKeys(value).every((key) => {
    const one = Object.getOwnPropertyDescriptor(value, key);
    return 'value' in one && isData(one.value);
  });
}

function note(what) {
  odd.set(`${current} ${what}`, [current, what]);
}

function compared(assert, name) {
  return (left, right, ...rest) => {
    assert[name](left, right, ...rest);
    assert[name](left, right, ...rest); // what a getter gives the second time counts as well
    if (isData(right) && typeof right === 'object' && right !== null) {
      if (!isData(left)) note('property that is no data');
      try {
        assert.deepStrictEqual(JSON.parse(JSON.stringify(left)), JSON.parse(JSON.stringify(right)));
      } catch {
        note('toJSON');
      }
      now.push([assert, name, left, right]);
    }
  };
}

function standIns(real) {
  const tests = [];
  const titles = [];
  const test = (title, ...given) => {
    tests.push([[...titles, title].join(' > '), given.find((one) => typeof one === 'function')]);
  };
  const describe = (title, ...given) => {
    titles.push(title);
    given.find((one) => typeof one === 'function')();
    titles.pop();
  };
  Object.assign(test, { test, it: test, describe, suite: describe, default: test });
  const asserts = new Map();
  const asserting = (assert) => {
    if (!asserts.has(assert)) {
      const get = (_, name) => {
        if (name === 'strict') return asserting(assert.strict);
        return EQUAL.has(name) ? compared(assert, name) : assert[name];
      };
      asserts.set(assert, new Proxy(assert, { get }));
    }
    return asserts.get(assert);
  };
  const find = (name) => {
    if (name === 'node:test') return test;
    return /^(?:node:)?assert(?:\/strict)?$/.test(name) ? asserting(real(name)) : real(name);
  };
  return [Object.assign(find, real), tests];
}

function call(body) {
  now = [];
  try {
    const result = body();
    if (result && typeof result.then === 'function') {
      result.then(() => {}, () => {});
      return null;
    }
  } catch (error) {
    return [String((error && error.name) || 'thrown'), String((error && error.message) || error).slice(0, 400)];
  }
  if (kept.length < MAX_KEPT) kept.push(...now.map((one) => [current, ...one]));
  return ['', ''];
}

const all = [];
const results = [];
for (const file of job.files) {
  const [find, tests] = standIns(createRequire(`${root}/${file.path}`));
  try {
    new Function('require', 'module', 'exports', file.text)(find, { exports: {} }, {});
  } catch (error) {
    results.push(...file.ids.map((id) => ['result', id, 'loaded', error.name, error.message]));
  }
  for (const [title, body] of tests) {
    const id = `${file.path}::${title}`;
    if (file.ids.includes(id) && body) all.push([id, body]);
  }
}

function phase(name) {
  for (const [id, body] of all) {
    current = id;
    const ended = call(body);
    if (ended) results.push(['result', id, name, ...ended]);
  }
}

function many() {
  const failed = new Map();
  const end = performance.now() + job.seconds * 1000;
  for (let round = 1; round <= MAX_ROUNDS && (round < 3 || performance.now() < end); round += 1) {
    for (const [id, body] of all) {
      current = id;
      const ended = call(body);
      if (ended && ended[0] && !failed.has(id)) failed.set(id, [ended[0], `in call ${round + 1}: ${ended[1]}`]);
    }
  }
  for (const [id] of all) results.push(['result', id, 'many', ...(failed.get(id) || ['', ''])]);
  for (const [id, assert, name, left, right] of kept) {
    try {
      assert[name](left, right);
    } catch (error) {
      results.push(['result', id, 'kept', error.name, 'an earlier result became another']);
    }
  }
}

function finish(route) {
  const { createHmac } = require('node:crypto');
  for (const [id, what] of odd.values()) results.push(['odd', id, 'result', [[what, '', 0]]]);
  [...results, ['end']].forEach((parts, number) => {
    const text = JSON.stringify(parts).replace(/[\u007f-\uffff]/g, (letter) =>
      `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
    const mac = createHmac('sha256', Buffer.from(route.key, 'hex')).update(`${number}:${text}`).digest('hex');
    fs.writeSync(route.fd, `${number} ${mac} ${text}\n`);
  });
  process.reallyExit(0);
}

phase(job.shifted ? 'shifted' : 'first');
phase('plain');
if (!job.shifted) many();
const route = JSON.parse(fs.readFileSync(0, 'utf8').split('\n')[0]);
later(() => {
  phase('task');
  if (!job.shifted) finish(route);
  else later(() => {
    phase('pause');
    finish(route);
  }, job.pause * 1000);
}, 5);
