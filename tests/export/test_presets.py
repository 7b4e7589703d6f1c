"""Every preset on a trained network: what it writes, how large it is, and what verify says of it."""

import json
from pathlib import Path

import pytest
from converted import AlreadyConverted
from digits_road import Road

from sparsetorch.cli import main
from sparsetorch.exporter import pipeline
from sparsetorch.tflite import load

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "export").glob("*.yaml"))


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_writes_what_it_says(
    preset: Path, road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The conversion is that of the session; all else is the command."""
    monkeypatch.setattr(pipeline, "torch_to_onnx", lambda *_: None)
    monkeypatch.setattr(pipeline, "check_onnx", lambda *_: [])
    monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(road.dense_twin.read_bytes()))
    out = tmp_path / "m.tflite"
    words = ["--checkpoint", str(road.checkpoint), "-o", str(out), "--preset", str(preset), "--quiet"]
    assert main(["export", *words, "--json", str(tmp_path / "r.json")]) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    dense = road.dense_twin.stat().st_size
    size = {"float32": 0.3, "float16": 0.2, "int8": 0.2}
    if preset.stem in ("dense-int8", "tflite-micro"):
        assert not told["eligible"]
        assert out.stat().st_size == pytest.approx(dense, rel=0.01)
        quantized = load(tmp_path / "m.int8.tflite")
        assert "int8" in {tensor.type_name for tensor in quantized.tensors}
        assert (tmp_path / "m.int8.tflite").stat().st_size < 0.6 * dense
    else:
        assert told["eligible"]
        values = {layer["values"] for layer in told["layers"] if layer["encoding"] == "sparse"}
        assert len(values) == 1
        assert out.stat().st_size < size[values.pop()] * dense
    assert (tmp_path / "m.dense.tflite").exists() is ("dense_twin: true" in preset.read_text())
