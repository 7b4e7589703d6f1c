"""The dialogue with a phone, against an adb that records it and replays what LiteRT's benchmark_model prints."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.errors import CannotObserveError
from sparsetorch.latency.statistics import Summary
from sparsetorch.runtime import android
from sparsetorch.runtime.prediction import count_operators
from sparsetorch.runtime.reference import references
from sparsetorch.runtime.worker import ModelJob, Timing
from sparsetorch.tflite import encode, save

HERE = Path(__file__).parent
PROFILE = (HERE / "benchmark_model.txt").read_text()


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an adb, a benchmark_model, and one phone with /data/local/tmp."""
    folder = tmp_path / "adb"
    (folder / "phone" / "data" / "local" / "tmp").mkdir(parents=True)
    (folder / "devices").write_text("SERIAL1\tdevice\n")
    (folder / "profile").write_text(PROFILE)
    script = folder / "adb"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "fake_adb.py"} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    program = tmp_path / "benchmark_model"
    program.write_bytes(b"\x7fELF")
    monkeypatch.setenv("FAKE_ADB", str(folder))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SPARSETORCH_BENCHMARK_MODEL", str(program))
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    return folder


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ModelJob:
    path = tmp_path_factory.mktemp("model") / "good.tflite"
    model = classifier()
    encode(model)
    save(model, path)
    return ModelJob.read(path, sets=2)


@pytest.fixture
def answer(phone: Path, job: ModelJob, tmp_path: Path) -> Callable[[int], None]:
    """Let the phone give the reference's numbers for one set of inputs."""
    (reference,) = references([job], tmp_path)

    def choose(number: int) -> None:
        np.concatenate([values.ravel() for values in reference.outputs[number]]).astype(np.float32).tofile(
            phone / "output"
        )

    choose(0)
    return choose


def calls(phone: Path) -> list[list[str]]:
    return [json.loads(line) for line in (phone / "log").read_text().splitlines()]


def test_the_dialogue(phone: Path, job: ModelJob, answer: Callable[[int], None], tmp_path: Path) -> None:
    result = android.observe_operators([job], tmp_path, Timing(runs=5, warmup=1, threads=1))
    model = result.models[0]
    assert model.failure is None
    assert result.version == "benchmark_model benchmark_model, Pixel 8 Android 15, arm64-v8a"
    assert model.operators is not None
    assert model.operators["Convolution (NCHW, F32) SPMM"] == 9
    found = count_operators(model.operators)
    assert (found.spmm, found.entries, found.depthwise, found.channels_last) == (9, 1, 4, 1)
    assert (model.init_ms, result.rounds) == (3.412, [{0: 0.4095}])
    assert len(model.outputs) == 2
    said = calls(phone)
    commands = [words[3].split()[0] if words[2:3] == ["shell"] else words[2] for words in said if words != ["devices"]]
    ran = ["push", "push", "shell", "pull"]
    assert [command if "benchmark_model" not in command else "shell" for command in commands] == [
        *["getprop"] * 3, "mkdir", "push", "chmod", *ran, *ran[1:], "rm",
    ]  # fmt: skip
    options = next(words[3] for words in said if "--graph=" in words[-1])
    for wanted in ("--num_runs=5", "--num_threads=1", "--enable_op_profiling=true", "--use_xnnpack=true",
                   "--input_layer_shape=1,32,32,3", "--input_layer=input0", "--warmup_runs=1"):  # fmt: skip
        assert wanted in options
    assert list((phone / "phone" / "data" / "local" / "tmp").iterdir()) == []  # the phone is as it was


