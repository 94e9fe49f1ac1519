// A reporter of `node --test`, in the process that starts one process for each test file.
export default async function* report(source) {
  const around = new Map(); // file -> titles of what is under way
  for await (const { type, data } of source) {
    if (!['test:start', 'test:pass', 'test:fail'].includes(type)) continue;
    const file = data.file ?? '';
    const titles = [...(around.get(file) ?? []).slice(0, data.nesting), data.name];
    around.set(file, titles);
    if (type === 'test:start' || data.details?.type === 'suite') continue;
    const status = type === 'test:fail' ? 'failed' : data.skip !== undefined || data.todo !== undefined ? 'skipped' : 'passed';
    const error = data.details?.error;
    const text = status === 'failed' ? shortened(inspect(error?.cause ?? error)) : '';
    if (inside(data.name) === inside(file)) {
      if (status === 'failed') send('file', inside(file), text);
    } else send('test', inside(file), titles, data.todo !== undefined ? 'skipped' : status, text);
  }
  send('end');
}
