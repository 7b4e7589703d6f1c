"""Which XNNPACK operators run, by LiteRT's C interface with its profiler on: a worker (see `worker`) for an emulated processor.

    qemu-x86_64 -cpu Nehalem PYTHON -I -S profile_worker.py JOB.json

`job["library"]` is `libLiteRt.so` of an unmodified ai-edge-litert wheel. Standard library alone: this runs where numpy need
not load. C interface: LiteRT f674577, litert/c/litert_compiled_model.h, litert_profiler.h, litert_tensor_buffer.h.
"""

import ctypes as c
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_CPU = 1
_READ, _WRITE = 0, 1
_DELEGATE_OPERATOR = 8
"""Event type of an operator inside a delegate: tflite/core/api/profiler.h DELEGATE_OPERATOR_INVOKE_EVENT."""
_TYPES = {
    1: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8", 10: "float16", 11: "float64",
    13: "uint64", 16: "uint32", 17: "uint16",
}  # fmt: skip


class _Layout(c.Structure):
    _fields_ = (("rank", c.c_uint32), ("dimensions", c.c_int32 * 8), ("strides", c.c_uint32 * 8))


class _TensorType(c.Structure):
    _fields_ = (("element_type", c.c_int32), ("layout", _Layout))


class _Memory(c.Structure):
    _fields_ = (("total", c.c_size_t), ("allocated", c.c_size_t), ("in_use", c.c_size_t))


class _Event(c.Structure):
    _fields_ = (
        ("tag", c.c_char_p),
        ("type", c.c_int),
        ("start_us", c.c_uint64),
        ("elapsed_us", c.c_uint64),
        ("memory_before", _Memory),
        ("memory_after", _Memory),
        ("metadata1", c.c_uint64),
        ("metadata2", c.c_uint64),
        ("source", c.c_int),
    )


def _say(event: str, **fields: Any) -> None:
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


class _LiteRt:
    """The library; a call that fails is an exception."""

    def __init__(self, path: str) -> None:
        self.library = c.CDLL(path)
        self.environment = c.c_void_p()
        self.call("LiteRtCreateEnvironment", 0, None, c.byref(self.environment))

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self.library, name)
        function.restype = c.c_int
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} gave status {status}")

    def destroy(self, name: str, handle: c.c_void_p) -> None:
        function = getattr(self.library, f"LiteRtDestroy{name}")
        function.restype = None
        if handle:
            function(handle)


