// The page: files in, LiteRT.js in turns, a table out.
import * as litert from '@litertjs/core';
import {runJob} from './litert_job.mjs';
import {inWords, largestDifference, median, percentile, ratio} from './statistics.mjs';

const at = (id) => document.getElementById(id);
const ARRAYS = {float32: Float32Array, int32: Int32Array, uint8: Uint8Array};
const WARMUP = 5;
let models = []; // {name, bytes}
let loadedThreads = 0;

function tell(message, bad = false) {
  at('message').textContent = message;
  at('message').classList.toggle('bad', bad);
}

function show() {
  at('chosen').replaceChildren(...models.map(({name, bytes}, number) => {
    const item = document.createElement('li');
    item.textContent = `${number ? '' : 'first: '}${name}, ${(bytes.length / 1e6).toFixed(2)} MB`;
    return item;
  }));
  at('run').disabled = models.length === 0;
}

async function add(files) {
  for (const file of files) models.push({name: file.name, bytes: new Uint8Array(await file.arrayBuffer())});
  // The dense twin is what others are compared with.
  models.sort((a, b) => b.name.endsWith('.dense.tflite') - a.name.endsWith('.dense.tflite'));
  show();
}

// Random numbers in [0, 1), the same for all files: images, as far as a network can tell.
function inputsOf(details) {
  let state = 1;
  const next = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
  return details.map(({name, dtype, shape}) => {
    const Kind = ARRAYS[dtype];
    if (!Kind) throw new Error(`LiteRT.js takes no ${dtype} inputs`);
    const size = Array.from(shape).reduce((product, length) => product * length, 1);
    const values = Kind.from({length: size}, () => (dtype === 'float32' ? next() : Math.floor(next() * (dtype === 'uint8' ? 256 : 2))));
    return {names: [name], dtype, shape: Array.from(shape), file: new Uint8Array(values.buffer)};
  });
}

async function start(threads) {
  if (loadedThreads === threads) return;
  if (loadedThreads) litert.unloadLiteRt();
  await litert.loadLiteRt(new URL('litert/core/wasm/', document.baseURI).href, threads > 1 ? {threads: true} : {});
  loadedThreads = threads;
}

async function measure(runs, threads) {
  await start(threads);
  const job = {models: [], runs, warmup: WARMUP, threads};
  for (const {bytes} of models) {
    try {
      const compiled = await litert.loadAndCompile(bytes, {accelerator: 'wasm'});
      job.models.push({path: bytes, inputs: [inputsOf(compiled.getInputDetails())]});
      compiled.delete();
    } catch (error) {
      job.models.push({path: bytes, inputs: [], broken: String(error?.message ?? error)});
    }
  }
  const results = models.map(({name, bytes}) => ({name, size: bytes.length, times: [], outputs: []}));
  job.models.forEach(({broken}, index) => { if (broken) results[index].failure = broken; });
  const sound = job.models.map((model, index) => ({model, index})).filter(({model}) => !model.broken);
  const kept = new Map();
  await runJob(litert, {...job, models: sound.map(({model}) => model)}, {
    read: async (bytes) => bytes,
    keep: async (name, data) => { kept.set(name, data); return name; },
    restart: async () => {},
    say: (event) => {
      if (event.event === 'round') {
        for (const [number, ms] of Object.entries(event.ms)) results[sound[number].index].times.push(ms);
        at('progress').value = (event.round + 1) / runs;
        return;
      }
      const result = results[sound[event.model].index];
      if (event.event === 'failed') result.failure = event.message;
      else Object.assign(result, {load: event.init_ms, outputs: event.outputs[0].map(({file}) => kept.get(file))});
    },
  });
  return results;
}

function cell(text, kind = '') {
  const made = document.createElement('td');
  made.textContent = text;
  made.className = kind;
  return made;
}

const shortly = ({value, low, high}) => (low <= 1 && high >= 1 ? 'no difference' : `${value.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})`);

function report(results, threads) {
  const [first] = results;
  const slowest = Math.max(...results.filter(({times}) => times.length).map(({times}) => median(times)));
  const statements = [];
  at('rows').replaceChildren(...results.map((result) => {
    const row = document.createElement('tr');
    row.append(cell(result.name), cell(`${(result.size / 1e6).toFixed(2)} MB`, 'number'));
    if (result.failure || !result.times.length) {
      const why = cell(`does not run: ${result.failure ?? 'it gave no times'}`, 'bad');
      why.colSpan = 5;
      row.append(why);
      return row;
    }
    const {times} = result;
    const compared = result !== first && first.times.length ? ratio(first.times, times) : null;
    const name = cell(median(times).toFixed(2), 'number median');
    const bar = document.createElement('div');
    bar.className = 'bar';
    bar.style.width = `${(100 * median(times)) / slowest}%`;
    name.append(bar);
    if (compared?.low > 1) row.className = 'faster';
    if (compared) statements.push(`${result.name}: ${inWords(compared)}`);
    row.append(
      cell(result.load.toFixed(0), 'number'), name, cell(`${percentile(times, 0.1).toFixed(2)} to ${percentile(times, 0.9).toFixed(2)}`, 'number'),
      cell(compared ? shortly(compared) : '', 'number'),
      cell(result === first ? '' : largestDifference(first.outputs, result.outputs).toExponential(1), 'number difference'),
    );
    return row;
  }));
  at('headline').textContent = statements.join('; ') || `${first.name}: ${first.times.length ? `${median(first.times).toFixed(2)} ms` : 'does not run'}`;
  const clock = crossOriginIsolated ? 'clock of 5 microseconds' : 'this page is not isolated: a clock of 0.1 ms, and no threads';
  at('versions').textContent = `${first.times.length} runs of each in turns after ${WARMUP}; ${threads} thread${threads > 1 ? 's' : ''}; ${clock}; ${navigator.userAgent}`;
  at('result').hidden = false;
}

at('files').addEventListener('change', (event) => add(event.target.files));
for (const kind of ['dragover', 'dragleave', 'drop']) {
  at('drop').addEventListener(kind, (event) => {
    event.preventDefault();
    at('drop').classList.toggle('over', kind === 'dragover');
    if (kind === 'drop') add(event.dataTransfer.files);
  });
}
at('how').addEventListener('submit', async (event) => {
  event.preventDefault();
  const threads = crossOriginIsolated ? Number(at('threads').value) : 1;
  at('run').disabled = true;
  at('progress').hidden = false;
  at('progress').value = 0;
  tell('running ...');
  try {
    report(await measure(Number(at('runs').value), threads), threads);
    tell('');
  } catch (error) {
    tell(String(error?.message ?? error), true);
  }
  at('progress').hidden = true;
  at('run').disabled = false;
});
for (const name of await (await fetch('models.json')).json()) {
  await add([new File([await (await fetch(`models/${encodeURIComponent(name)}`)).blob()], name)]);
}
