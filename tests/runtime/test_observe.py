"""`verify --observe` on real runtimes: proven, refused, wrong, not here; and every way in which a runtime may be missing."""

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparsetorch
from sparsetorch.cli import main
from sparsetorch.runtime import host, node
from sparsetorch.runtime.cache import runtimes_folder

OBSERVED_KEYS = {
    "version", "taken", "spmm", "operators", "max_rel_error",
    "errors", "expected", "counts", "wrong", "disagreements", "notes",
}  # fmt: skip


def observe(file: Path, runtime: str, folder: Path) -> tuple[int, dict[str, Any]]:
    code = main(["verify", str(file), "--observe", runtime, "--quiet", "--json", str(folder / "v.json")])
    return code, json.loads((folder / "v.json").read_text())["observed"][runtime]


@pytest.mark.parametrize("runtime", ["wasm", "emulated"])
@pytest.mark.parametrize("name", ["good", "float16", "int8"])
def test_proven(files: dict[str, Path], name: str, runtime: str, tmp_path: Path) -> None:
    code, seen = observe(files[name], runtime, tmp_path)
    assert code == 0
    assert seen.keys() == OBSERVED_KEYS
    assert (seen["taken"], seen["spmm"], seen["disagreements"]) == (True, 9, [])
    assert seen["operators"]["Convolution (NCHW, F32) SPMM"] == 9
    assert seen["operators"]["Fully Connected (NC, F32) GEMM"] == 1
    assert not any(operator.startswith("Convolution (NHWC") for operator in seen["operators"])
    assert seen["max_rel_error"] < 1e-5
    assert len(seen["errors"]) == (2 if runtime == "wasm" else 1)


@pytest.mark.parametrize("runtime", ["wasm", "emulated"])
def test_the_dense_twin_shows_none(files: dict[str, Path], runtime: str, tmp_path: Path) -> None:
    code, seen = observe(files["dense"], runtime, tmp_path)
    assert code == 3
    assert (seen["taken"], seen["spmm"], seen["disagreements"], seen["wrong"]) == (False, 0, [], [])
    assert seen["counts"]["channels_last"] == 15


@pytest.mark.parametrize("runtime", ["wasm", "emulated"])
def test_right_but_off_the_path(files: dict[str, Path], runtime: str, tmp_path: Path) -> None:
    code, seen = observe(files["same_stem"], runtime, tmp_path)
    assert code == 3
    assert (seen["taken"], seen["spmm"], seen["disagreements"], seen["wrong"]) == (False, 0, [], [])


@pytest.mark.parametrize("runtime", ["wasm", "emulated"])
def test_wrong_on_devices_while_this_computer_is_right(files: dict[str, Path], runtime: str, tmp_path: Path) -> None:
    """Pitfall: sparse encoding can make a model wrong where nobody looks. Predicted, so the rules are right: still exit 4."""
    code, seen = observe(files["unsafe"], runtime, tmp_path)
    assert code == 4
    assert seen["taken"] is False
    assert seen["max_rel_error"] > 1e-2
    assert seen["disagreements"] == []
    assert "as the rules expect" in seen["wrong"][0]
    code, here = observe(files["unsafe"], "host", tmp_path)
    assert here["max_rel_error"] < 1e-5
    assert here["wrong"] == []


def test_this_computer_cannot_show_it(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pitfall 25: who benchmarks on an x86 laptop is told that nothing can be concluded from it."""
    monkeypatch.setattr(host, "has_avx", lambda: True)
    code, seen = observe(files["good"], "host", tmp_path)
    assert code == 5
    assert (seen["taken"], seen["spmm"], seen["operators"]) == (None, None, {})
    assert seen["max_rel_error"] < 1e-5
    assert "x86 with AVX" in seen["notes"][0]
    assert main(["verify", str(files["good"]), "--observe", "host"]) == 5
    assert "cannot be observed here" in capsys.readouterr().out


def test_what_only_the_old_revision_refuses(files: dict[str, Path], tmp_path: Path) -> None:
    """TANH is no operator of the delegate of 2023: seen off the path there, as its own rules say, and on it today."""
    code, old = observe(files["old_breaks"], "wasm", tmp_path)
    assert (code, old["taken"], old["disagreements"]) == (5, False, [])
    assert "--observe emulated shows today's" in old["notes"][0]
    code, today = observe(files["old_breaks"], "emulated", tmp_path)
    assert (code, today["taken"], today["spmm"]) == (0, True, 9)


def test_several_at_once_and_in_words(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["good"]), "--observe", "wasm", "--observe", "emulated", "--observe", "wasm"]) == 0
    told = capsys.readouterr().out
    assert told.count("sparse path taken, 9 sparse matrix multiplications of 9 expected") == 2
    assert "   9  Convolution (NCHW, F32) SPMM" in told
    assert "tfjs-tflite 0.0.1-alpha.10" in told
    assert "qemu-x86_64" in told


def test_the_python_interface(files: dict[str, Path]) -> None:
    verdict = sparsetorch.verify(files["good"], observe=["wasm"])
    assert verdict.eligible
    assert verdict.observed["wasm"].taken
    assert sparsetorch.verify(files["good"]).observed == {}
    assert "observed" not in sparsetorch.verify(files["good"]).to_dict()


@pytest.mark.parametrize(
    ("name", "runtime", "code", "says"),
    [
        ("unloadable", "wasm", 1, "LiteRT does not run it on this computer"),
        ("good", "toaster", 2, "unknown runtime 'toaster'. Runtimes: host, wasm, emulated"),
    ],
)
def test_one_message(
    files: dict[str, Path], name: str, runtime: str, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(files[name]), "--observe", runtime, "--quiet"]) == code
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("runtime", ["wasm", "emulated", "emulated-arm64"])
def test_not_installed_is_exit_5_with_the_command(
    files: dict[str, Path],
    runtime: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path))
    assert main(["verify", str(files["good"]), "--observe", runtime, "--quiet", "--json", "-"]) == 5
    captured = capsys.readouterr()
    assert f"`sparsetorch runtime install {runtime}`" in captured.err
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []  # nothing is installed unasked


def test_without_qemu(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["verify", str(files["good"]), "--observe", "emulated", "--quiet"]) == 5
    assert "apt-get install qemu-user" in capsys.readouterr().err


@pytest.fixture
def broken_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Node.js that knows its version and nothing else."""
    script = tmp_path / "node"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo v22.0.0 && exit 0\necho "wasm is broken" >&2\nkill -SEGV $$\n'
    )
    (tmp_path / "npm").write_text("#!/bin/sh\n")
    for path in (script, tmp_path / "npm"):
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    node.find_node.cache_clear()
    yield script
    node.find_node.cache_clear()


def test_a_node_that_crashes(files: dict[str, Path], broken_node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["good"]), "--observe", "wasm", "--quiet"]) == 5
    assert "node ended with signal SIGSEGV: wasm is broken" in capsys.readouterr().err


def test_damaged_packages(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A WebAssembly module that is cut off: the runtime does not start, and that is the message."""
    shutil.copytree(
        runtimes_folder(),
        tmp_path / "runtimes",
        ignore=shutil.ignore_patterns("litert-*", "chromium-*", "playwright-core"),
    )
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "runtimes"))
    (module,) = (tmp_path / "runtimes").rglob("tflite_web_api_cc_simd.wasm")
    module.write_bytes(module.read_bytes()[:1000])
    assert main(["verify", str(files["good"]), "--observe", "wasm", "--quiet"]) == 5
    assert "node ended with" in capsys.readouterr().err
