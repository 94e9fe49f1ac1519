// Runs inside the sandbox with `node -e`: calls the functions of tests in a process that has no test framework.
// It is the body of a function of `route` (the channel's; undefined in a worker) and `program` (the function's text),
// as the code under test can reach what a script declares. `job` is defined before:
// `framework`, `files` (`path`, `text`, `loads`, `ids`), `directory`, `shifted`, `seconds`, `pause`. Messages are JSON:
// ["result", id, phase, kind, text], where an empty kind means that the test passed; ["left", id] for a test that needs
// its framework; ["odd", …]; ["end"]. A text that `loads` awaits modules.

// ---- `expect` of jest and vitest without either
// What cannot be said here for certain throws `unsure`: such a test is left to its framework.
const assert = require('node:assert');
const { isDeepStrictEqual } = require('node:util');
const unsure = Symbol('unsure');
const refuse = () => {
  throw unsure;
};
const refused = new Proxy(refuse, { get: refuse, apply: refuse });

function plain(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return Array.from(value, plain);
  if (Object.prototype.toString.call(value) !== '[object Object]' || 'asymmetricMatch' in value) refuse();
  const pairs = Reflect.ownKeys(value).map((key) => [key, value[key]]);
  const shown = pairs.filter(([key, one]) => one !== undefined && Object.prototype.propertyIsEnumerable.call(value, key));
  return Object.fromEntries(shown.map(([key, one]) => [key, plain(one)]));
}

const equality = {
  toEqual: (left, right) => assert.deepStrictEqual(plain(left), plain(right)),
  toStrictEqual: (left, right) => {
    plain(right);
    assert.deepStrictEqual(left, right);
  },
};

function certain(holds) {
  if (!holds) throw new assert.AssertionError({ message: 'an expectation is not met' });
}

function throws(value, wanted) {
  if (typeof value !== 'function') refuse();
  let error = null;
  try {
    value();
  } catch (caught) {
    if (caught === unsure) refuse();
    error = { caught };
  }
  certain(error);
  const message = String((error.caught && error.caught.message) ?? error.caught);
  if (typeof wanted === 'string') certain(message.includes(wanted));
  else if (wanted instanceof RegExp) certain(wanted.test(message));
  else if (typeof wanted === 'function') certain(error.caught instanceof wanted);
  else if (wanted !== undefined) refuse();
}

const matchers = {
  ...equality,
  toBe: (left, right) => assert.strictEqual(left, right),
  toHaveLength: (left, right) => assert.strictEqual(left.length, right),
  toBeNull: (left) => assert.strictEqual(left, null),
  toBeUndefined: (left) => assert.strictEqual(left, undefined),
  toBeDefined: (left) => certain(left !== undefined),
  toBeTruthy: (left) => certain(left),
  toBeFalsy: (left) => certain(!left),
  toBeNaN: (left) => certain(Number.isNaN(left)),
  toBeGreaterThan: (left, right) => certain(left > right),
  toBeGreaterThanOrEqual: (left, right) => certain(left >= right),
  toBeLessThan: (left, right) => certain(left < right),
  toBeLessThanOrEqual: (left, right) => certain(left <= right),
  toBeCloseTo: (left, right, digits = 2) => certain(left === right || Math.abs(left - right) < 10 ** -digits / 2),
  toBeInstanceOf: (left, right) => certain(left instanceof right),
  toContain: (left, right) => (typeof left === 'string' || Array.isArray(left) ? certain(left.includes(right)) : refuse()),
  toMatch: (left, right) => certain(typeof right === 'string' ? left.includes(right) : right.test(left)),
  toThrow: throws,
  toThrowError: throws,
};

function again(name, left, right) {
  equality[name](left, right); // what a getter gives the second time counts as well
  if (!isData(right) || typeof right !== 'object' || right === null) return;
  noteJson(left, right);
  now.push([equality, name, left, right]);
}

function isSimple(value) {
  if (value === null || typeof value !== 'object') return true;
  const known = Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
  return known && Object.values(value).every(isSimple);
}

function noteJson(left, right) {
  const gets = Reflect.ownKeys(left).some((key) => Object.getOwnPropertyDescriptor(left, key).get);
  if (gets) note('property that is no data');
  const written = JSON.stringify(left);
  if (written !== undefined && !isDeepStrictEqual(plain(JSON.parse(written)), JSON.parse(JSON.stringify(right)))) {
    note(isSimple(left) ? 'toJSON' : 'toJSON of a class');
  }
}

function expecting(left) {
  const get = (inverse) => (_, name) => {
    if (name === 'not') return new Proxy({}, { get: get(!inverse) });
    if (!Object.hasOwn(matchers, name)) return refuse();
    return (...given) => {
      if (!inverse) {
        matchers[name](left, ...given);
        if (name in equality) again(name, left, ...given);
        return;
      }
      try {
        matchers[name](left, ...given);
      } catch (error) {
        if (error instanceof assert.AssertionError) return;
        throw error;
      }
      certain(false);
    };
  };
  return new Proxy({}, { get: get(false) });
}
for (const name of ['any', 'anything', 'arrayContaining', 'closeTo', 'extend', 'objectContaining', 'soft', 'stringContaining', 'stringMatching', 'assertions', 'hasAssertions']) {
  expecting[name] = refuse;
}

// ---- The calls of tests in other forms, and what they leave in their process
// Nothing here decides what is right: each finding is compared with the same call on the base.
const MAX_CALLS = 30;
const LARGE = 200000;
const calls = [];
const observed = new WeakMap();
let recording = false;

