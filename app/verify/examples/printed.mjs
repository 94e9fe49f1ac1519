// Sends what a program prints in a test runner to a file, instead of the runner's report.
import { appendFileSync, openSync } from 'node:fs';
import { format } from 'node:util';

const place = process.env.EXAMPLE_OUTPUT;
let print = (text) => appendFileSync(`${place}/printed`, text);
try {
  openSync(`${place}/started`, 'wx');
} catch {
  print = () => {}; // settings with several projects run it in each
}
// An object of its own, as jest's reporters use the other one in the same process.
const stdout = Object.create(process.stdout, { write: { value: (text) => (print(text), true) } });
// Called at once, and again in the body: settings may watch the console from the start of a test.
const replace = () => {
  for (const name of ['log', 'info', 'debug']) console[name] = (...words) => print(`${format(...words)}\n`);
  Object.defineProperty(process, 'stdout', { value: stdout, configurable: true });
};
globalThis[Symbol.for('printed')] = replace;
replace();
