"""Goals of structured sparsity, with room for a busy machine: see the docstring of each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

IMAGES = 16
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
"""Two threads on two cores that something else uses too wait for each other: five times the processor time."""


def measure(part: str) -> dict[str, float]:
    script = Path(__file__).with_name("structured.py")
    done = subprocess.run(
        [sys.executable, str(script), str(IMAGES), part],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=ONE_THREAD,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout)
    result: dict[str, float] = json.loads(done.stdout)
    return result


@pytest.fixture(scope="module")
def rest() -> dict[str, float]:
    return measure("rest")


@pytest.mark.slow
def test_a_chex_update_of_resnet_50() -> None:
    """Goals: 10 s and 1 GiB above the network, on 2 cores."""
    found = measure("chex")
    assert found["chex_update_s"] < 30
    assert found["chex_memory_mib"] < 1024


def test_hrank_scores_of_resnet_56(rest: dict[str, float]) -> None:
    """Goal: 2 minutes for 5 batches of 128; measured on a part of one."""
    assert rest["hrank_s"] * 5 * 128 / IMAGES < 360


def test_compaction_of_resnet_50(rest: dict[str, float]) -> None:
    """Goal: 10 s."""
    assert rest["compaction_s"] < 20
