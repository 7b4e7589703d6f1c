// Load and run models in LiteRT.js: the part that is the same under Node and in a browser's page.
//
// runJob(litert, job, host): `litert` is the module @litertjs/core; `host` reads files, keeps outputs, and gets events.
// Models that are compared are timed in turns, so that a busy spell of the machine hits all alike. A turn is two runs, and the
// second is timed: an application that runs one network again and again does not pay for what another left in the caches.

const ARRAYS = {float32: Float32Array, int32: Int32Array, uint8: Uint8Array};

// From a page, an event goes through two other processes, which would work beside the runs that follow it.
const SAID_AT_ONCE = 10;

const release = (tensors) => tensors.forEach((tensor) => tensor.delete());

async function inputsOf(model, set, litert, host) {
  const details = model.getInputDetails();
  const made = new Array(details.length);
  for (const [at, input] of set.entries()) {
    const named = details.findIndex((detail) => input.names.includes(detail.name));
    const place = named >= 0 ? named : at;
    const Kind = ARRAYS[details[place].dtype];
    if (!Kind) throw new Error(`LiteRT.js takes no ${details[place].dtype} inputs`);
    const bytes = await host.read(input.file);
    made[place] = new litert.Tensor(new Kind(bytes.buffer, bytes.byteOffset, bytes.byteLength / Kind.BYTES_PER_ELEMENT),
                                    Array.from(details[place].shape));
  }
  return made;
}

async function load(model, job, litert, host) {
  const bytes = await host.read(model.path);
  const began = performance.now();
  const compiled = await litert.loadAndCompile(bytes, {accelerator: 'wasm', cpuOptions: {numThreads: job.threads}});
  const init_ms = performance.now() - began;
  const sets = [];
  for (const set of model.inputs) sets.push(await inputsOf(compiled, set, litert, host));
  return {compiled, init_ms, sets};
}

async function numbers(loaded, index, host) {
  const details = loaded.compiled.getOutputDetails();
  const outputs = [];
  for (const [number, inputs] of loaded.sets.entries()) {
    const results = await loaded.compiled.run(inputs);
    const kept = [];
    for (const [at, tensor] of results.entries()) {
      const data = tensor.toTypedArray().slice();
      kept.push({name: details[at].name, dtype: details[at].dtype, file: await host.keep(`${index}-${number}-${at}`, data)});
    }
    outputs.push(kept);
    release(results);
  }
  return outputs;
}

export async function runJob(litert, job, host) {
  const loaded = [];
  for (const [index, model] of job.models.entries()) {
    try {
      const one = await load(model, job, litert, host);
      host.say({event: 'model', model: index, init_ms: one.init_ms, outputs: await numbers(one, index, host)});
      if (job.runs) {
        loaded.push({index, one});
      } else {
        one.sets.forEach(release);
        one.compiled.delete();
      }
    } catch (error) {
      host.say({event: 'failed', model: index, message: String(error?.message ?? error).slice(0, 500)});
      if (!job.runs) await host.restart();
    }
  }
  const once = async ({one}) => release(await one.compiled.run(one.sets[0]));
  for (let i = 0; i < job.warmup; i++) for (const entry of loaded) await once(entry);
  const unsaid = [];
  for (let round = 0; round < job.runs; round++) {
    if (unsaid.length === SAID_AT_ONCE) for (const event of unsaid.splice(0)) await host.say(event);
    const ms = {};
    for (let turn = 0; turn < loaded.length; turn++) {
      const entry = loaded[(round + turn) % loaded.length]; // another one begins each round: what comes before may cost, too
      await once(entry);
      const began = performance.now();
      await once(entry);
      ms[entry.index] = performance.now() - began;
    }
    unsaid.push({event: 'round', round, ms});
  }
  for (const event of unsaid) await host.say(event);
}
