"""Installed runtimes are complete or absent."""

import threading
from pathlib import Path

import pytest

from sparsetorch.errors import BadInputError
from sparsetorch.runtime.cache import install, installed, runtimes_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "runtimes"))
    return tmp_path / "runtimes"


def test_filled_once(folder: Path) -> None:
    made: list[Path] = []

    def fill(place: Path) -> None:
        made.append(place)
        (place / "a").write_text("x")

    assert installed("one") is None
    assert install("one", fill) == (folder / "one", True)
    assert install("one", fill) == (folder / "one", False)
    assert len(made) == 1
    assert installed("one") == folder / "one"
    assert (folder / "one" / "a").read_text() == "x"


def test_a_failure_leaves_nothing(folder: Path) -> None:
    def fill(place: Path) -> None:
        (place / "half").touch()
        raise BadInputError("no network")

    with pytest.raises(BadInputError, match="no network"):
        install("one", fill)
    assert installed("one") is None
    assert [path for path in folder.iterdir() if not path.name.endswith(".lock")] == []


def test_what_a_killed_installation_left_is_cleared_away(folder: Path) -> None:
    (folder / ".one.tmp-dead").mkdir(parents=True)
    (folder / "one").mkdir()  # without the mark
    assert install("one", lambda place: (place / "a").touch())[1]
    assert sorted(path.name for path in folder.iterdir()) == [".one.lock", "one"]


def test_two_at_once_install_once() -> None:
    made = []
    threads = [threading.Thread(target=install, args=("one", lambda place: made.append(place))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARSETORCH_RUNTIMES", str(tmp_path / "file" / "below"))
    with pytest.raises(BadInputError, match="SPARSETORCH_RUNTIMES"):
        install("one", lambda place: None)


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARSETORCH_RUNTIMES")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert runtimes_folder() == Path("/cache/sparsetorch/runtimes")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, by the XDG specification
    monkeypatch.setenv("HOME", "/home/one")
    assert runtimes_folder() == Path("/home/one/.cache/sparsetorch/runtimes")
