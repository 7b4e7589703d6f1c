"""From a recipe to a file, and back: what each command of the road leaves, and that the numbers agree all the way."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from digits_road import Road

from sparsetorch.cli import main
from sparsetorch.exporter.source import load_checkpoint
from sparsetorch.tflite import densify_model, load

ROOT = Path(__file__).parents[2]


def test_a_run_leaves_one_folder_with_everything(road: Road) -> None:
    for name in ("config.yaml", "checkpoints/last.ckpt", "metrics.csv", "summary.json"):
        assert (road.run_dir / name).is_file(), name
    assert list(road.run_dir.glob("events.out.tfevents.*"))
    assert json.loads((road.run_dir / "summary.json").read_text()) == road.fit
    header, *rows = (road.run_dir / "metrics.csv").read_text().splitlines()
    columns = header.split(",")
    assert {"sparsity", "sparsity/network.features.1.conv.1", "val_acc", "train_loss"} <= set(columns)
    values = [row.split(",")[columns.index("sparsity")] for row in rows]
    assert [float(value) for value in values if value] == pytest.approx([0.9] * len([v for v in values if v]), abs=1e-3)


def test_the_sparsity_is_exact_and_over_the_1x1_convolutions(road: Road) -> None:
    sparsity = road.fit["sparsity"]
    assert len(sparsity["layers"]) == 14
    assert abs(sparsity["total"] - 0.9) < 14 / 148_224  # at most one entry a layer is lost to rounding
    module, shape = load_checkpoint(road.checkpoint)
    assert shape == [3, 32, 32]
    zeros = sum(
        int((layer.weight == 0).sum()) for layer in module.modules() if getattr(layer, "kernel_size", 0) == (1, 1)
    )
    assert zeros == round(sparsity["total"] * 148_224)


def test_a_checkpoint_stands_alone_and_holds_plain_types(road: Road) -> None:
    checkpoint = torch.load(road.checkpoint, weights_only=True)
    assert checkpoint["sparsetorch"]["config"]["model"]["class_path"] == "sparsetorch.models.ImageClassifier"


def test_the_export_reports_sizes_errors_and_the_verdict(road: Road) -> None:
    export = road.export
    assert export["eligible"]
    assert export["expected_spmm"] == 14
    assert export["refused"] == []
    assert all(error < 1e-4 for errors in export["errors"].values() for error in errors)
    for name, path in export["files"].items():
        assert Path(path).stat().st_size == export["sizes"][name]["raw"]
    # 90 % of 593 kB of 1x1 weights gone, an index of one or two bytes for each that is left.
    assert export["sizes"]["model"]["raw"] < 0.35 * export["sizes"]["dense_twin"]["raw"]


def test_layers_carry_their_pytorch_module_paths(road: Road) -> None:
    module, _ = load_checkpoint(road.checkpoint)
    paths = {name for name, _ in module.named_modules()}
    modules = [layer["module"] for layer in road.export["layers"]]
    assert len(modules) == 23
    assert set(modules) <= paths


def test_verify_agrees_and_exits_0(road: Road, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(road.model), "--target", "arm64", "--target", "wasm"]) == 0
    assert "eligible" in capsys.readouterr().out
    assert main(["verify", str(road.dense_twin), "--quiet"]) == 3


_RUN = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter
image = np.random.default_rng(5).random((1, 32, 32, 3), dtype=np.float32)
for path in sys.argv[1:3]:
    interpreter = Interpreter(path)
    interpreter.allocate_tensors()
    assert len(interpreter.get_tensor_details()) > 20
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], image)
    interpreter.invoke()
    np.save(path + ".npy", interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
"""


def test_both_files_run_in_a_fresh_process_with_equal_outputs(road: Road) -> None:
    subprocess.run([sys.executable, "-c", _RUN, str(road.model), str(road.dense_twin)], check=True, timeout=120)
    sparse, dense = (np.load(f"{path}.npy") for path in (road.model, road.dense_twin))
    assert np.array_equal(sparse, dense)


def test_the_files_hold_the_same_numbers(road: Road) -> None:
    back, dense = densify_model(load(road.model)), load(road.dense_twin)
    weights = {tensor.name: tensor for tensor in dense.graphs[0].tensors if tensor.name.endswith(".weight")}
    assert len(weights) == 23
    for tensor in back.graphs[0].tensors:
        if tensor.name in weights:
            assert np.array_equal(tensor.array(), weights[tensor.name].array())


def test_exporting_changes_nothing_about_the_network(road: Road, tmp_path: Path) -> None:
    import sparsetorch
    from sparsetorch.masking import attach

    module, _ = load_checkpoint(road.checkpoint)
    layer = module.network.features[1].conv[1]
    attach(layer, layer.weight != 0)
    module.eval()
    module(torch.rand(2, 3, 32, 32)).sum().backward()  # a masked weight is now no leaf, which deepcopy refuses
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    report = sparsetorch.export(module, tmp_path / "x.tflite", (3, 32, 32))
    assert report.verdict.eligible
    assert module.training
    after = module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert torch.equal(state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])
    same = (tmp_path / "x.tflite").read_bytes() == road.model.read_bytes()
    assert same, "the same network gives another file"


def test_a_wrong_input_shape_is_one_message_and_writes_nothing(
    road: Road, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "export",
        "--checkpoint",
        str(road.checkpoint),
        "-o",
        str(tmp_path / "x.tflite"),
        "--input-shape",
        "1,32,32",
    ]
    assert main([*words, "--quiet"]) == 1
    error = capfd.readouterr().err
    assert "does not run on an input of shape (1, 1, 32, 32)" in error
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_dense_checkpoint_does_not_load_as_the_sparse_model_of_another(road: Road, tmp_path: Path) -> None:
    words = ["export", "--checkpoint", str(road.checkpoint), "-o", str(tmp_path / "x.tflite")]
    other = tmp_path / "other.yaml"
    recipe = (ROOT / "recipes" / "digits" / "dense.yaml").read_text()
    other.write_text(recipe.replace("- [4, 64, 2, 1]", "- [4, 48, 2, 1]"))
    assert main([*words, "--config", str(other)]) == 1


def test_quantizing_the_twin_reports_accuracy_before_and_after(road: Road, tmp_path: Path) -> None:
    words = [
        "quantize",
        str(road.dense_twin),
        "-o",
        str(tmp_path / "int8.tflite"),
        "--checkpoint",
        str(road.checkpoint),
    ]
    assert main([*words, "--quiet", "--json", str(tmp_path / "r.json")]) == 0
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["accuracy"]["images"] == 360
    assert told["accuracy"]["after"] > told["accuracy"]["before"] - 0.03
    assert told["bytes"] < 0.6 * told["source_bytes"]
