// Numbers and latency in LiteRT.js under Node, on the CPU.
//
//   node [--experimental-wasm-relaxed-simd] litert_node.mjs FOLDER_WITH_NODE_MODULES JOB.json
//
// LiteRT.js is made for pages: its WebAssembly loader is a classic script that looks for `importScripts` and `self`.
import {createRequire} from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';
import {pathToFileURL} from 'node:url';
import {runJob} from './litert_job.mjs';

const [root, jobFile] = process.argv.slice(2);
const job = JSON.parse(fs.readFileSync(jobFile, 'utf8'));
const require = createRequire(path.join(root, 'package.json'));
const found = require.resolve('@litertjs/core/package.json');
const wasm = path.join(path.dirname(found), 'wasm') + '/';
const say = (event) => fs.writeSync(1, JSON.stringify(event) + '\n');
for (const level of ['log', 'info', 'warn', 'error', 'debug']) console[level] = () => {}; // the runtime's own chatter

let script = '';
Object.assign(globalThis, {
  self: globalThis,
  require,
  importScripts(file) {
    script = path.basename(String(file));
    Object.assign(globalThis, {__filename: String(file), __dirname: path.dirname(String(file))});
    vm.runInThisContext(`${fs.readFileSync(file, 'utf8')}\n;globalThis.ModuleFactory = ModuleFactory;`, {filename: script});
  },
});

try {
  const litert = await import(pathToFileURL(require.resolve('@litertjs/core')));
  await litert.loadLiteRt(wasm);
  const {version} = JSON.parse(fs.readFileSync(found, 'utf8'));
  const simd = script.includes('compat') ? 'plain SIMD' : 'relaxed SIMD';
  say({event: 'version', parts: {'LiteRT.js': `${version} (${simd})`, 'Node.js': process.version.slice(1)}});
  await runJob(litert, job, {
    say,
    read: async (file) => new Uint8Array(fs.readFileSync(file)),
    keep: async (name, data) => {
      const file = path.join(job.outputs, `${name}.bin`);
      fs.writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
      return file;
    },
    restart: async () => {
      litert.unloadLiteRt();
      await litert.loadLiteRt(wasm);
    },
  });
  process.exit(0);
} catch (error) {
  fs.writeSync(2, `${error?.stack ?? error}\n`);
  process.exit(1);
}