class _Model:
    """A compiled model with its buffers."""

    def __init__(self, litert: _LiteRt, path: str) -> None:
        self.litert = litert
        self.model, self.options, self.compiled, self.signature = (c.c_void_p() for _ in range(4))
        call, environment = litert.call, litert.environment
        call("LiteRtCreateModelFromFile", environment, path.encode(), c.byref(self.model))
        call("LiteRtCreateOptions", c.byref(self.options))
        call("LiteRtSetOptionsHardwareAccelerators", self.options, _CPU)
        self._deleter = c.CFUNCTYPE(None, c.c_void_p)(lambda payload: None)
        self._text = c.create_string_buffer(b"enable_profiling = true\n")  # lives as long as the options
        opaque, payload = c.c_void_p(), c.cast(self._text, c.c_void_p)
        call("LiteRtCreateOpaqueOptions", b"runtime_options_string", payload, self._deleter, c.byref(opaque))
        call("LiteRtAddOpaqueOptions", self.options, opaque)
        began = time.perf_counter()
        call("LiteRtCreateCompiledModel", environment, self.model, self.options, c.byref(self.compiled))
        self.init_ms = 1e3 * (time.perf_counter() - began)
        call("LiteRtGetModelSignature", self.model, c.c_size_t(0), c.byref(self.signature))
        self.inputs, self.outputs = self._buffers("Input"), self._buffers("Output")

    def _buffers(self, side: str) -> list[tuple[str, str, c.c_void_p]]:
        """Name, type and buffer of every input or output."""
        call, number, made = self.litert.call, c.c_size_t(), []
        call(f"LiteRtGetNumSignature{side}s", self.signature, c.byref(number))
        for index in range(number.value):
            name, tensor, kind = c.c_char_p(), c.c_void_p(), _TensorType()
            call(f"LiteRtGetSignature{side}Name", self.signature, c.c_size_t(index), c.byref(name))
            call(f"LiteRtGetSignature{side}TensorByIndex", self.signature, c.c_size_t(index), c.byref(tensor))
            call("LiteRtGetRankedTensorType", tensor, c.byref(kind))
            requirements, buffer = c.c_void_p(), c.c_void_p()
            at = (c.c_size_t(0), c.c_size_t(index))
            call(f"LiteRtGetCompiledModel{side}BufferRequirements", self.compiled, *at, c.byref(requirements))
            call(
                "LiteRtCreateManagedTensorBufferFromRequirements",
                self.litert.environment,
                c.byref(kind),
                requirements,
                c.byref(buffer),
            )
            text = (name.value or b"").decode("utf-8", "replace")
            made.append((text, _TYPES.get(kind.element_type, "uint8"), buffer))
        return made

    def feed(self, inputs: list[dict[str, Any]]) -> None:
        for at, given in enumerate(inputs):
            named = [index for index, (name, _, _) in enumerate(self.inputs) if name in given["names"]]
            buffer, content, address = (
                self.inputs[named[0] if named else at][2],
                Path(given["file"]).read_bytes(),
                c.c_void_p(),
            )
            self.litert.call("LiteRtLockTensorBuffer", buffer, c.byref(address), _WRITE)
            c.memmove(address, content, len(content))
            self.litert.call("LiteRtUnlockTensorBuffer", buffer)

    def run(self) -> None:
        handles = [(c.c_void_p * len(side))(*[buffer for _, _, buffer in side]) for side in (self.inputs, self.outputs)]
        sizes = [c.c_size_t(len(self.inputs)), c.c_size_t(len(self.outputs))]
        self.litert.call(
            "LiteRtRunCompiledModel", self.compiled, c.c_size_t(0), sizes[0], handles[0], sizes[1], handles[1]
        )

    def keep(self, stem: str) -> list[dict[str, str]]:
        kept = []
        for at, (name, kind, buffer) in enumerate(self.outputs):
            size, address = c.c_size_t(), c.c_void_p()
            self.litert.call("LiteRtGetTensorBufferPackedSize", buffer, c.byref(size))
            self.litert.call("LiteRtLockTensorBuffer", buffer, c.byref(address), _READ)
            file = Path(f"{stem}-{at}.bin")
            file.write_bytes(c.string_at(address, size.value))
            self.litert.call("LiteRtUnlockTensorBuffer", buffer)
            kept.append({"name": name, "dtype": kind, "file": str(file)})
        return kept

    def run_profiled(self) -> dict[str, int]:
        """One run, and the name of every XNNPACK operator in it with how often it ran."""
        profiler, number, call = c.c_void_p(), c.c_int(), self.litert.call
        call("LiteRtCompiledModelGetProfiler", self.compiled, c.byref(profiler))
        call("LiteRtResetProfiler", profiler)
        call("LiteRtStartProfiler", profiler)
        self.run()
        call("LiteRtStopProfiler", profiler)
        call("LiteRtGetNumProfilerEvents", profiler, c.byref(number))
        events = (_Event * number.value)()
        call("LiteRtGetProfilerEvents", profiler, number, events)
        counts: dict[str, int] = {}
        for event in events:
            if event.type == _DELEGATE_OPERATOR and event.tag:
                name = event.tag.decode("utf-8", "replace").split(" #")[0]
                counts[name] = counts.get(name, 0) + 1
        return counts

    def close(self) -> None:
        for _, _, buffer in self.inputs + self.outputs:
            self.litert.destroy("TensorBuffer", buffer)
        self.litert.destroy("CompiledModel", self.compiled)
        self.litert.destroy("Model", self.model)


def main(path: str) -> None:
    """Work through one job."""
    job = json.loads(Path(path).read_text())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the library's own chatter
    litert = _LiteRt(job["library"])
    _say("version", parts=job["versions"])
    for index, entry in enumerate(job["models"]):
        try:
            model = _Model(litert, entry["path"])
            outputs: list[Any] = []
            operators: dict[str, int] = {}
            for number, inputs in enumerate(entry["inputs"]):
                model.feed(inputs)
                if number == 0:
                    operators = model.run_profiled()
                else:
                    model.run()
                outputs.append(model.keep(str(Path(job["outputs"]) / f"{index}-{number}")))
            _say("model", model=index, init_ms=model.init_ms, operators=operators, outputs=outputs)
            model.close()
        except RuntimeError as error:
            _say("failed", model=index, message=str(error))


if __name__ == "__main__":
    main(sys.argv[1])
