"""The table of what is taken, off, or wrong, from PyTorch: converted as users' networks are, encoded whatever the rules say, run.

`test_tensorflow_files.py` has the same table from TensorFlow's own converter, with the rows that PyTorch has no words for: SAME
padding and int8 weights that go straight into a convolution.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from differential import ENGINES, Engine, examine, seen
from torch import Tensor, nn

from sparsetorch.exporter.onnx_to_tflite import convert_all
from sparsetorch.exporter.pipeline import prune_once
from sparsetorch.exporter.torch_to_onnx import torch_to_onnx
from sparsetorch.runtime.worker import ModelJob, job_folder
from sparsetorch.tflite import encode, from_bytes, save
from sparsetorch.tflite.passes import repair
from sparsetorch.xnnpack import verify
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06

pytestmark = pytest.mark.slow

WIDTH, PIXELS = 24, 32


class Excite(nn.Module):
    """Squeeze-excite out of 1x1 convolutions or out of fully-connected layers."""

    def __init__(self, gate: type[nn.Module], dense: bool = False) -> None:
        super().__init__()
        make: Callable[[int, int], nn.Module] = nn.Linear if dense else lambda i, o: nn.Conv2d(i, o, 1)
        self.dense = dense
        self.gate = nn.Sequential(make(WIDTH, 8), nn.ReLU(), make(8, WIDTH), gate())

    def forward(self, x: Tensor) -> Tensor:
        pooled = x.mean((2, 3), keepdim=not self.dense)
        gate = self.gate(pooled)
        return x * (gate[:, :, None, None] if self.dense else gate)


class Mean(nn.Module):
    """A mean over the pixels that keeps its dimensions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3), keepdim=True)


