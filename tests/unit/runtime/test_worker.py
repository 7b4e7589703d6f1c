"""The dialogue with a worker: crashes cost one model, silence is given up, chatter is overheard, rounds are complete."""

import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier

from sparsetorch.errors import CannotObserveError
from sparsetorch.runtime.worker import ModelJob, Timing, WorkerResult, run_worker
from sparsetorch.tflite import save

_HEAD = """
import json, os, pathlib, signal, sys, time
job = json.loads(pathlib.Path(sys.argv[1]).read_text())
say = lambda **event: print(json.dumps(event), flush=True)
def done(index):
    data = pathlib.Path(job["models"][index]["inputs"][0][0]["file"]).read_bytes()
    file = pathlib.Path(job["outputs"]) / f"{index}.bin"
    file.write_bytes(data[:8])
    outputs = [[dict(name="o", dtype="float32", file=str(file))]]
    say(event="model", model=index, init_ms=1.5, operators={"Add (ND)": 2}, outputs=outputs)
say(event="version", parts={"fake": "1.0"})
names = [pathlib.Path(model["path"]).stem for model in job["models"]]
"""


@pytest.fixture
def jobs(tmp_path: Path) -> list[ModelJob]:
    made = []
    for name in ("one", "two", "three"):
        save(classifier(), tmp_path / f"{name}.tflite")
        made.append(ModelJob.read(tmp_path / f"{name}.tflite", sets=1))
    return made


def work(
    code: str, jobs: list[ModelJob], folder: Path, timing: Timing | None = None, limit: float = 60
) -> WorkerResult:
    script = folder / "worker.py"
    script.write_text(_HEAD + textwrap.dedent(code))
    return run_worker([sys.executable, script], jobs, folder, timing, limit=limit)


def test_every_model_gets_its_answer(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        print("a library writes here as well")
        for index in range(3): done(index)
    """
    result = work(code, jobs, tmp_path)
    assert result.version == "fake 1.0"
    for job, model in zip(jobs, result.models, strict=True):
        assert (model.failure, model.init_ms, model.operators) == (None, 1.5, {"Add (ND)": 2})
        np.testing.assert_array_equal(np.fromfile(model.outputs[0][0].file, np.float32), job.inputs[0][0].ravel()[:2])


def test_a_crash_costs_one_model(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        for index, name in enumerate(names):
            if name == "two": os.kill(os.getpid(), signal.SIGSEGV)
            done(index)
    """
    one, two, three = work(code, jobs, tmp_path).models
    assert (one.failure, three.failure) == (None, None)
    assert two.failure == "the runtime crashed (signal SIGSEGV)"
    assert three.outputs


def test_a_model_that_hangs_costs_itself(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        for index, name in enumerate(names):
            if name == "one": time.sleep(60)
            done(index)
    """
    one, two, three = work(code, jobs, tmp_path, limit=2).models
    assert one.failure == "no answer in 2 s"
    assert (two.failure, three.failure) == (None, None)


def test_a_refusal_is_passed_on(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        say(event="failed", model=0, message="unknown operator")
        done(1)
        done(2)
    """
    one, two, _ = work(code, jobs, tmp_path).models
    assert (one.failure, two.failure) == ("unknown operator", None)


def test_a_worker_that_ends_early_without_a_word(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        if "one" in names: done(0)
        elif "three" in names and len(names) == 1: done(0)
    """
    one, two, three = work(code, jobs, tmp_path).models
    assert (one.failure, three.failure) == (None, None)
    assert two.failure == "the runtime stopped without a word"


def test_one_that_does_not_start_says_why(jobs: list[ModelJob], tmp_path: Path) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no such module')")
    with pytest.raises(CannotObserveError, match="exit code 1: no such module"):
        run_worker([sys.executable, script], jobs, tmp_path)


def test_rounds_begin_again_without_a_model_that_failed(jobs: list[ModelJob], tmp_path: Path) -> None:
    """What was timed beside a crashing model is thrown away."""
    code = """
        loaded = []
        for index, name in enumerate(names):
            if name == "two": os.kill(os.getpid(), signal.SIGKILL)
            done(index)
            loaded.append(index)
        for number in range(job["runs"]):
            say(event="round", round=number, ms={str(index): 1.0 + index for index in loaded})
    """
    result = work(code, jobs, tmp_path, Timing(runs=3, warmup=1, threads=1))
    assert result.rounds == [{0: 1.0, 2: 2.0}] * 3
    assert result.models[1].failure is not None


def test_a_crash_while_timing_blames_no_model(jobs: list[ModelJob], tmp_path: Path) -> None:
    code = """
        for index in range(3): done(index)
        say(event="round", round=0, ms={"0": 1.0, "1": 1.0, "2": 1.0})
        os.kill(os.getpid(), signal.SIGABRT)
    """
    with pytest.raises(CannotObserveError, match=r"while it was timing.*SIGABRT"):
        work(code, jobs, tmp_path, Timing(runs=2))
