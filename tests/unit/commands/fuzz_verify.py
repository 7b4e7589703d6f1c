"""Run by test_hostile_verify.py in a process with a memory limit: `verify` on damaged files, answers as JSON lines."""

import contextlib
import io
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import flatbuffers
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from ai_edge_litert import schema_py_generated as schema
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.tflite import Storage, encode, to_bytes

GIBIBYTE = 2**30


def packed(change: Callable[[schema.ModelT], object], good: bytes) -> bytes:
    """The file with one field changed: sound as a flatbuffer, senseless as a model."""
    raw = schema.ModelT.InitFromObj(schema.Model.GetRootAs(good, 0))
    change(raw)
    builder = flatbuffers.Builder(1024)
    builder.Finish(raw.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def senseless(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Absurd shapes, indices and encodings, one at a time."""

    def graph(raw: schema.ModelT) -> schema.SubGraphT:
        return raw.subgraphs[0]

    def sparse(raw: schema.ModelT) -> schema.TensorT:
        return next(tensor for tensor in graph(raw).tensors if tensor.sparsity is not None)

    def segments(raw: schema.ModelT, values: list[int]) -> None:
        metadata = sparse(raw).sparsity.dimMetadata[-1]
        metadata.arraySegments = schema.Int32VectorT()
        metadata.arraySegmentsType = schema.SparseIndexVector.Int32Vector
        metadata.arraySegments.values = np.array(values, np.int32)

    huge = 2**31 - 1
    yield "2^31 elements", packed(lambda raw: setattr(sparse(raw), "shape", [huge, 1, 1, 1]), good)
    yield "absurd shape", packed(lambda raw: setattr(sparse(raw), "shape", [huge] * 8), good)
    yield "negative shape", packed(lambda raw: setattr(sparse(raw), "shape", [-5, 1, 1, -7]), good)
    yield "no shape", packed(lambda raw: setattr(sparse(raw), "shape", []), good)
    yield (
        "absurd input",
        packed(lambda raw: setattr(graph(raw).tensors[graph(raw).inputs[0]], "shape", [huge] * 4), good),
    )
    yield "huge array_segments", packed(lambda raw: segments(raw, [0, huge, huge]), good)
    yield "falling array_segments", packed(lambda raw: segments(raw, [9, 5, 1, 0]), good)
    yield "negative array_segments", packed(lambda raw: segments(raw, [-huge] * 9), good)
    yield "huge dense_size", packed(lambda raw: setattr(sparse(raw).sparsity.dimMetadata[0], "denseSize", huge), good)
    yield "traversal order", packed(lambda raw: setattr(sparse(raw).sparsity, "traversalOrder", [9, 8, 7, huge]), good)
    yield "block map", packed(lambda raw: setattr(sparse(raw).sparsity, "blockMap", [huge, -1]), good)
    yield "no metadata", packed(lambda raw: setattr(sparse(raw).sparsity, "dimMetadata", []), good)
    yield "buffer out of range", packed(lambda raw: setattr(sparse(raw), "buffer", huge), good)
    yield "tensor out of range", packed(lambda raw: setattr(graph(raw).operators[2], "inputs", [huge, -huge]), good)
    yield "operator code out of range", packed(lambda raw: setattr(graph(raw).operators[2], "opcodeIndex", huge), good)
    yield "output out of range", packed(lambda raw: setattr(graph(raw), "outputs", [huge]), good)
    yield "no graph", packed(lambda raw: setattr(raw, "subgraphs", []), good)

    def cycle(raw: schema.ModelT) -> None:
        operators = graph(raw).operators
        operators[3].inputs = [operators[-1].outputs[0], *list(operators[3].inputs)[1:]]

    yield "cycle", packed(cycle, good)
    yield (
        "its own input",
        packed(lambda raw: setattr(graph(raw).operators[3], "inputs", list(graph(raw).operators[3].outputs)), good),
    )


def damaged(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Cut at every sixteenth, then 2,000 with flips: one anywhere, one in the tables, offsets of all ones by turns."""
    for part in range(16):
        yield "cut", good[: len(good) * part // 16]
    random = np.random.default_rng(0)
    tables = np.flatnonzero(np.frombuffer(good, np.uint8) < 32)
    for turn in range(2000):
        made = bytearray(good)
        if turn % 4 == 0:
            made[int(random.integers(0, len(good)))] ^= int(random.integers(1, 256))
        elif turn % 4 == 3:
            place = int(random.choice(tables)) & ~3
            made[place : place + 4] = [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80"][turn % 3]
        else:
            made[int(random.choice(tables))] = int(random.integers(0, 256))
        yield "flip", bytes(made)


def run(path: Path) -> dict[str, object]:
    """One `verify`: its exit code, what it says, how long it took."""
    out, error = io.StringIO(), io.StringIO()
    started = time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(["verify", str(path), "--quiet"])
    return {"code": code, "seconds": time.perf_counter() - started, "error": error.getvalue()}


def limited() -> None:
    """No more than 1 GiB beside what loading Python and numpy took."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + GIBIBYTE, held + GIBIBYTE))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    model = classifier()
    encode(model, storage=Storage("int8"))
    content = to_bytes(model)
    file = folder / "m.tflite"
    limited()
    for kind, data in [("good", content), *senseless(content), *damaged(content)]:
        file.write_bytes(data)
        print(json.dumps({"kind": kind, **run(file)}), flush=True)
