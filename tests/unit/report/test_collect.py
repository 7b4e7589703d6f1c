"""What a report is made of: run folders, files, results; its verdict in words; JSON and tables; what is refused."""

import html
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.latency.result import BenchResult, RuntimeResult, Timed
from sparsetorch.latency.statistics import Ratio, Summary
from sparsetorch.report.collect import Contents, Observed, collect
from sparsetorch.report.headline import State, headline
from sparsetorch.report.page.render import render
from sparsetorch.tflite import encode, save, to_bytes
from sparsetorch.xnnpack import verify


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = classifier()
    encode(made)
    save(made, tmp_path / "model.tflite")
    return tmp_path / "model.tflite"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "summary.json").write_text('{"metrics": {"val_acc": 0.9}, "run_dir": "x"}')
    (folder / "metrics.csv").write_text(
        "epoch,step,sparsity,sparsity/a,val_acc\n0,1,0.1,0.2,\n,2,,,0.5\n1,4,0.8,0.9,\n,5,,,0.9\n"
    )
    return folder


def bench(file: str = "model.tflite") -> BenchResult:
    rows = (
        Timed("model.dense.tflite", "dense float32", 9, 1.0, Summary(20, 19, 21, 60)),
        Timed(file, "sparse float32", 5, 2.0, Summary(8, 7, 9, 60), Ratio(2.5, 2.4, 2.6)),
    )
    return BenchResult(
        60, 5, 1, "a processor", "dense float32", {"wasm": RuntimeResult("LiteRT.js", True, rows)}, "0.1"
    )


def test_sizes_of_every_precision_are_those_of_files(model: Path) -> None:
    sizes = {size.label: size for size in collect(model).sizes}
    assert set(sizes) == {
        "this file: sparse float32", "sparse float16", "sparse int8-stored",
        "dense float32", "dense float16", "dense int8-stored",
    }  # fmt: skip
    assert sizes["this file: sparse float32"].raw == model.stat().st_size
    dense = classifier()
    save(dense, model.with_name("dense.tflite"))
    assert sizes["dense float32"].raw == pytest.approx(model.with_name("dense.tflite").stat().st_size, rel=0.02)


