// Which XNNPACK operators ran: @tensorflow/tfjs-tflite's WebAssembly module, called directly, with its profiler on.
//
//   node operators.cjs FOLDER_WITH_NODE_MODULES JOB.json
//
// The package's JavaScript interface hides the profiler's delegate section and wants TensorFlow.js beside it; the module
// itself needs neither. Results go to standard output, one JSON object a line (see sparsetorch/runtime/worker.py).
'use strict';
const {createRequire} = require('node:module');
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const [root, jobFile] = process.argv.slice(2);
const job = JSON.parse(fs.readFileSync(jobFile, 'utf8'));
const found = createRequire(path.join(root, 'package.json')).resolve('@tensorflow/tfjs-tflite/package.json');
const folder = path.join(path.dirname(found), 'wasm');
const MODULE = 'tflite_web_api_cc_simd';
const PROFILER_ENTRIES = 16384;
const ATTEMPTS = 10; // one runner in about twenty comes up without its profiler, at random, and stays so
const say = (event) => fs.writeSync(1, JSON.stringify(event) + '\n');

// The loader is a classic script for a browser page or Node's CommonJS.
Object.assign(globalThis, {require, __dirname: folder, __filename: path.join(folder, `${MODULE}.js`)});
const source = fs.readFileSync(globalThis.__filename, 'utf8');
vm.runInThisContext(`${source};globalThis.makeModule = tflite_web_api_ModuleFactory;`, {filename: `${MODULE}.js`});
const wasmBinary = fs.readFileSync(path.join(folder, `${MODULE}.wasm`));
const log = [];

// Whether the module survives growing its memory depends on what the memory looks like at that moment: files that it runs after
// others, it aborts on as its first ("failed to create XNNPACK runtime"). So it gets memory ahead, and more where it aborts.
const AHEAD = 64 << 20, MORE = 512 << 20; // bytes
async function start(ahead) {
  const module = await globalThis.makeModule({
    wasmBinary, print: (line) => log.push(line), printErr: (line) => log.push(line)});
  module._free(module._malloc(ahead));
  return module;
}

const position = (details, names, index) => {
  for (let i = 0; i < details.size(); i++) if (names.includes(details.get(i).name)) return i;
  return index;
};

function attempt(module, model, index, pointer, size) {
  let status, runner;
  try {
    const began = performance.now();
    status = module.TFLiteWebModelRunner.CreateFromBufferAndOptions(
        pointer, size, {numThreads: 1, enableProfiling: true, maxProfilingBufferEntries: PROFILER_ENTRIES});
    if (!status.ok()) throw new Error(status.errorMessage());
    runner = status.value();
    const init_ms = performance.now() - began;
    const outputs = model.inputs.map((set, number) => {
      set.forEach((input, at) => {
        const tensor = runner.GetInputs().get(position(runner.GetInputs(), input.names, at));
        const target = tensor.data();
        new Uint8Array(target.buffer, target.byteOffset, target.byteLength).set(fs.readFileSync(input.file));
      });
      if (!runner.Infer()) throw new Error('the inference failed');
      const all = runner.GetOutputs();
      return Array.from({length: all.size()}, (_, at) => {
        const tensor = all.get(at), data = tensor.data();
        const file = path.join(job.outputs, `${index}-${number}-${at}.bin`);
        fs.writeFileSync(file, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        return {name: tensor.name, dtype: tensor.dataType, file};
      });
    });
    return {init_ms, outputs, summary: runner.GetProfilingSummary()};
  } finally {
    runner?.delete();
    status?.delete();
  }
}

function run(module, model, index) {
  const bytes = fs.readFileSync(model.path);
  const pointer = module._malloc(bytes.length);
  try {
    module.HEAPU8.set(bytes, pointer);
    let found;
    for (let i = 0; i < ATTEMPTS && !found?.summary; i++) found = attempt(module, model, index, pointer, bytes.length);
    const {init_ms, outputs, summary} = found;
    if (!summary) throw new Error(`its profiler was silent in ${ATTEMPTS} runs`);
    say({event: 'model', model: index, init_ms, outputs, profile: summary});
  } finally {
    module._free(pointer);
  }
}

(async () => {
  const version = JSON.parse(fs.readFileSync(found, 'utf8')).version;
  let module = await start(AHEAD);
  say({event: 'version', parts: {'tfjs-tflite': version, 'Node.js': process.version.slice(1)}});
  for (const [index, model] of job.models.entries()) {
    for (const again of [true, false]) {
      log.length = 0;
      try {
        run(module, model, index);
        break;
      } catch (error) {
        const why = [String(error?.message ?? error), ...log.slice(-3)].join(' | ');
        if (!again) say({event: 'failed', model: index, message: why.slice(0, 500)});
        module = await start(again ? MORE : AHEAD); // an abort leaves the old one unusable
      }
    }
  }
  process.exit(0); // the module keeps handles open
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
