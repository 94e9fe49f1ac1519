'use strict';
// Runs inside the sandbox with `node -e`: calls the functions of tests in a process that has no test framework.
// It is the body of a function, as the code under test can reach what a script declares. `job` is defined before:
// `framework`, `files` (`path`, `text`, `loads`, `ids`), `directory`, `shifted`, `seconds`, `pause`. Messages are JSON:
// ["result", id, phase, kind, text], where an empty kind means that the test passed; ["left", id] for a test that needs
// its framework; ["odd", …]; ["end"]. A text that `loads` awaits modules. `expecting` is in script_expect.js, and `examine` in script_calls.js.

const fs = require('node:fs');
const path = require('node:path');
const { createRequire, isBuiltin, register } = require('node:module');
const { pathToFileURL } = require('node:url');
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
const CALLS_MS = 4000;
const FRAMEWORKS = /^(?:vitest|@jest\/globals)$/;
const NOT_LOADED = /^(?:MODULE_NOT_FOUND|ERR_(?:\w+_NOT_FOUND|REQUIRE_ESM|UN\w+|IMPORT_\w+|PACKAGE_\w+))$/;
const own = job.framework === 'node';
const odd = new Map();
const kept = [];
let current = '';
let now = [];

// What a bundler finds without its ending, plain Node does not.
const ENDINGS = `
const ends = ['.mjs', '.js', '.cjs', '.json', '/index.mjs', '/index.js'];
export async function resolve(name, context, next) {
  try {
    return await next(name, context);
  } catch (error) {
    for (const end of /^(?:\\.|file:)/.test(name) ? ends : []) {
      try {
        return await next(name + end, context);
      } catch {}
    }
    throw error;
  }
}
export async function load(url, context, next) {
  const type = { type: 'json' };
  return next(url, /\\.json$/.test(url) ? { ...context, importAttributes: type, importAssertions: type } : context);
}
`;

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

if (job.files.some((file) => file.loads)) register(`data:text/javascript,${encodeURIComponent(ENDINGS)}`);

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

const loaderOf = (file, find) => async (name) => {
  if (FRAMEWORKS.test(name)) return find(name);
  if (isBuiltin(name)) return import(name);
  const there = path.resolve(root, file);
  if (name.startsWith('.')) return observe(await import(pathToFileURL(path.resolve(path.dirname(there), name)).href));
  return import(pathToFileURL(createRequire(there).resolve(name)).href);
};

const ofProject = (name, real) => (name.startsWith('.') ? observe(real(name)) : real(name));

function standIns(real) {
  const tests = [];
  const titles = [];
  const scopes = [{ before: [], after: [] }];
  const test = (title, ...given) => {
    const body = given.find((one) => typeof one === 'function');
    const called = body && (own || !body.length); // others are given a context, or call when they are done
    tests.push([[...titles, title].join(' > '), called && between([...scopes], body)]);
  };
  const describe = (title, ...given) => {
    titles.push(title);
    scopes.push({ before: [], after: [] });
    given.find((one) => typeof one === 'function')();
    scopes.pop();
    titles.pop();
  };
  const leave = () => {};
  const others = { skip: leave, todo: leave, fails: leave, failing: leave };
  for (const name of ['each', 'for', 'skipIf', 'runIf', 'extend']) others[name] = () => leave;
  Object.assign(test, others, { only: test, concurrent: test, sequential: test });
  Object.assign(describe, others, { only: describe, concurrent: describe, sequential: describe });
  const before = (body) => scopes.at(-1).before.push(body);
  const after = (body) => scopes.at(-1).after.push(body);
  const hooks = { before, beforeEach: before, after, afterEach: after };
  if (!own) {
    Object.assign(hooks, { beforeAll: before, afterAll: after });
    const names = { test, it: test, describe, suite: describe, expect: expecting, vi: refused, jest: refused, ...hooks };
    return [Object.assign((name) => (FRAMEWORKS.test(name) ? names : ofProject(name, real)), real), tests, names];
  }
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
    return /^(?:node:)?assert(?:\/strict)?$/.test(name) ? asserting(real(name)) : ofProject(name, real);
  };
  return [Object.assign(find, real), tests, {}];
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
    return error === unsure ? null : failure(error);
  }
  if (kept.length < MAX_KEPT) kept.push(...now.map((one) => [current, ...one]));
  return ['', ''];
}

// An environment that is missing here fails with the same type as what a test shows, but not with the same words.
function failure(error) {
  const name = String((error && error.name) || 'thrown');
  const text = String((error && error.message) || error).slice(0, 400);
  return [own || name === 'AssertionError' ? name : `${name}: ${text.split('\n')[0]}`, text];
}

const all = [];
const results = [];
const left = [];
const waiting = [];
for (const file of job.files) {
  const [find, tests, names] = standIns(createRequire(`${root}/${file.path}`));
  const there = path.resolve(root, file.path);
  const given = { require: find, module: { exports: {} }, exports: {}, __filename: there, __dirname: path.dirname(there) };
  if (!own) Object.assign(given, names);
  if (file.loads) given.load = loaderOf(file.path, find);
  const failed = (error) => {
    if (!own && (error === unsure || error.name === 'SyntaxError' || NOT_LOADED.test(error.code))) left.push(...file.ids);
    else results.push(...file.ids.map((id) => ['result', id, 'loaded', ...failure(error)]));
  };
  const found = () => {
    for (const [title, body] of tests) {
      const id = `${file.path}::${title}`;
      if (file.ids.includes(id) && body) all.push([id, body]);
    }
  };
  try {
    const made = file.loads ? Object.getPrototypeOf(async () => {}).constructor : Function;
    const ended = new made(...Object.keys(given), own ? file.text : `{${file.text}\n}`)(...Object.values(given));
    if (file.loads) waiting.push(ended.then(found, failed));
    else found();
  } catch (error) {
    failed(error);
    found();
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
  [...results, ...left.map((id) => ['left', id]), ['end']].forEach((parts, number) => {
    const text = JSON.stringify(parts).replace(/[\u007f-\uffff]/g, (letter) =>
      `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
    const mac = createHmac('sha256', Buffer.from(route.key, 'hex')).update(`${number}:${text}`).digest('hex');
    fs.writeSync(route.fd, `${number} ${mac} ${text}\n`);
  });
  process.reallyExit(0);
}

function inWorker(then) {
  let waiting = later(() => done(null, 'worker_end'), WORKER_MS);
  const worker = new Worker(program, { eval: true, workerData: { token }, resourceLimits: { stackSizeMb: 1 } });
  let more = null;
  const leave = () => {
    forget(more);
    more = null;
    then();
  };
  const done = (found, way = 'worker') => {
    if (more) return leave();
    if (!waiting) return;
    forget(waiting);
    waiting = null;
    const lost = all.map(([id]) => ['result', id, way, 'worker', 'there is no result']);
    results.push(...(found ? found.filter(([, , phase]) => phase === 'worker') : lost));
    if (found) more = later(leave, CALLS_MS);
    else then();
  };
  worker.on('message', (given) => {
    if (given.token !== token) return;
    if (more && given.results) results.push(...given.results.filter(([, , phase]) => phase !== 'worker'));
    done(given.results);
  });
  worker.on('error', () => done(null));
  worker.on('exit', () => done(null));
}

function begin() {
  if (!isMainThread) {
    phase('worker');
    post({ token, results });
    const found = [];
    examine(() => phase('recorded'), (one) => found.push(one));
    post({ token, results: found });
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
}

if (waiting.length) Promise.all(waiting).then(begin);
else begin();