def test_a_file_that_claims_huge_weights_is_not_unpacked(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparsetorch.report.collect._MOST_GROWTH", 1)
    found = collect(model)
    assert [size.label for size in found.sizes] == ["this file: sparse float32"]
    assert "other precisions are left out" in found.notes[0]


def test_names_that_are_no_unicode_do_not_stop_the_page(tmp_path: Path) -> None:
    made = classifier()
    made.graphs[0].operators[-1].outputs[0].name = "no unicode: X"
    encode(made)
    path = tmp_path / os.fsdecode(b"\xff.tflite")
    path.write_bytes(to_bytes(made).replace(b"no unicode: X", b"no unicode: \xff"))
    assert main(["report", str(path), "-o", str(tmp_path / "r.html"), "--quiet"]) == 0
    assert "no unicode: " in (tmp_path / "r.html").read_text()


def test_a_run_is_read_from_what_fit_leaves(run: Path, model: Path) -> None:
    found = collect(run)
    assert found.model is None
    assert found.run is not None
    assert found.run.sparsity["total"].steps == (1, 4)
    assert found.run.sparsity["a"].values == (0.2, 0.9)
    assert found.accuracy == {"val_acc": 0.9}
    assert "sparsetorch export" in found.notes[0]
    assert headline(found).state is State.UNKNOWN
    (run / "sparsity.csv").write_text(
        "step,layer,sparsity,dropped\n0,b,0.0,1\n0,total,0.0,1\n10,b,0.5,1\n10,total,0.5,1\n"
    )
    assert set(collect(run).run.sparsity) == {"b", "total"}  # type: ignore[union-attr]
    model.rename(run / "a.tflite")
    assert collect(run).model == str(run / "a.tflite")
    save(classifier(), run / "b.tflite")
    found = collect(run)
    assert found.model is None
    assert "name one by --model" in found.notes[0]
    save(classifier(), run / "a.dense.tflite")
    assert collect(run).model == str(run / "a.tflite")


def test_results_in_the_folder_are_found(run: Path, model: Path) -> None:
    model.rename(run / "model.tflite")
    (run / "bench.json").write_text(json.dumps(bench().to_dict()))
    (run / "test.json").write_text('{"metrics": {"test_acc": 0.875}}')
    (run / "other.json").write_text('{"something": "else"}')
    assert main(["verify", str(run / "model.tflite"), "--quiet", "--json", str(run / "verify.json")]) == 0
    found = collect(run)
    assert found.bench == bench()
    assert found.accuracy["test_acc"] == 0.875
    page = render(found)
    for told in ("2.50 times as fast (2.40 to 2.60)", "87.50%", "a processor", "2.50\N{MULTIPLICATION SIGN}"):
        assert told in page


def observed(**fields: Any) -> Observed:
    return replace(Observed("LiteRT.js 2.5", True, 9, 1e-6), **fields)


def test_headlines(model: Path) -> None:
    contents = collect(model)
    first = headline(contents)
    assert (first.state, first.words) == (State.ELIGIBLE, "Eligible for the sparse path on arm64 and wasm")
    assert "9 sparse matrix multiplications expected. A prediction" in first.detail

    seen = headline(replace(contents, observed={"wasm": observed()}))
    assert (seen.state, seen.words) == (State.OBSERVED, "The sparse path is taken")
    assert "9 of 9 seen in wasm (LiteRT.js 2.5)" in seen.detail

    blind = headline(replace(contents, observed={"host": observed(taken=None, spmm=None)}))
    assert blind.state is State.ELIGIBLE

    wrong = headline(replace(contents, observed={"wasm": observed(taken=False, wrong=("wrong numbers",))}))
    assert (wrong.state, wrong.detail) == (State.WRONG, "wrong numbers")

    partly = headline(collect(model, targets=["arm64", "x86"]))
    assert (partly.state, partly.words) == (State.PARTLY, "Eligible on arm64, not on x86")

    save(classifier(), model)
    assert headline(collect(model)).state is State.NOT
    unsafe = classifier(same=True)
    encode(unsafe)
    save(unsafe, model)
    assert headline(collect(model)).state is State.UNSAFE


def test_an_observation_of_another_file_is_left_out(model: Path, tmp_path: Path) -> None:
    fields = {**verify(model).to_dict(), "observed": {"wasm": asdict(observed())}}
    (tmp_path / "v.json").write_text(json.dumps(fields))
    assert collect(model, results=[tmp_path / "v.json"]).observed == {"wasm": observed()}
    (tmp_path / "v.json").write_text(json.dumps({**fields, "file": "other.tflite"}))
    found = collect(model, results=[tmp_path / "v.json"])
    assert not found.observed
    assert "other.tflite, which is not the file of this report" in found.notes[0]


def test_json_and_tables(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench.json").write_text(json.dumps(bench().to_dict()))
    words = ["report", str(model), "--results", str(tmp_path / "bench.json")]
    assert main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"]["eligible"] is True
    assert {row["role"] for row in found["network"]} >= {"sparse", "entry", "exit", "inside", "port"}
    assert len(found["sizes"]) == 6
    assert found["bench"]["runtimes"]["wasm"]["rows"][1]["in_words"] == "2.50 times as fast (2.40 to 2.60)"
    assert main([*words, "-o", str(tmp_path / "r.html")]) == 0
    told = capsys.readouterr().out
    for part in (
        "Eligible for the sparse path on arm64 and wasm",
        "sparse int8-stored",
        "2.50 times as fast",
        "r.html",
    ):
        assert part in told
    assert main([*words, "-o", str(tmp_path / "r.html"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_page_is_the_same_every_time(model: Path) -> None:
    assert render(collect(model)) == render(collect(model))


def test_a_network_that_is_not_eligible_is_written_with_exit_0(tmp_path: Path) -> None:
    made = classifier(stem_same=True)
    encode(made)
    save(made, tmp_path / "x.tflite")
    assert main(["report", str(tmp_path / "x.tflite"), "-o", str(tmp_path / "r.html"), "--quiet"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "Not eligible for the sparse path" in page
    (reason, *_) = verify(tmp_path / "x.tflite").reasons
    assert reason.fix in html.unescape(page)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("bench.json", '{"kind": "sparsetorch bench"}', "no result of `sparsetorch bench --json`"),
        ("any.json", '{"a": 1}', "needed the JSON of"),
        ("list.json", "[1]", "needed an object"),
        ("deep.json", "[" * 100_000, "cannot be read as JSON"),
        ("broken.json", "{", "cannot be read as JSON"),
    ],
)
def test_damaged_results(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, told: str
) -> None:
    (tmp_path / name).write_text(content)
    assert main(["report", str(model), "--results", str(tmp_path / name), "-o", str(tmp_path / "r.html")]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "[]"),
        ("sparsity.csv", "step,layer\n1,a\n"),
        ("sparsity.csv", "step,layer,sparsity\nx,a,1\n"),
    ],
)
def test_damaged_run_folders(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    (run / name).write_text(content)
    assert main(["report", str(run), "-o", str(tmp_path / "r.html")]) == 1
    assert name in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_what_is_neither_run_nor_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "half.tflite").write_bytes(model.read_bytes()[:5000])
    for source, told in (
        ("empty", "neither summary.json nor metrics.csv"),
        ("missing", "does not exist"),
        ("half.tflite", ""),
    ):
        assert main(["report", str(tmp_path / source), "-o", str(tmp_path / "r.html")]) == 1
        errors = capsys.readouterr().err
        assert told in errors
        assert "Traceback" not in errors
    assert main(["report", str(model), "-o", str(tmp_path)]) == 1
    assert main(["report", str(model), "--target", "moon"]) == 2


def test_nothing_of_a_run_is_needed(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text("{}")
    assert render(collect(tmp_path)).startswith("<!doctype html>")
    assert render(Contents("x")).startswith("<!doctype html>")
