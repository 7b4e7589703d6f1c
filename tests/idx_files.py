"""Tiny Fashion-MNIST files, made in a test and read by the code that reads the real ones."""

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def write_idx(path: Path, values: NDArray[np.uint8]) -> None:
    """An idx file of unsigned bytes; compressed where the name ends in .gz."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    content = header + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_fashion_mnist(folder: Path, train: int = 60, test: int = 20, suffix: str = ".gz") -> None:
    """All four files, random images of 28x28 whose label is their number modulo ten; pixel (0, 0) is the label."""
    generator = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        images[:, 0, 0] = labels
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels)
