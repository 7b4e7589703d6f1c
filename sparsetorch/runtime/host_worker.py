"""The LiteRT interpreter of this computer as a worker (see `worker`): reference numbers without XNNPACK, or latency with it.

    python -m sparsetorch.runtime.host_worker JOB.json

A process of its own: the interpreter's own kernels can crash on files that other runtimes refuse.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def _say(event: str, **fields: Any) -> None:
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def _denormal_share(interpreter: Any) -> float:
    """Share of denormal numbers among all float values that the interpreter holds."""
    total = denormal = 0
    smallest = np.finfo(np.float32).tiny
    for detail in interpreter.get_tensor_details():
        if detail["dtype"] is not np.float32:
            continue
        try:
            values = np.abs(interpreter.get_tensor(detail["index"]))
        except ValueError:  # a tensor that no operator writes
            continue
        total += values.size
        denormal += int(np.count_nonzero((values > 0) & (values < smallest)))
    return denormal / total if total else 0.0


def _load(path: str, job: dict[str, Any]) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = OpResolverType.AUTO if job["delegate"] else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(
        path,
        num_threads=job["threads"],
        experimental_op_resolver_type=kind,
        experimental_preserve_all_tensors=bool(job["denormals"]),
    )
    interpreter.allocate_tensors()
    return interpreter


def _feed(interpreter: Any, inputs: list[dict[str, Any]]) -> None:
    for detail, given in zip(interpreter.get_input_details(), inputs, strict=True):
        values = np.fromfile(given["file"], np.dtype(given["dtype"])).reshape(given["shape"])
        interpreter.set_tensor(detail["index"], values)


def _run(job: dict[str, Any], index: int, model: dict[str, Any]) -> Any:
    began = time.perf_counter()
    interpreter = _load(model["path"], job)
    init_ms = 1e3 * (time.perf_counter() - began)
    outputs, denormal = [], 0.0
    for number, inputs in enumerate(model["inputs"]):
        _feed(interpreter, inputs)
        interpreter.invoke()
        if job["denormals"]:
            denormal = max(denormal, _denormal_share(interpreter))
        kept = []
        for at, detail in enumerate(interpreter.get_output_details()):
            values = interpreter.get_tensor(detail["index"])
            file = Path(job["outputs"]) / f"{index}-{number}-{at}.bin"
            values.tofile(file)
            kept.append({"name": detail["name"], "dtype": values.dtype.name, "file": str(file)})
        outputs.append(kept)
    _say("model", model=index, init_ms=init_ms, outputs=outputs, denormal=denormal)
    return interpreter


def main(path: str) -> None:
    """Work through one job."""
    from importlib.metadata import version

    job = json.loads(Path(path).read_text())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LiteRT writes its banner there
    _say("version", parts={"ai-edge-litert": version("ai-edge-litert")})
    loaded = {}
    for index, model in enumerate(job["models"]):
        try:
            interpreter = _run(job, index, model)
        except (RuntimeError, ValueError) as error:
            _say("failed", model=index, message=str(error).strip().splitlines()[0][:500])
            continue
        if job["runs"]:
            loaded[index] = interpreter
    for index, interpreter in loaded.items():
        _feed(interpreter, job["models"][index]["inputs"][0])
    for _ in range(job["warmup"]):
        for interpreter in loaded.values():
            interpreter.invoke()
    for number in range(job["runs"]):
        spent = {}
        first = number % max(len(loaded), 1)  # another one begins each round: what comes before may cost, too
        for index, interpreter in [*loaded.items()][first:] + [*loaded.items()][:first]:
            interpreter.invoke()  # brings back what another file drove out of the caches
            began = time.perf_counter()
            interpreter.invoke()
            spent[index] = 1e3 * (time.perf_counter() - began)
        _say("round", round=number, ms=spent)


if __name__ == "__main__":
    main(sys.argv[1])
