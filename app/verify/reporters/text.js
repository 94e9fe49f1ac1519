// For reporters in any version of Node. `root` is the top of the work tree.
// A path as seen from the top of the work tree.
function inside(file) {
  const path = String(file || '').replace(/^file:\/\//, '');
  return path.startsWith(root + '/') ? path.slice(root.length + 1) : path;
}

function shortened(text) {
  const whole = String(text === undefined || text === null ? '' : text);
  return whole.length <= 20000 ? whole : whole.slice(0, 10000) + '\n…\n' + whole.slice(-10000);
}
