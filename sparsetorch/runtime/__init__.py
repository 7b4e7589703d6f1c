"""Runtimes that load, run and time a .tflite file, each in a process of its own.

An adapter is a module with functions over any number of models; the interface is the same for all:

    jobs = [ModelJob.read(path), ...]                   # worker.ModelJob: a file, its model, its inputs
    with job_folder() as folder:                        # worker.job_folder: inputs and outputs, gone afterwards
        result = wasm.run_litert(jobs, folder, Timing(runs=60, warmup=5, threads=1), progress)
    result.version, result.parts                        # worker.WorkerResult
    result.models[i].init_ms, .operators, .outputs, .failure
    result.rounds[r][i]                                 # milliseconds of model i in round r: models take turns

| module | function | gives |
|---|---|---|
| `host` | `run` | outputs, latency: LiteRT of this environment, with XNNPACK |
| `host` | `run_plain` | outputs by LiteRT's own kernels, without XNNPACK: the reference |
| `wasm` | `run_litert` | outputs, latency: LiteRT.js under Node, today's XNNPACK |
| `wasm` | `observe_operators` | operator names, outputs: tfjs-tflite under Node, XNNPACK of 2023 |
| `chromium` | `run_litert` | outputs, latency: LiteRT.js in a page of headless Chromium, today's XNNPACK |
| `emulated` | `observe_operators` | operator names, outputs: LiteRT 2.3 on an emulated processor, today's XNNPACK |
| `emulated_arm64` | `observe_operators` | the same with the NEON kernels of phones |
| `android` | `observe_operators` | operator names, latency: benchmark_model on a phone |

`reference.references` and `model_io.read_outputs`, `relative_error` compare outputs; `prediction.predict` and
`count_operators` compare operator counts; `observe.observe` does both and is what `verify --observe` shows.
`js/litert_job.mjs` is the part of LiteRT.js's driver that a browser's page can use too; `worker` documents the messages.
All of them raise `CannotObserveError` (exit code 5) where a runtime is missing, with the command that installs it.
"""
