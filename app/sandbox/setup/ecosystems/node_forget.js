// Takes dependencies out of package.json and npm's locks; the tree of a set-up is thrown away. Its words are their names.
const fs = require('fs'), names = new Set(process.argv.slice(1)), groups = ['dependencies', 'devDependencies',
  'optionalDependencies', 'peerDependencies'];
const forget = (each) => groups.forEach((group) => names.forEach((name) => {
  if (each && each[group]) delete each[group][name];
}));
for (const file of ['package.json', 'package-lock.json', 'npm-shrinkwrap.json']) if (fs.existsSync(file)) {
  const read = JSON.parse(fs.readFileSync(file, 'utf8'));
  forget(read);
  if (file !== 'package.json') {
    forget((read.packages || {})['']);
    names.forEach((name) => {
      delete (read.packages || {})['node_modules/' + name];
      delete (read.dependencies || {})[name];
    });
  }
  fs.writeFileSync(file, JSON.stringify(read, null, 2));
}
