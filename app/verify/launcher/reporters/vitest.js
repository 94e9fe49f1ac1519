// A reporter of vitest, in its main process; tests run in others. Older versions call onFinished, newer onTestRunEnd.
const said = (errors) => shortened((errors ?? []).map((error) => error.stack || error.message || String(error)).join('\n'));

export default class Reporter {
  #done = false;

  onFinished(files, errors) {
    if (this.#done) return;
    this.#done = true;
    const each = (task, file, titles) => {
      if (task.tasks) return task.tasks.forEach((one) => each(one, file, [...titles, task.name]));
      const state = { pass: 'passed', fail: 'failed' }[task.result?.state] ?? 'skipped';
      send('test', file, [...titles, task.name], state, state === 'failed' ? said(task.result.errors) : '');
    };
    for (const file of files ?? []) {
      const path = inside(file.filepath);
      if (file.result?.state === 'fail' && !(file.tasks ?? []).length) send('file', path, said(file.result.errors));
      (file.tasks ?? []).forEach((task) => each(task, path, []));
    }
    for (const error of errors ?? []) send('file', '', said([error]));
    send('end');
  }

  onTestRunEnd(modules, errors) {
    if (this.#done) return;
    this.#done = true;
    for (const module of modules ?? []) {
      const path = inside(module.moduleId);
      if (module.errors().length) send('file', path, said(module.errors()));
      for (const test of module.children.allTests()) {
        const titles = [test.name];
        for (let above = test.parent; above && above.type === 'suite'; above = above.parent) titles.unshift(above.name);
        const { state, errors: failures } = test.result();
        const status = { passed: 'passed', failed: 'failed' }[state] ?? 'skipped';
        send('test', path, titles, status, status === 'failed' ? said(failures) : '');
      }
    }
    for (const error of errors ?? []) send('file', '', said([error]));
    send('end');
  }
}
