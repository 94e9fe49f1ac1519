// A reporter of jest, in its main process: the results of each file as it ends.
module.exports = class Reporter {
  constructor() {
    this.sent = new WeakSet();
  }

  onTestResult(_, file) {
    if (this.sent.has(file)) return;
    this.sent.add(file);
    const path = inside(file.testFilePath);
    if (file.testExecError || (file.failureMessage && !file.testResults.length)) {
      send('file', path, shortened(file.failureMessage || file.testExecError.message));
    }
    for (const test of file.testResults) {
      const status = { passed: 'passed', failed: 'failed' }[test.status] || 'skipped';
      const text = status === 'failed' ? shortened((test.failureMessages || []).join('\n')) : '';
      send('test', path, [...test.ancestorTitles, test.title], status, text);
    }
  }

  onRunComplete(_, results) {
    results.testResults.forEach((file) => this.onTestResult(_, file));
    send('end');
  }
};
