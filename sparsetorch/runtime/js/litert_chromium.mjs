// Numbers and latency in LiteRT.js in a page of headless Chromium, on the CPU.
//
//   node litert_chromium.mjs FOLDER_WITH_NODE_MODULES CHROMIUM JOB.json
//
// The page comes from a server on the loopback interface that knows the files of this job and of LiteRT.js, and no others. Its
// headers isolate the page: only then are there threads, and a clock of microseconds instead of a tenth of a millisecond.
import {createRequire} from 'node:module';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';

const [root, browser, jobFile] = process.argv.slice(2);
const job = JSON.parse(fs.readFileSync(jobFile, 'utf8'));
const here = path.dirname(new URL(import.meta.url).pathname);
const modules = path.join(root, 'node_modules', '@litertjs');
const say = (event) => {
  try {
    fs.writeSync(1, JSON.stringify(event) + '\n');
  } catch {
    process.exit(1); // nobody listens any more; Playwright ends the browser with this process
  }
};

const KINDS = {'.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm'};
const ISOLATED = {'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp'};
const PAGE = `<!doctype html><title>sparsetorch</title><link rel="icon" href="data:,"><script type="importmap">{"imports": {
  "@litertjs/core": "/litert/core/dist/index.js", "@litertjs/wasm-utils": "/litert/wasm-utils/dist/index.js"}}</script>`;

// What the page may read: the files of the job, under numbers.
const files = [];
const named = (file) => `/file/${files.push(file) - 1}`;
for (const model of job.models) {
  model.path = named(model.path);
  for (const set of model.inputs) for (const input of set) input.file = named(input.file);
}

function fileOf(url) {
  if (url === '/job.mjs') return path.join(here, 'litert_job.mjs');
  if (url.startsWith('/file/')) return files[Number(url.slice(6))];
  const inside = path.join(modules, path.normalize(url.slice('/litert/'.length)));
  return url.startsWith('/litert/') && inside.startsWith(modules + path.sep) ? inside : undefined;
}

const server = http.createServer((request, response) => {
  const url = decodeURIComponent(request.url);
  const kept = /^\/keep\/([0-9-]+)$/.exec(url);
  if (request.method === 'POST' && kept) {
    request.pipe(fs.createWriteStream(path.join(job.outputs, `${kept[1]}.bin`))).on('finish', () => response.end());
    return;
  }
  const file = url === '/' ? undefined : fileOf(url);
  if (url !== '/' && !(file && fs.existsSync(file))) {
    response.writeHead(404).end();
    return;
  }
  const kind = url === '/' ? 'text/html' : KINDS[path.extname(file)] ?? 'application/octet-stream';
  response.writeHead(200, {...ISOLATED, 'Content-Type': kind});
  if (url === '/') response.end(PAGE);
  else fs.createReadStream(file).pipe(response);
});

async function inPage([job, version]) {
  const litert = await import('@litertjs/core');
  const {runJob} = await import('/job.mjs');
  const start = () => litert.loadLiteRt('/litert/core/wasm/', job.threads > 1 ? {threads: true} : {});
  await start();
  const used = performance.getEntriesByType('resource').map((entry) => entry.name).find((name) => name.endsWith('.wasm')) ?? '';
  const simd = used.includes('compat') ? 'plain SIMD' : used.includes('threaded') ? 'relaxed SIMD, threads' : 'relaxed SIMD';
  await window.say({event: 'version', parts: {'LiteRT.js': `${version} (${simd})`}});
  await runJob(litert, job, {
    say: (event) => window.say(event),
    read: async (file) => new Uint8Array(await (await fetch(file)).arrayBuffer()),
    keep: async (name, data) => {
      const sent = await fetch(`/keep/${name}`, {method: 'POST', body: data});
      if (!sent.ok) throw new Error(`output ${name} could not be kept`);
      return name;
    },
    restart: async () => {
      litert.unloadLiteRt();
      await start();
    },
  });
}

let chromium;
try {
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const playwright = createRequire(path.join(root, 'package.json'))('playwright-core');
  chromium = await playwright.chromium.launch({
    executablePath: browser,
    args: ['--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-quic',
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  say({event: 'version', parts: {Chromium: chromium.version()}});
  const {version} = JSON.parse(fs.readFileSync(path.join(modules, 'core', 'package.json'), 'utf8'));
  const page = await chromium.newPage();
  await page.exposeFunction('say', (event) => {
    for (const set of event.outputs ?? []) for (const output of set) output.file = path.join(job.outputs, `${output.file}.bin`);
    say(event);
  });
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  await page.evaluate(inPage, [job, version]);
  await chromium.close();
  process.exit(0);
} catch (error) {
  fs.writeSync(2, `${error?.message ?? error}\n`);
  await chromium?.close().catch(() => {});
  process.exit(1);
}
