// `expect` of jest and vitest without either. Part of the program of script_replay.js, which has `note` and `now`.
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