// What tests get of the project: the same, but calls can be recorded.
function observe(module) {
  if (typeof module === 'function') return observedFunction(module);
  if (module === null || typeof module !== 'object') return module;
  const get = (target, name) => {
    const one = Object.getOwnPropertyDescriptor(target, name);
    const fixed = one && !one.configurable && !one.writable;
    return fixed ? target[name] : typeof target[name] === 'function' ? observedFunction(target[name]) : target[name];
  };
  return new Proxy(module, { get });
}

function observedFunction(real) {
  if (!observed.has(real)) observed.set(real, new Proxy(real, { apply: recorded }));
  return observed.get(real);
}

function recorded(real, self, given) {
  if (!recording || calls.length >= MAX_CALLS || !given.every(isData)) return Reflect.apply(real, self, given);
  const before = structuredClone(given);
  const one = { test: current, number: calls.length + 1, before };
  calls.push(one);
  const result = Reflect.apply(real, self, given);
  if (result && typeof result.then === 'function') return result;
  one.changed = !isDeepStrictEqual(given, before);
  one.result = result;
  one.again = (others) => Reflect.apply(real, self, others);
  return result;
}

function frozen(value) {
  if (value !== null && typeof value === 'object') Object.values(Object.freeze(value)).forEach(frozen);
  return value;
}

const isObject = (value) => value !== null && typeof value === 'object';

// Results that are never equal to themselves are not compared.
const isSame = (one, result) => isDeepStrictEqual(one, result) || !isData(result);

function* others({ before, result, again }) {
  const same = (given) => (isSame(again(given), result) ? '' : 'gives another result');
  if (before.some(isObject)) yield ['arguments that are frozen', () => same(frozen(structuredClone(before)))];
  for (const [at, value] of before.entries()) {
    const given = (other) => structuredClone(before).map((one, index) => (index === at ? other : one));
    const ends = (other) => () => {
      again(given(other));
      return '';
    };
    if (Array.isArray(value) && value.length) {
      const many = () => Array.from({ length: LARGE }, (_, index) => structuredClone(value[index % value.length]));
      yield [`a large argument ${at + 1}`, () => ends(many())()];
    }
    if (typeof value === 'string' && value) yield [`a large argument ${at + 1}`, ends(value.repeat(2000))];
  }
  const fresh = () => again(structuredClone(before));
  yield ['a result that is changed', () => (isObject(result) && !Object.isExtensible(fresh()) ? 'is frozen' : '')];
  const values = () => (isObject(result) && Object.values(fresh()).includes(undefined) ? 'has one of undefined' : '');
  yield ['a result of which the properties are counted', values];
}

function ended(attempt) {
  try {
    return attempt();
  } catch (error) {
    return `raises ${(error && error.name) || 'something'}`;
  }
}

function processState() {
  return {
    'the environment': JSON.stringify(Object.entries(process.env).sort()),
    'listeners of the process': JSON.stringify(process.eventNames().map((name) => [String(name), process.listenerCount(name)])),
    'the exit code': String(process.exitCode),
  };
}

const before = processState();

// `tell` is given results.
function examine(tests, tell) {
  const write = process.stdout.write;
  const changed = [];
  process.stdout.write = () => {
    if (!changed.length) changed.push('the output');
    return true;
  };
  recording = true;
  tests();
  recording = false;
  process.stdout.write = write;
  const now = processState();
  changed.push(...Object.keys(now).filter((name) => now[name] !== before[name]));
  const ids = [...new Set(calls.map((one) => one.test))];
  for (const id of ids) {
    const touched = calls.some((one) => one.test === id && one.changed);
    tell(['result', id, 'arguments', touched ? 'changed' : '', 'an argument became another']);
  }
  tell(['result', all.length ? all[0][0] : '', 'process', changed.length ? 'changed' : '', JSON.stringify(changed)]);
  process.stdout.write = () => true;
  const usual = calls.filter((one) => one.again && !one.changed);
  const found = new Map(ids.map((id) => [id, {}]));
  for (const one of usual) {
    for (const [what, attempt] of others(one)) found.get(one.test)[`call ${one.number} with ${what}`] = ended(attempt);
  }
  for (const one of usual) {
    const same = () => (isSame(one.again(structuredClone(one.before)), one.result) ? '' : 'gives another result');
    found.get(one.test)[`call ${one.number} once others failed`] = ended(same);
  }
  for (const [id, told] of found) {
    tell(['result', id, 'varied', Object.values(told).some(Boolean) ? 'differs' : '', JSON.stringify(told)]);
  }
  process.stdout.write = write;
}

// ---- The tests
const fs = require('node:fs');
const path = require('node:path');
const { createRequire, isBuiltin, register } = require('node:module');
const { pathToFileURL } = require('node:url');
const { performance } = globalThis;
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
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

// What `import name from` gives: a module of CommonJS has no other default than itself.
const defaultOf = (module) => (module && module[Symbol.toStringTag] === 'Module' ? module.default : module);

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
  return [Object.assign(find, real, { default: (name) => defaultOf(find(name)) }), tests, {}];
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

function finish() {
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
  const worker = new Worker(`${program}();`, { eval: true, workerData: { token }, resourceLimits: { stackSizeMb: 1 } });
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
  later(() => {
    phase('task');
    if (!job.shifted) inWorker(finish);
    else later(() => {
      phase('pause');
      finish();
    }, job.pause * 1000);
  }, 5);
}

if (waiting.length) Promise.all(waiting).then(begin);
else begin();
