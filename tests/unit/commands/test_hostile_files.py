"""Truncated and damaged files: `inspect` and `encode` answer, or refuse with one message; nothing is half-written."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier

from sparsetorch.cli import main
from sparsetorch.tflite import Storage, encode, to_bytes


@pytest.fixture(scope="module")
def good() -> bytes:
    model = classifier()
    encode(model, storage=Storage("int8"))
    return to_bytes(model)


def damaged(good: bytes, seed: int) -> bytes:
    """By turns cut short, with one flip in the tables, with three flips anywhere."""
    random = np.random.default_rng(seed)
    made = bytearray(good)
    if seed % 3 == 0:
        return good[: int(random.integers(8, len(good)))]
    if seed % 3 == 1:
        tables = np.flatnonzero(np.frombuffer(good, np.uint8) < 32)
        made[int(random.choice(tables))] = int(random.integers(0, 256))
    else:
        for place in random.integers(0, len(good), 3):
            made[int(place)] ^= int(random.integers(1, 256))
    return bytes(made)


@pytest.mark.parametrize("command", ["inspect", "encode"])
def test_damage_is_answered_or_refused_in_one_line(
    command: str, good: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "damaged.tflite", tmp_path / "out.tflite"
    codes = []
    for seed in range(60):
        source.write_bytes(damaged(good, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            codes.append(main([command, str(source), "--quiet", *(["-o", str(out)] if command == "encode" else [])]))
        error = capsys.readouterr().err
        assert codes[-1] in (0, 1, 3, 4), seed
        if codes[-1] in (1, 4):
            assert error.count("\n") == 1, error
            assert "--debug" not in error, error  # an exception that nobody thought of
            assert not out.exists()
        out.unlink(missing_ok=True)
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["damaged.tflite"]
    assert codes.count(1) >= 25
    assert codes.count(0) >= 5
