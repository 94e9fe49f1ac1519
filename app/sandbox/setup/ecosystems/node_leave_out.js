// Repeats an install command without the development dependencies that its errors name, or that need a git repository
// that they name. Its words are the command, and what ends the line about each of them.
const fs = require('fs'), { spawnSync } = require('child_process');
const groups = ['devDependencies', 'optionalDependencies'], absent = /404|notarget|no.matching.version|ls-remote/i;
for (let left = 8; left; left--) {
  const done = spawnSync('sh', ['-c', process.argv[2]], { encoding: 'utf8', maxBuffer: 1 << 27 });
  const output = done.stdout + done.stderr;
  process.stdout.write(output);
  if (done.status === 0) process.exit(0);
  const errors = output.split('\n').filter((line) => absent.test(line)).join(' \n').replace(/%2f/gi, '/');
  const read = JSON.parse(fs.readFileSync('package.json', 'utf8'));
  let changed = false;
  const leaveOut = (wrong) => {
    for (const group of groups) for (const [name, range] of Object.entries(read[group] || {})) if (wrong(name, range)) {
      delete read[group][name];
      changed = true;
      console.log(name + process.argv[3]);
    }
  };
  leaveOut((name) =>
    [`/${name}/-/`, `/${name} `, `/${name}:`, ` ${name}@`, `'${name}@`].some((text) => errors.includes(text)));
  const sources = Array.from(errors.matchAll(/ls-remote .*?[:/]([^\s:/]+\/[^\s/]+?)(?:\.git)?(?=[\s'"#]|$)/g));
  if (!changed && sources.length) leaveOut((name, range) => {
    const ask = ['view', `${name}@${range}`, 'dependencies', 'optionalDependencies', '--json'];
    const needs = spawnSync('npm', ask, { encoding: 'utf8' }).stdout || '';
    return sources.some(([, source]) => needs.includes(source));
  });
  if (!changed) process.exit(done.status || 1);
  fs.writeFileSync('package.json', JSON.stringify(read, null, 2));
}
process.exit(1);
