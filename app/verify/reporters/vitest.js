// A reporter of vitest, in its main process; tests run in others. It sends the results of each file as it ends.
// Version 3 and newer call onTestModuleEnd and onTestRunEnd, older ones onTaskUpdate and onFinished.
const said = (errors) => shortened((errors ?? []).map((error) => error.stack || error.message || String(error)).join('\n'));

export default class Reporter {
  #context;
  #sent = new Set();

  onInit(context) {
    this.#context = context;
  }

  onTaskUpdate(packs) {
    for (const [id] of packs) {
      const file = this.#context?.state.idMap.get(id);
      if (file?.filepath && ['pass', 'fail'].includes(file.result?.state)) this.#file(file);
    }
  }

  onFinished(files, errors) {
    if (this.#isNew('end')) this.#end(files, errors, (file) => this.#file(file));
  }

  onTestModuleEnd(module) {
    if (!this.#isNew(module.id)) return;
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

  onTestRunEnd(modules, errors) {
    if (this.#isNew('end')) this.#end(modules, errors, (module) => this.onTestModuleEnd(module));
  }

  #file(file) {
    if (!this.#isNew(file.id)) return;
    const each = (task, titles) => {
      if (task.tasks) return task.tasks.forEach((one) => each(one, [...titles, task.name]));
      const state = { pass: 'passed', fail: 'failed' }[task.result?.state] ?? 'skipped';
      send('test', path, [...titles, task.name], state, state === 'failed' ? said(task.result.errors) : '');
    };
    const path = inside(file.filepath);
    if (file.result?.state === 'fail' && !(file.tasks ?? []).length) send('file', path, said(file.result.errors));
    (file.tasks ?? []).forEach((task) => each(task, []));
  }

  #isNew(id) {
    return !this.#sent.has(id) && Boolean(this.#sent.add(id));
  }

  #end(files, errors, sendFile) {
    (files ?? []).forEach(sendFile);
    for (const error of errors ?? []) send('file', '', said([error]));
    send('end');
  }
}
