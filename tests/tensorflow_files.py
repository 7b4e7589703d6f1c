"""The networks of `tensorflow_graphs.py`, what is expected of each, and the files, made once per test run."""

import subprocess
import sys
from pathlib import Path

EXPECTED = {
    "ok": ("taken", 9),
    "s70": ("taken", 9),
    "no_residual": ("taken", 9),
    "kernel5": ("taken", 9),
    "relu": ("taken", 9),
    "hard_swish": ("taken", 9),
    "silu": ("taken", 9),
    "leaky": ("taken", 9),
    "bilinear": ("taken", 9),
    "d2s": ("taken", 10),
    "keep_reshape": ("taken", 9),
    "se_conv": ("taken", 11),
    "float16": ("taken", 9),
    "s60": ("not taken", 0),
    "same_stem": ("not taken", 0),
    "same_everywhere": ("not taken", 0),
    "flatten": ("not taken", 0),
    "avgpool": ("not taken", 0),
    "no_tail": ("not taken", 0),
    "se_dense": ("not taken", 0),
    "dw2same": ("unsafe", 0),
    "maxpool": ("unsafe", 4),
    "gapkeep": ("unsafe", 9),
    "gapkeep_output": ("unsafe", 9),
    "hard_later": ("unsafe", 7),
    "int8": ("unsafe", 0),
}
"""Verdict of today's rules, and the sparse matrix multiplications that they expect."""


def convert(directory: Path) -> None:
    """Write `NAME.tflite` for every network, in one process of its own: no test imports TensorFlow."""
    script = Path(__file__).with_name("tensorflow_graphs.py")
    done = subprocess.run([sys.executable, script, directory, *EXPECTED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
