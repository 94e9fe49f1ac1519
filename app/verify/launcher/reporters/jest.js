// A reporter of jest, in its main process.
module.exports = class Reporter {
  onRunComplete(_, results) {
    for (const file of results.testResults) {
      const path = inside(file.testFilePath);
      if (file.testExecError || (file.failureMessage && !file.testResults.length)) {
        send('file', path, shortened(file.failureMessage || file.testExecError.message));
      }
      for (const test of file.testResults) {
        const status = { passed: 'passed', failed: 'failed' }[test.status] ?? 'skipped';
        const text = status === 'failed' ? shortened((test.failureMessages ?? []).join('\n')) : '';
        send('test', path, [...test.ancestorTitles, test.title], status, text);
      }
    }
    send('end');
  }
};