def test_verify_on_a_phone(
    phone: Path, job: ModelJob, answer: Callable[[int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake gives the numbers of one set of inputs, so that is what the command compares here."""
    monkeypatch.setattr(
        ModelJob, "read", classmethod(lambda cls, path: ModelJob(Path(path), job.model, job.inputs[:1]))
    )
    words = ["verify", str(job.path), "--observe", "android", "--quiet", "--json", str(tmp_path / "v.json")]
    (phone / "profile").write_text(
        PROFILE.replace("count=5 first", "count=1 first").replace("\t        5\t", "\t        1\t")
    )
    assert main(words) == 0
    observed = json.loads((tmp_path / "v.json").read_text())["observed"]["android"]
    assert (observed["taken"], observed["spmm"], observed["disagreements"]) == (True, 9, [])
    assert observed["max_rel_error"] < 1e-6


def test_wrong_numbers_on_a_phone_are_exit_4(phone: Path, job: ModelJob, tmp_path: Path) -> None:
    np.arange(10, dtype=np.float32).tofile(phone / "output")
    assert main(["verify", str(job.path), "--observe", "android", "--quiet"]) == 4


def test_a_file_that_the_phone_does_not_load(phone: Path, job: ModelJob, tmp_path: Path) -> None:
    (phone / "profile").write_text("INFO: STARTING!\nERROR: Failed to allocate tensors!\nERROR: Benchmarking failed.\n")
    result = android.observe_operators([job], tmp_path)
    assert result.models[0].failure == "benchmark_model did not run it: ERROR: Benchmarking failed."


def test_a_phone_that_goes_away(phone: Path, job: ModelJob, tmp_path: Path) -> None:
    """No folder to push to stands for a cable that is pulled: adb itself fails."""
    (phone / "phone" / "data" / "local" / "tmp").rmdir()
    (phone / "phone" / "data" / "local" / "tmp").touch()
    with pytest.raises(CannotObserveError, match="adb shell failed on SERIAL1"):
        android.observe_operators([job], tmp_path)


@pytest.mark.parametrize(
    ("devices", "serial", "says"),
    [
        ("", None, r"lists none; needed one phone with USB debugging allowed"),
        ("SERIAL1\tunauthorized\n", None, r"lists SERIAL1 \(unauthorized\)"),
        ("A\tdevice\nB\tdevice\n", None, r"lists A \(device\), B \(device\).*Name one by ANDROID_SERIAL"),
        ("A\tdevice\n", "C", r"needed C, which ANDROID_SERIAL names"),
    ],
)
def test_no_phone(
    phone: Path,
    devices: str,
    serial: str | None,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    job: ModelJob,
    tmp_path: Path,
) -> None:
    (phone / "devices").write_text(devices)
    if serial:
        monkeypatch.setenv("ANDROID_SERIAL", serial)
    with pytest.raises(CannotObserveError, match=says):
        android.observe_operators([job], tmp_path)


def test_one_of_two_phones(
    phone: Path, job: ModelJob, answer: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (phone / "devices").write_text("A\tdevice\nB\tdevice\n")
    monkeypatch.setenv("ANDROID_SERIAL", "B")
    android.observe_operators([job], tmp_path)
    assert {words[1] for words in calls(phone) if words[0] == "-s"} == {"B"}


def test_no_program(phone: Path, job: ModelJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSETORCH_BENCHMARK_MODEL", "/nowhere")
    with pytest.raises(CannotObserveError, match=r"/nowhere is no file.*SPARSETORCH_BENCHMARK_MODEL"):
        android.observe_operators([job], tmp_path)


def test_no_adb(
    job: ModelJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["verify", str(job.path), "--observe", "android", "--quiet"]) == 5
    assert "adb is not installed" in capsys.readouterr().err


def test_bench_on_a_phone_visits_the_files_in_turns(
    phone: Path, job: ModelJob, answer: Callable[[int], None], tmp_path: Path
) -> None:
    dense = tmp_path / "dense.tflite"
    save(classifier(), dense)
    found = sparsetorch.bench([dense, job.path], ["android"], runs=10, warmup=2, threads=4)
    runtime = found.runtimes["android"]
    assert runtime.shows_sparse_path
    assert runtime.notes == ("each time is an average of benchmark_model's; files take turns in 5 visits",)
    assert [(row.label, row.init_ms, row.ms) for row in runtime.rows] == [
        (label, 3.412, Summary(0.4095, 0.4095, 0.4095, 5)) for label in ("dense float32", "sparse float32")
    ]
    assert runtime.rows[1].operators["Convolution (NCHW, F32) SPMM"] == 9
    assert runtime.rows[1].in_words == "no difference measured (1.00 to 1.00)"
    ran = [words[3] for words in calls(phone) if "--graph=" in words[-1]]
    assert len(ran) == 10
    assert all("--num_runs=2" in command and "--num_threads=4" in command for command in ran)
    sizes = [Path(words[3]).name for words in calls(phone) if words[2:3] == ["push"] and words[3].endswith(".tflite")]
    assert sizes == ["dense.tflite", "good.tflite"] * 5
