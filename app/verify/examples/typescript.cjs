// Loads TypeScript with the project's own compiler, module by module, without checking types.
const Module = require('node:module');
const fs = require('node:fs');
const path = require('node:path');
const ts = require(path.join(process.cwd(), 'node_modules/typescript'));

const compile = (module, file) => {
  const options = { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2020, esModuleInterop: true, jsx: ts.JsxEmit.React };
  const legacy = { experimentalDecorators: true, emitDecoratorMetadata: true };
  const compilerOptions = { ...options, ...legacy, inlineSourceMap: false };
  module._compile(ts.transpileModule(fs.readFileSync(file, 'utf8'), { compilerOptions, fileName: file }).outputText, file);
};
for (const suffix of ['.ts', '.tsx', '.mts', '.cts']) require.extensions[suffix] = compile;

const resolve = Module._resolveFilename;
Module._resolveFilename = function (name, ...rest) {
  try {
    return resolve.call(this, name, ...rest);
  } catch (error) {
    if (!/\.[cm]?js$/.test(name)) throw error;
    return resolve.call(this, name.replace(/js$/, 'ts'), ...rest);
  }
};
