// Sends what a program prints in a test runner to a file, instead of the runner's report.
import { appendFileSync, writeFileSync } from 'node:fs';
import { format } from 'node:util';

const place = process.env.EXAMPLE_OUTPUT;
writeFileSync(`${place}/started`, '');
const print = (text) => appendFileSync(`${place}/printed`, text);
for (const name of ['log', 'info', 'debug']) console[name] = (...words) => print(`${format(...words)}\n`);
// An object of its own, as jest's reporters use the other one in the same process.
const stdout = Object.create(process.stdout, { write: { value: (text) => (print(text), true) } });
Object.defineProperty(process, 'stdout', { value: stdout, configurable: true });
