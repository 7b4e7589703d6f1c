"""`sparsetorch bench` with tiny networks on this computer's interpreter, and where a runtime is missing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import classifier

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.errors import BadInputError, UsageError
from sparsetorch.latency import bench as module
from sparsetorch.latency.variants import label, read_variants, write_precisions
from sparsetorch.runtime.worker import ModelResult, Timing, WorkerResult
from sparsetorch.tflite import Model, Storage, decode, encode, load, save


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """m.tflite and m.dense.tflite."""
    model = classifier()
    save(model, tmp_path / "m.dense.tflite")
    encode(model)
    save(model, tmp_path / "m.tflite")
    return tmp_path


class Fake:
    """A runtime whose models take a known time, and that notes what it is asked."""

    def __init__(self, *milliseconds: float) -> None:
        self.milliseconds = milliseconds
        self.timings: list[Timing] = []

    def __call__(self, jobs: Any, folder: Path, timing: Timing, progress: Any) -> WorkerResult:
        self.timings.append(timing)
        self.jobs = [job.path.name for job in jobs]
        rounds = [dict(enumerate(self.milliseconds[: len(jobs)])) for _ in range(timing.runs)]
        progress(timing.runs)
        return WorkerResult({"Fake": "1.2"}, [ModelResult(init_ms=7.0) for _ in jobs], rounds)


def use(monkeypatch: pytest.MonkeyPatch, fake: Any, sparse_path: bool = True, threads: int | None = None) -> Any:
    monkeypatch.setattr(module, "_RUNTIMES", {"wasm": module._Runtime(fake, lambda: sparse_path, threads)})
    return fake


def test_pitfall_30_everything_that_times_depend_on_is_told(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = use(monkeypatch, Fake(24.0, 10.0), threads=1)
    command = ["bench", str(files / "m.tflite"), "--runtime", "wasm", "--runs", "8", "--warmup", "3", "--threads", "4"]
    assert main([*command, "--json", str(files / "b.json"), "--plot", str(files / "b.svg")]) == 0
    assert fake.timings == [Timing(8, 3, 1)]
    found = json.loads((files / "b.json").read_text())
    assert (found["runs"], found["warmup"], found["threads"]) == (8, 3, 4)
    assert found["processor"]
    wasm = found["runtimes"]["wasm"]
    assert wasm["version"] == "Fake 1.2"
    assert wasm["threads"] == 1
    assert wasm["notes"] == ["LiteRT.js under Node.js runs on one thread; asked for 4"]
    dense, sparse = wasm["rows"]
    assert (dense["init_ms"], dense["ms"]["median"], dense["ratio"]) == (7.0, 24.0, None)
    assert sparse["ms"] == {"median": 10.0, "p10": 10.0, "p90": 10.0, "count": 8}
    assert sparse["ratio"] == {"value": 2.4, "low": 2.4, "high": 2.4}
    text = capsys.readouterr().out
    for told in (
        "Fake 1.2",
        "1 thread;",
        "8 runs after 3",
        "load ms",
        "p10",
        "p90",
        "2.40 times as fast",
        "asked for 4",
    ):
        assert told in text
    assert "To ship for wasm: sparse float32" in text
    assert "<svg" in (files / "b.svg").read_text()


def test_files_take_turns_after_a_warm_up(files: Path, tmp_path: Path) -> None:
    variants = read_variants([files / "m.dense.tflite", files / "m.tflite"])
    rounds: list[int] = []
    found = module.host.run([one.job for one in variants], tmp_path, Timing(6, 2), rounds.append)
    assert [list(one) for one in found.rounds] == [[0, 1], [1, 0]] * 3  # another one begins each round
    assert rounds == [1, 2, 3, 4, 5, 6]
    assert all(time > 0 for one in found.rounds for time in one.values())


def test_no_difference_is_claimed_where_none_is_measured(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Fake(10.0, 10.0))
    assert main(["bench", str(files / "m.tflite"), "--runtime", "wasm"]) == 0
    text = capsys.readouterr().out
    assert "no difference measured (1.00 to 1.00)" in text
    assert "times as fast" not in text
    assert "To ship" not in text


def test_the_host_measures_for_real(files: Path) -> None:
    found = sparsetorch.bench(files / "m.tflite", ["host"], runs=3, warmup=1)
    rows = found.runtimes["host"].rows
    assert [row.label for row in rows] == ["dense float32", "sparse float32"]
    assert found.reference == "dense float32"
    assert all(row.ms is not None and row.ms.count == 3 and 0 < row.ms.median < 1000 for row in rows)
    assert rows[0].bytes == (files / "m.dense.tflite").stat().st_size
    assert found.runtimes["host"].version.startswith("ai-edge-litert ")


@pytest.mark.parametrize(("avx", "code"), [(True, 5), (False, 0)])
def test_pitfall_25_sparse_files_on_a_host_with_avx_answer_nothing(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], avx: bool, code: int
) -> None:
    monkeypatch.setattr(module, "_RUNTIMES", {"host": module._Runtime(Fake(10.0, 9.0), lambda: not avx)})
    assert main(["bench", str(files / "m.tflite"), "--runtime", "host", "--runs", "2"]) == code
    told = capsys.readouterr()
    assert ("cannot be observed here" in told.err) == avx
    assert ("this processor has AVX" in told.out) == avx


def test_dense_files_on_a_host_are_an_answer(files: Path) -> None:
    assert main(["bench", str(files / "m.dense.tflite"), "--runtime", "host", "--runs", "2", "--quiet"]) == 0


def test_a_missing_runtime_is_told_with_what_installs_it(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "nothing"))
    assert main(["bench", str(files / "m.tflite"), "--runtime", "wasm", "--runs", "2"]) == 5
    told = capsys.readouterr()
    assert "sparsetorch runtime install wasm" in told.out
    assert main(["bench", str(files / "m.dense.tflite"), "--runtime", "host", "--runtime", "wasm", "--runs", "2"]) == 0
    assert "not measured" in capsys.readouterr().out


def test_a_lone_sparse_file_is_compared_with_itself_decoded(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "m.dense.tflite").unlink()
    fake = use(monkeypatch, Fake(24.0, 10.0))
    found = sparsetorch.bench(files / "m.tflite", ["wasm"], runs=2)
    assert fake.jobs == ["m.decoded.tflite", "m.tflite"]
    assert found.notes == ("there is no dense twin beside the file: the reference is the same weights, decoded",)


def test_the_reference_can_be_named_and_is_timed_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, Fake(10.0, 24.0))
    found = sparsetorch.bench([files / "m.dense.tflite"], ["wasm"], runs=2, reference=files / "m.tflite")
    assert fake.jobs == ["m.tflite", "m.dense.tflite"]
    assert found.reference == "sparse float32"
    assert found.runtimes["wasm"].rows[1].in_words == "2.40 times as slow (2.40 to 2.40)"


def test_every_precision_is_written_and_named(files: Path, tmp_path: Path) -> None:
    made, notes = write_precisions(files / "m.tflite", tmp_path)
    labels = [one.label for one in read_variants(made)]
    assert labels == [
        "dense float32",
        "sparse float32",
        "sparse float16",
        "sparse int8-stored",
        "dense int8, integer compute",
    ]
    assert notes == [
        "dense int8, integer compute: calibrated on random images, so its times count and its numbers do not"
    ]
    sizes = [path.stat().st_size for path in made[:4]]
    assert sizes == sorted(sizes, reverse=True)
    with pytest.raises(BadInputError, match="computes in integers"):
        write_precisions(made[-1], tmp_path)


def test_files_of_one_kind_are_told_apart_by_name(files: Path) -> None:
    save(load(files / "m.tflite"), files / "other.tflite")
    labels = [
        one.label for one in read_variants([files / "m.tflite", files / "other.tflite", files / "m.dense.tflite"])
    ]
    assert labels == ["sparse float32: m.tflite", "sparse float32: other.tflite", "dense float32"]


def test_labels() -> None:
    model = classifier()
    encode(model, storage=Storage("int8"))
    assert label(model) == "sparse int8-stored"
    assert label(decode(model)) == "dense float32"


def vanishing() -> Model:
    """Activations that shrink by 1e10 in each layer: the fourth computes denormal numbers, the rest zeros."""
    model = classifier(seed=3)
    for tensor in model.tensors:
        if tensor.data is not None and tensor.type_name == "float32":
            factor = 1e-10 if len(tensor.shape) == 4 else 0.0  # weights; biases
            tensor.data = np.frombuffer((tensor.array() * np.float32(factor)).tobytes(), np.uint8)
    return model


def test_vanishing_activations_are_warned_of(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake(10.0))
    save(vanishing(), files / "tiny.tflite")
    (note,) = sparsetorch.bench(files / "tiny.tflite", ["wasm"], runs=1).notes
    assert "denormal numbers" in note
    assert sparsetorch.bench(files / "m.dense.tflite", ["wasm"], runs=1).notes == ()


def test_a_file_that_does_not_run_is_named(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(jobs: Any, folder: Path, timing: Timing, progress: Any) -> WorkerResult:
        return WorkerResult(
            {"Fake": "1"}, [ModelResult(init_ms=1.0), ModelResult(failure="no such kernel")], [{0: 1.0}] * timing.runs
        )

    use(monkeypatch, run)
    assert main(["bench", str(files / "m.tflite"), "--runtime", "wasm"]) == 1
    told = capsys.readouterr()
    assert "m.tflite in wasm does not run: no such kernel" in told.err
    assert "does not run: no such kernel" in told.out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--runtime", "toaster"], 2, "unknown runtime 'toaster'"),
        (["--runs", "0"], 2, "runs: found 0, needed at least 1"),
        (["--threads", "0"], 2, "threads: found 0"),
        (["--plot", "no/such/folder.svg"], 1, "does not exist"),
        (["--all-precisions", "--reference", "x.tflite"], 2, "needed one"),
    ],
)
def test_bad_command_lines(
    files: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert main(["bench", str(files / "m.tflite"), *words]) == code
    assert told in capsys.readouterr().err


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.tflite").write_bytes(b"\x00\x00\x00\x00TFL3" + bytes(50))
    for path in (tmp_path / "x.tflite", tmp_path / "missing.tflite"):
        assert main(["bench", str(path), "--runtime", "host"]) == 1
        assert "Traceback" not in capsys.readouterr().err


def test_an_unknown_runtime_from_python() -> None:
    with pytest.raises(UsageError, match="Runtimes: host, wasm, chromium, android"):
        sparsetorch.bench("x.tflite", ["web"])
