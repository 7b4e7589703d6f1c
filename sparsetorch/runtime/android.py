"""A phone, over adb: LiteRT's benchmark_model with its operator profile.

The phone needs nothing but USB debugging. benchmark_model is a program of LiteRT, built for the phone or downloaded from its
releases; the environment variable `SPARSETORCH_BENCHMARK_MODEL` names it, `ANDROID_SERIAL` the phone where there are several.
The file, its inputs and the program go to a folder of their own under /data/local/tmp, which is deleted afterwards.

Options: LiteRT f674577 tflite/tools/benchmark/benchmark_tflite_model.cc GetFlags, benchmark_model.cc.
"""

import contextlib
import os
import re
import shlex
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsetorch.errors import CannotObserveError
from sparsetorch.exporter.interpreter import Array
from sparsetorch.process import ProcessError, output
from sparsetorch.runtime.model_io import Output, inputs_of, outputs_of
from sparsetorch.runtime.profile import delegate_operators
from sparsetorch.runtime.worker import ModelJob, ModelResult, Timing, WorkerResult
from sparsetorch.tflite.model import element_count

PROGRAM = "SPARSETORCH_BENCHMARK_MODEL"
_PLACE = "/data/local/tmp"
_LIMIT = 600.0
_TIMINGS = re.compile(r"Inference timings in us: Init: ([\d.e+]+), .*Inference \(avg\): ([\d.e+]+)")
_RUNS = re.compile(r"^(?:INFO: )?count=(\d+) ", re.MULTILINE)


def observe_operators(
    jobs: Sequence[ModelJob],
    folder: Path,
    timing: Timing | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
) -> WorkerResult:
    """Operator names and outputs of all models on a phone; with `timing` the average latency of each as one round.

    benchmark_model gives averages of its own runs, so models do not take turns there.

    Raises:
        CannotObserveError: no adb, no phone, or no benchmark_model.
    """
    phone = _Phone.find()
    program = _program()
    chosen = timing or Timing(runs=1)
    place = f"{_PLACE}/sparsetorch-{uuid.uuid4().hex[:12]}"
    result = WorkerResult(phone.versions(program), [], [])
    averages: dict[int, float] = {}
    phone.shell(f"mkdir -p {place}")
    try:
        phone.push(program, f"{place}/benchmark_model")
        phone.shell(f"chmod 755 {place}/benchmark_model")
        for index, job in enumerate(jobs):
            model, average = _run(phone, place, job, folder / f"android-{index}", chosen)
            result.models.append(model)
            if average is not None:
                averages[index] = average
            progress(index + 1)
    finally:
        with contextlib.suppress(CannotObserveError):  # the phone is gone, and that is being told
            phone.shell(f"rm -rf {place}")
    if timing is not None:
        result.rounds.append(averages)
    return result


def parts() -> dict[str, str]:
    """Part -> version, of the phone and the program.

    Raises:
        CannotObserveError: no adb, no phone, or no benchmark_model.
    """
    return _Phone.find().versions(_program())


def _program() -> Path:
    named = os.environ.get(PROGRAM)
    if named and Path(named).is_file():
        return Path(named)
    what = f"{named} is no file" if named else "none is named"
    raise CannotObserveError(
        f"a benchmark_model built for the phone is needed ({what}): download or build LiteRT's "
        f"(ai.google.dev/edge/litert, `bazel build -c opt --config=android_arm64 //tflite/tools/benchmark:benchmark_model`) "
        f"and set {PROGRAM} to its path."
    )


