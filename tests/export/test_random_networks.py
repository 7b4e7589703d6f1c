"""Random networks of users' blocks down the whole road: what goes out computes what PyTorch does, and says what it is."""

from pathlib import Path

import pytest
from converted import AlreadyConverted
from random_networks import SIZE, random_network

import sparsetorch
from sparsetorch.exporter import pipeline
from sparsetorch.exporter.onnx_to_tflite import convert_all
from sparsetorch.exporter.pipeline import prune_once
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx

NETWORKS = 20


@pytest.mark.slow
def test_random_networks_are_exported_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow is loaded once for all conversions; everything else is `export`, network by network."""
    sources = []
    for seed in range(NETWORKS):
        network = random_network(seed)
        prune_once(network, 0.85)
        torch_to_onnx(network, (1, 3, SIZE, SIZE), tmp_path / f"{seed}.onnx")
        sources.append(tmp_path / f"{seed}.onnx")
    converted = dict(enumerate(convert_all(sources)))
    eligible, reasons = 0, []
    for seed in range(NETWORKS):
        network = random_network(seed)
        monkeypatch.setattr(pipeline, "torch_to_onnx", lambda *_: None)
        monkeypatch.setattr(pipeline, "check_onnx", lambda *_: [])
        monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(converted[seed]))
        storage = sparsetorch.Storage(("float32", "float16", "int8")[seed % 3])
        report = sparsetorch.export(
            network, tmp_path / f"{seed}.tflite", (3, SIZE, SIZE), sparsity=0.85, storage=storage, dense_twin=True
        )
        assert report.dense_twin is not None
        assert max(report.dense_twin.errors) <= 1e-5, seed
        assert max(report.model.errors) <= {"float32": 1e-5, "float16": 1e-2, "int8": 0.3}[storage.values], seed
        unsafe = [name for name, target in report.verdict.targets.items() if target.unsafe]
        assert not unsafe, f"seed {seed}: unsafe on {unsafe}"
        assert report.verdict.eligible or report.verdict.reasons, f"seed {seed}: no reason given"
        eligible += report.verdict.eligible
        reasons += [(seed, reason.rule, reason.operator) for reason in report.verdict.reasons]
    assert 6 <= eligible < NETWORKS, reasons  # both sides of the rule are there
