"""The example of a loop without Lightning runs, is sparse to the entry, and learns."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "recipes" / "digits" / "plain_pytorch.py"


def test_the_plain_pytorch_loop_is_sparse_and_learns() -> None:
    sparsity, accuracy = runpy.run_path(str(SCRIPT))["main"](300)
    assert sparsity == pytest.approx(0.9, abs=1e-4)
    assert accuracy > 0.9
