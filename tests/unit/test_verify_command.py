"""`sparsetorch verify`: exit codes, the JSON contract, and a lean process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.tflite import encode, save

KEYS = {"file", "revision", "targets", "eligible", "clusters", "reasons", "expected_spmm", "layers"}
REASON_KEYS = {"rule", "operator", "tensor", "module", "found", "required", "fix"}
CLUSTER_KEYS = {"entry", "exit", "convs_1x1", "params", "zeros", "sparsity"}
LAYER_KEYS = {"tensor", "module", "shape", "sparsity", "encoding", "values", "kernel_block", "bytes", "dense_bytes"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("models")
    made = {}
    for name, changes in {"good": {}, "unsafe": {"same": True}, "dense": {}}.items():
        model = classifier(**changes)
        if name != "dense":
            encode(model)
        made[name] = directory / f"{name}.tflite"
        save(model, made[name])
    made["text"] = directory / "text.tflite"
    made["text"].write_text("no model")
    made["missing"] = directory / "missing.tflite"
    return made


@pytest.mark.parametrize(
    ("name", "extra", "code"),
    [
        ("good", [], 0),
        ("good", ["--target", "arm64", "--target", "riscv-vector"], 0),
        ("good", ["--target", "x86"], 3),
        ("good", ["--target", "arm64", "--target", "x86"], 3),
        ("good", ["--target", "tflite-micro"], 3),
        ("dense", [], 3),
        ("unsafe", [], 3),
        ("text", [], 1),
        ("missing", [], 1),
        ("good", ["--target", "toaster"], 2),
        ("good", ["--nonsense"], 2),
        ("missing", ["--target", "toaster"], 2),
    ],
)
def test_exit_codes(
    files: dict[str, Path], name: str, extra: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(files[name]), *extra]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    if code in (1, 2):
        assert captured.out == ""
        assert "error: " in captured.err
    else:
        assert captured.err == ""


def test_the_tables_say_it_all(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", str(files["good"])])
    good = capsys.readouterr().out
    assert "arm64: eligible, 9 sparse matrix multiplications expected" in good
    assert "features.1.expand" in good
    assert "9 1x1 convolutions" in good
    main(["verify", str(files["unsafe"])])
    unsafe = capsys.readouterr().out
    assert "UNSAFE" in unsafe
    assert "same-padding: required explicit padding" in unsafe
    assert "features.3.depthwise (DEPTHWISE_CONV_2D): SAME padding at stride 2x2" in unsafe


def test_json_contract(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["unsafe"]), "--json", "-"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert main(["verify", str(files["unsafe"]), "--quiet", "--json", str(tmp_path / "v.json")]) == 3
    assert capsys.readouterr().out == ""
    assert json.loads((tmp_path / "v.json").read_text()) == found
    assert found.keys() == KEYS
    assert found["targets"].keys() == {"arm64", "wasm"}
    assert found["targets"]["wasm"].keys() == {"eligible", "why_not", "unsafe"}
    assert found["eligible"] is False
    assert all(reason.keys() == REASON_KEYS for reason in found["reasons"])
    assert all(layer.keys() == LAYER_KEYS for layer in found["layers"])
    assert all(cluster.keys() == CLUSTER_KEYS for cluster in found["clusters"])
    layer = next(layer for layer in found["layers"] if layer["module"] == "head")
    assert (layer["shape"], layer["encoding"], layer["values"]) == ([64, 1, 1, 32], "sparse", "float32")
    assert layer["bytes"] < layer["dense_bytes"] == 8192
    assert next(layer for layer in found["layers"] if layer["module"] == "stem")["kernel_block"] is None


def test_json_of_a_good_file(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["good"]), "--json", "-", "--target", "wasm"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["eligible"] is True
    assert found["reasons"] == []
    assert found["expected_spmm"] == 9
    assert found["targets"] == {"wasm": {"eligible": True, "why_not": None, "unsafe": False}}
    assert found["file"] == str(files["good"])


def test_unwritable_json_is_one_message(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["good"]), "--json", "/nowhere/at/all.json"]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--help"]) == 0
    text = capsys.readouterr().out
    assert "sparsetorch verify model.tflite" in text
    assert "tflite-micro" in text


def test_the_process_is_lean(files: dict[str, Path]) -> None:
    """Neither torch nor TensorFlow is imported, and the peak stays under 200 MiB."""
    # VmHWM and not getrusage's ru_maxrss, which a child inherits from the (large) process that forked it.
    code = (
        "import sys, re; from pathlib import Path; from sparsetorch.cli import main; "
        f"code = main(['verify', {str(files['good'])!r}]); "
        "heavy = {'torch', 'tensorflow', 'onnx', 'jax', 'pytorch_lightning'} & sys.modules.keys(); "
        r"peak = int(re.search(r'VmHWM:\s*(\d+) kB', Path('/proc/self/status').read_text())[1]); "
        "print(code, sorted(heavy), peak // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    code_text, heavy, mebibytes = done.stdout.splitlines()[-1].split(" ")
    assert (code_text, heavy) == ("0", "[]")
    assert int(mebibytes) < 200
