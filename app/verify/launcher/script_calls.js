// The calls of tests in other forms, and what they leave in their process. Part of the program of script_replay.js.
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
