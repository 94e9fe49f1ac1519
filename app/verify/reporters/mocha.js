// A reporter of mocha, which runs the tests in its own process.
// Old versions know no titlePath.
const titles = (test) => (test.titlePath ? test.titlePath() : [...(test.parent ? titles(test.parent) : []), test.title].filter(Boolean));

module.exports = function Reporter(runner) {
  const log = console.log.bind(console);
  const tell = (status, error) => (test) => {
    const text = error ? shortened(error(test)) : '';
    log(`${{ passed: 'ok', failed: 'FAILED', skipped: 'skipped' }[status]} ${titles(test).join(' > ')}${text && '\n' + text}`);
    send('test', inside(test.file), titles(test), status, text);
  };
  runner.on('pass', tell('passed'));
  runner.on('pending', tell('skipped'));
  runner.on('fail', (test, error) => tell('failed', () => error.stack || error.message)(test));
  runner.on('end', () => send('end'));
};