class Row(nn.Module):
    """A stem, two inverted residual blocks with something in the middle, and a tail."""

    def __init__(
        self,
        middle: nn.Module | None = None,
        tail: nn.Module | None = None,
        act: type[nn.Module] = nn.ReLU6,
        kernel: int = 3,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, WIDTH, 3, 2, 1), act())
        self.first, self.second = (self.block(act, kernel) for _ in range(2))
        self.middle = middle or nn.Identity()
        self.residual = residual
        self.head = nn.Sequential(nn.Conv2d(WIDTH, 48, 1), act())
        self.tail = tail or nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 5))

    def block(self, act: type[nn.Module], kernel: int) -> nn.Module:
        wide = 2 * WIDTH
        depthwise = nn.Conv2d(wide, wide, kernel, 1, kernel // 2, groups=wide)
        return nn.Sequential(nn.Conv2d(WIDTH, wide, 1), act(), depthwise, act(), nn.Conv2d(wide, WIDTH, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        x = self.first(x) + (x if self.residual else 0.0)
        return self.tail(self.head(self.second(self.middle(x))))


def pooled_convolution() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(48, 5, 1))


TAKEN, OFF, UNSAFE = "taken", "not taken", "unsafe"
ROWS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "plain": (Row, TAKEN),
    "no residual": (lambda: Row(residual=False), TAKEN),
    "stride 2": (lambda: Row(nn.Conv2d(WIDTH, WIDTH, 3, 2, 1, groups=WIDTH)), TAKEN),
    "5x5 depthwise": (lambda: Row(kernel=5), TAKEN),
    "ReLU": (lambda: Row(act=nn.ReLU), TAKEN),
    "Hardswish": (lambda: Row(act=nn.Hardswish), TAKEN),
    "SiLU": (lambda: Row(act=nn.SiLU), TAKEN),
    "LeakyReLU": (lambda: Row(act=nn.LeakyReLU), TAKEN),
    "bilinear resize": (lambda: Row(nn.UpsamplingBilinear2d(scale_factor=2)), TAKEN),
    "depth to space": (lambda: Row(tail=nn.Sequential(nn.Conv2d(48, 12, 1), nn.PixelShuffle(2))), TAKEN),
    "keepdim, reshape, Linear": (lambda: Row(tail=nn.Sequential(Mean(), nn.Flatten(), nn.Linear(48, 5))), TAKEN),
    "squeeze-excite": (lambda: Row(Excite(nn.Sigmoid)), TAKEN),
    "squeeze-excite, Linear": (lambda: Row(Excite(nn.Sigmoid, dense=True)), TAKEN),
    "hard sigmoid": (lambda: Row(Excite(nn.Hardsigmoid)), TAKEN),
    "pool, 1x1": (lambda: Row(tail=pooled_convolution()), TAKEN),
    "pool, 1x1, reshape": (lambda: Row(tail=nn.Sequential(pooled_convolution(), nn.Flatten())), TAKEN),
    "60 %": (Row, OFF),
    "flatten": (lambda: Row(tail=nn.Sequential(nn.Flatten(), nn.Linear(48 * (PIXELS // 2) ** 2, 5))), OFF),
    "average pool": (lambda: Row(tail=nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48 * 64, 5))), OFF),
    "max pool": (lambda: Row(nn.MaxPool2d(2)), UNSAFE),
}
"""What is built, and what today's XNNPACK makes of it at 85 %, repaired."""
AS_CONVERTED = {
    "stride 2": UNSAFE,  # SAME padding, which onnx2tf writes where sizes allow it
    "squeeze-excite": OFF,
    "squeeze-excite, Linear": UNSAFE,
    "hard sigmoid": OFF,
    "pool, 1x1": UNSAFE,
    "pool, 1x1, reshape": UNSAFE,
}
"""And where the repairs are left out."""
EXPECTED = {name: row for name, (_, row) in ROWS.items()} | {f"{name}, raw": row for name, row in AS_CONVERTED.items()}
OLD_DIFFERS = {"squeeze-excite, Linear, raw": OFF, "pool, 1x1, raw": TAKEN, "pool, 1x1, reshape, raw": TAKEN}
"""What XNNPACK of 2023 computes rightly and today's does not."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rows")
    onnx = [folder / f"{index}.onnx" for index in range(len(ROWS))]
    for (name, (make, _)), path in zip(ROWS.items(), onnx, strict=True):
        torch.manual_seed(0)
        network = make().eval()
        prune_once(network, 0.6 if name == "60 %" else 0.85)
        torch_to_onnx(network, (1, 3, PIXELS, PIXELS), path)
    converted = dict(zip(ROWS, convert_all(onnx), strict=True))
    made = {}
    for index, row in enumerate(EXPECTED):
        model = from_bytes(converted[row.removesuffix(", raw")])
        if not row.endswith(", raw"):
            repair(model)
        encode(model)
        made[row] = folder / f"{index}.tflite"
        save(model, made[row])
    return made


def test_every_row_is_predicted(files: dict[str, Path]) -> None:
    verdicts = {name: verify(path, ["arm64", "wasm"]) for name, path in files.items()}
    told = {name: UNSAFE if one.unsafe else TAKEN if one.eligible else OFF for name, one in verdicts.items()}
    assert told == EXPECTED


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_row_is_seen_as_predicted(engine: Engine, files: dict[str, Path]) -> None:
    jobs = [ModelJob.read(path, sets=2) for path in files.values()]
    with job_folder() as folder:
        outcomes = dict(zip(files, examine(engine, jobs, folder), strict=True))
    expected = dict(EXPECTED)
    if engine.revision is XNNPACK_2023_06:
        expected |= OLD_DIFFERS
    if engine.name == "LiteRT.js":
        expected = {name: row if row == UNSAFE else "right" for name, row in expected.items()}
    assert {name: seen(outcome) for name, outcome in outcomes.items()} == expected
    assert {name: one.comparison.disagreements for name, one in outcomes.items() if one.comparison.disagreements} == {}


@pytest.mark.parametrize("name", ["bilinear resize", "depth to space", "pool, 1x1, reshape", "plain"])
def test_the_first_file_of_a_process_is_seen_like_any_other(name: str, files: dict[str, Path]) -> None:
    """tfjs-tflite aborted on some files where its memory had not grown before."""
    with job_folder() as folder:
        (outcome,) = examine(ENGINES[0], [ModelJob.read(files[name], sets=1)], folder)
    assert seen(outcome) == TAKEN
