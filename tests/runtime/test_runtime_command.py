"""`sparsetorch runtime`: what is there, what is missing, and an installation that fails says why."""

import json
from pathlib import Path

import pytest

from sparsetorch.cli import main
from sparsetorch.errors import CannotObserveError
from sparsetorch.runtime import chromium


def listed(folder: Path) -> dict[str, dict[str, object]]:
    assert main(["runtime", "list", "--quiet", "--json", str(folder / "r.json")]) == 0
    return dict(json.loads((folder / "r.json").read_text())["runtimes"])


def test_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(tmp_path)
    assert found.keys() >= {"host", "wasm", "chromium", "emulated", "android"}
    for name in ("host", "wasm", "emulated"):
        assert found[name]["ready"], found[name]["missing"]
        assert found[name]["missing"] is None
    wasm = found["wasm"]["parts"]
    assert isinstance(wasm, dict)
    assert (wasm["@litertjs/core"], wasm["@tensorflow/tfjs-tflite"]) == ("2.5.3", "0.0.1-alpha.10")
    assert main(["runtime", "list"]) == 0
    assert "0.0.1-alpha.10" in capsys.readouterr().out


def test_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "none"))
    found = listed(tmp_path)
    for name in ("wasm", "emulated", "emulated-arm64"):
        assert not found[name]["ready"]
        assert f"`sparsetorch runtime install {name}`" in str(found[name]["missing"])
    assert not (tmp_path / "none").exists()  # looking installs nothing


def test_what_is_installed_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", "install", "wasm", "emulated"]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("was there already") == 2
    assert captured.out.count("ready") == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["install"], "no name, needed one or more of wasm, chromium, emulated"),
        (["install", "toaster"], "found toaster"),
        (["install", "host"], "found host"),
        (["list", "wasm"], "list takes no names"),
    ],
)
def test_usage(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runtime", *words]) == 2
    assert says in capsys.readouterr().err


def test_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A registry that nobody answers for: exit 1, one message, nothing left behind."""
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "r"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    for name, says in (("wasm", "npm could not install"), ("emulated", "pip could not install ai-edge-litert 2.3.0")):
        assert main(["runtime", "install", name, "--quiet"]) == 1
        captured = capsys.readouterr()
        assert says in captured.err
        assert "network" in captured.err
        assert "Traceback" not in captured.err
    assert [path.name for path in (tmp_path / "r").iterdir() if not path.name.endswith(".lock")] == []


def test_which_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "chromium"
    browser.write_text("#!/bin/sh\necho 'Chromium 156.0.8078.4 built on Debian'\n")
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert chromium.find_chromium() == browser
    assert chromium.version() == "Chromium 156.0.8078.4"
    monkeypatch.setenv("SPARSETORCH_CHROMIUM", str(tmp_path / "none"))
    with pytest.raises(CannotObserveError, match="no program that can be run"):
        chromium.find_chromium()
    monkeypatch.delenv("SPARSETORCH_CHROMIUM")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(CannotObserveError, match="`sparsetorch runtime install chromium`"):
        chromium.find_chromium()
