// The way of results to a file, one line for each, so that those until a stop are known: process, test, status, text.
// A line with nothing but the process is its end. `destination` is the file; `between` stands between titles.
// What the tests start themselves is none of ours.
process.env.NODE_OPTIONS = (process.env.NODE_OPTIONS || '').replace(/--test-reporter\S*/g, '');

function send(kind, file, ...rest) {
  const outcome = kind === 'test' ? [`${file}::${rest[0].join(between)}`, rest[1], rest[2]] : [file, 'error', rest[0]];
  fs.appendFileSync(destination, JSON.stringify([process.pid, ...(kind === 'end' ? [] : outcome)]) + '\n');
}
