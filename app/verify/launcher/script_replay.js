'use strict';
// Runs inside the sandbox with `node -e`: calls the functions of tests in a process that has no test framework.
// It is the body of a function, as the code under test can reach what a script declares. `job` is defined before:
// `files` (`path`, `text`, `ids`), `directory`, `shifted`, `seconds`, `pause`. Messages are JSON:
// ["result", id, phase, kind, text], where an empty kind means that the test passed; ["odd", …]; ["end"].

const fs = require('node:fs');
const path = require('node:path');
const { createRequire } = require('node:module');
const { performance } = globalThis;
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const program = process._eval;
const post = parentPort && parentPort.postMessage.bind(parentPort);
const token = isMainThread ? require('node:crypto').randomBytes(16).toString('hex') : workerData.token;
if (!isMainThread) delete workerData.token;
const root = process.cwd();
const later = setTimeout;
const forget = clearTimeout;

const EQUAL = new Set(['deepStrictEqual', 'deepEqual', 'strictEqual', 'equal']);
const MAX_ROUNDS = 600;
const MAX_KEPT = 300;
const WORKER_MS = 10000;
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

function between(scopes, body) {
  return () => {
    const waiting = scopes.flatMap((one) => one.before.map((hook) => hook()));
    try {
      waiting.push(body());
    } finally {
      for (const one of scopes) waiting.push(...one.after.map((hook) => hook()));
    }
    return waiting.find((one) => one && typeof one.then === 'function');
  };
}

function standIns(real) {
  const tests = [];
  const titles = [];
  const scopes = [{ before: [], after: [] }];
  const test = (title, ...given) => {
    const body = given.find((one) => typeof one === 'function');
    tests.push([[...titles, title].join(' > '), body && between([...scopes], body)]);
  };
  const describe = (title, ...given) => {
    titles.push(title);
    scopes.push({ before: [], after: [] });
    given.find((one) => typeof one === 'function')();
    scopes.pop();
    titles.pop();
  };
  const leave = () => {};
  Object.assign(test, { skip: leave, todo: leave, only: test });
  Object.assign(describe, { skip: leave, todo: leave, only: describe });
  const before = (body) => scopes.at(-1).before.push(body);
  const after = (body) => scopes.at(-1).after.push(body);
  const hooks = { before, beforeEach: before, after, afterEach: after };
  Object.assign(test, { test, it: test, describe, suite: describe, default: test, ...hooks });
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
    const directory = path.dirname(path.resolve(root, file.path));
    const names = ['require', 'module', 'exports', '__filename', '__dirname'];
    new Function(...names, file.text)(find, { exports: {} }, {}, path.resolve(root, file.path), directory);
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

function inWorker(then) {
  let waiting = later(() => done(null), WORKER_MS);
  const worker = new Worker(program, { eval: true, workerData: { token } });
  const done = (found) => {
    if (!waiting) return;
    forget(waiting);
    waiting = null;
    const lost = all.map(([id]) => ['result', id, 'worker', 'worker', 'it did not come to its end']);
    results.push(...(found || lost).filter(([, , phase]) => phase === 'worker'));
    then();
  };
  worker.on('message', (given) => given.token === token && done(given.results));
  worker.on('error', () => done(null));
  worker.on('exit', () => done(null));
}

if (!isMainThread) {
  phase('worker');
  post({ token, results });
  return;
}
phase(job.shifted ? 'shifted' : 'first');
phase('plain');
if (!job.shifted) many();
const route = JSON.parse(fs.readFileSync(0, 'utf8').split('\n')[0]);
later(() => {
  phase('task');
  if (!job.shifted) inWorker(() => finish(route));
  else later(() => {
    phase('pause');
    finish(route);
  }, job.pause * 1000);
}, 5);