class _Phone:
    """One device that adb reaches."""

    def __init__(self, adb: str, serial: str) -> None:
        self.adb, self.serial = adb, serial

    @classmethod
    def find(cls) -> "_Phone":
        adb = shutil.which("adb")
        if adb is None:
            raise CannotObserveError(
                "adb is not installed; on Debian and Ubuntu: apt-get install adb; elsewhere: Android's platform tools."
            )
        try:
            listed = output([adb, "devices"], limit=60).splitlines()[1:]
        except ProcessError as error:
            raise CannotObserveError(f"`adb devices` ended with {error}; is the adb server running?") from error
        states = dict(line.split("\t", 1) for line in listed if "\t" in line)
        ready = [serial for serial, state in states.items() if state.strip() == "device"]
        wanted = os.environ.get("ANDROID_SERIAL")
        if wanted is None and len(ready) == 1:
            return cls(adb, ready[0])
        if wanted in ready:
            return cls(adb, wanted)
        found = ", ".join(f"{serial} ({state.strip()})" for serial, state in states.items()) or "none"
        needed = f"{wanted}, which ANDROID_SERIAL names" if wanted else "one phone with USB debugging allowed"
        more = " Name one by ANDROID_SERIAL." if len(ready) > 1 else ""
        raise CannotObserveError(f"`adb devices` lists {found}; needed {needed}.{more}")

    def shell(self, command: str, limit: float = 60) -> str:
        """Run a command on the phone; what it wrote, standard error included."""
        return self._call("shell", f"{command} 2>&1", limit=limit)

    def push(self, source: Path, target: str) -> None:
        """Copy a file to the phone."""
        self._call("push", str(source), target, limit=_LIMIT)

    def pull(self, source: str, target: Path) -> None:
        """Copy a file from the phone."""
        self._call("pull", source, str(target), limit=_LIMIT)

    def _call(self, *words: str, limit: float) -> str:
        try:
            return output([self.adb, "-s", self.serial, *words], limit=limit)
        except ProcessError as error:
            said = _last_error(error.errors) if error.errors else str(error)
            raise CannotObserveError(f"adb {words[0]} failed on {self.serial}: {said}") from error

    def versions(self, program: Path) -> dict[str, str]:
        names = ("ro.product.model", "ro.build.version.release", "ro.product.cpu.abi")
        model, release, processor = (self.shell(f"getprop {name}").strip() for name in names)
        return {"benchmark_model": program.name, model or "phone": f"Android {release}, {processor}"}


def _run(phone: _Phone, place: str, job: ModelJob, folder: Path, timing: Timing) -> tuple[ModelResult, float | None]:
    """One model: for each set of inputs one run of the program, the first of which is timed."""
    model = ModelResult()
    average: float | None = None
    folder.mkdir(parents=True, exist_ok=True)
    phone.push(job.path, f"{place}/model.tflite")
    for number, arrays in enumerate(job.inputs):
        once = Timing(runs=1, threads=timing.threads) if number else timing
        said = phone.shell(f"{_command(phone, place, job, arrays, folder, once)} || true", limit=_LIMIT)
        found = _TIMINGS.search(said)
        if found is None:
            model.failure = f"benchmark_model did not run it: {_last_error(said)}"
            break
        if number == 0:
            model.init_ms, average = float(found[1]) / 1e3, float(found[2]) / 1e3
            runs = int(_RUNS.findall(said)[-1]) if _RUNS.search(said) else 1
            model.operators = delegate_operators(said, runs)
        target = folder / f"out-{number}.bin"
        phone.pull(f"{place}/output.bin", target)
        model.outputs.append(_split(job, target))
    return model, average


def _command(phone: _Phone, place: str, job: ModelJob, arrays: Sequence[Array], folder: Path, timing: Timing) -> str:
    names, shapes, files = [], [], []
    for at, (slot, array) in enumerate(zip(inputs_of(job.model), arrays, strict=True)):
        file = folder / f"in-{at}.bin"
        file.write_bytes(array.tobytes())
        phone.push(file, f"{place}/{file.name}")
        names.append(slot.tensor.name)
        shapes.append(",".join(map(str, array.shape)))
        files.append(f"{slot.tensor.name.replace(':', chr(92) + ':')}:{place}/{file.name}")
    options = {
        "graph": f"{place}/model.tflite",
        "num_threads": timing.threads,
        "use_xnnpack": "true",
        "num_runs": max(timing.runs, 1),
        "min_secs": 0,
        "warmup_runs": timing.warmup,
        "warmup_min_secs": 0,
        "enable_op_profiling": "true",
        "input_layer": ",".join(names),
        "input_layer_shape": ":".join(shapes),
        "input_layer_value_files": ",".join(files),
        "output_filepath": f"{place}/output.bin",
    }
    words = [f"{place}/benchmark_model", *(f"--{name}={value}" for name, value in options.items())]
    return " ".join(map(shlex.quote, words))


def _split(job: ModelJob, file: Path) -> list[Output]:
    """The program writes all outputs behind each other, in the order of the file."""
    whole, outputs, start = file.read_bytes(), [], 0
    for at, slot in enumerate(outputs_of(job.model)):
        dtype = slot.tensor.dtype
        name = "float32" if dtype is None else dtype.name
        size = (4 if dtype is None else dtype.itemsize) * element_count(slot.tensor.shape)
        part = file.with_name(f"{file.stem}-{at}.bin")
        part.write_bytes(whole[start : start + size])
        start += size
        outputs.append(Output(slot.tensor.name, name, part))
    return outputs


def _last_error(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [line for line in lines if "error" in line.lower()]
    return (marked or lines or ["it said nothing"])[-1][:300]
