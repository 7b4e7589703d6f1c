"""What becomes of the networks that people bring: one export each, repaired, verified, stored in every precision.

    pip install timm
    OMP_NUM_THREADS=1 python notebooks/studies/model_matrix/run.py --output notebooks/studies/model_matrix

Random weights with calibrated batch-norm, one-shot magnitude 85 % over the 1x1 convolutions. Writes results.csv and README.md.
A network that is there already is not done again; --only NAME does some.
"""

import argparse
import csv
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

import sparsetorch
from sparsetorch.errors import SparsetorchError
from sparsetorch.exporter.outcome import ExportReport

SPARSITY = 0.85
COLUMNS = [
    "model", "pixels", "status", "eligible", "convs_1x1", "spmm", "repairs", "error", "dense_float32", "float32", "float16", "int8",
    "error_float16", "error_int8", "seconds", "reasons",
]  # fmt: skip


class FirstOutput(nn.Module):
    """The `out` of a torchvision segmentation network, without the auxiliary head."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        return self.network(image)["out"]


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


def separable(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, inputs, kernel, stride, inputs), conv(inputs, outputs))


class BlazeFaceStyle(nn.Module):
    """A detector in the manner of BlazeFace: 5x5 separable blocks at two scales, scores and boxes of 896 anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 24, 3, 2)
        self.high = nn.Sequential(separable(24, 48, 5, 2), separable(48, 48, 5), separable(48, 96, 5, 2))
        self.low = nn.Sequential(separable(96, 96, 5), separable(96, 96, 5, 2), separable(96, 96, 5))
        self.scores = nn.ModuleList([nn.Conv2d(96, 2, 1), nn.Conv2d(96, 6, 1)])
        self.boxes = nn.ModuleList([nn.Conv2d(96, 32, 1), nn.Conv2d(96, 96, 1)])

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        high = self.high(self.stem(image))
        low = self.low(high)

        def heads(layers: nn.ModuleList, width: int) -> Tensor:
            flat = [layer(x).permute(0, 2, 3, 1).flatten(1).unflatten(1, (-1, width)) for layer, x in zip(layers, (high, low))]
            return torch.cat(flat, 1)

        return {"scores": heads(self.scores, 1), "boxes": heads(self.boxes, 16)}


class HandLandmarkStyle(nn.Module):
    """A regressor in the manner of the hand landmark model: a backbone, 21 points in space, and whether a hand is there."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = torchvision.models.mobilenet_v2(width_mult=0.5).features
        self.points, self.presence = nn.Linear(1280, 63), nn.Linear(1280, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = self.backbone(image).mean((2, 3))
        return {"landmarks": self.points(x), "presence": torch.sigmoid(self.presence(x))}


class PixelShuffleHead(nn.Module):
    """Segmentation whose only exit is a PixelShuffle by 8."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 16, 3, 2), separable(16, 32, stride=2), separable(32, 64, stride=2), separable(64, 96))
        self.head, self.shuffle = nn.Conv2d(96, 2 * 64, 1), nn.PixelShuffle(8)

    def forward(self, image: Tensor) -> Tensor:
        return self.shuffle(self.head(self.body(image)))


def timm_model(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return make


def models() -> dict[str, tuple[Callable[[], nn.Module], int]]:
    """Name to factory and pixels."""
    names = [
        "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "mnasnet1_0", "efficientnet_b0", "resnet18", "resnet50",
        "shufflenet_v2_x0_5", "regnet_y_400mf",
    ]  # fmt: skip
    found = {name: (getattr(torchvision.models, name), 224) for name in names}
    segmentation = torchvision.models.segmentation.lraspp_mobilenet_v3_large
    found["lraspp_mobilenet_v3_large"] = (lambda: FirstOutput(segmentation(weights=None, weights_backbone=None)), 224)
    for name in ("efficientnet_lite0", "mobilenetv1_100", "mobilenetv4_conv_small"):
        found[f"timm {name}"] = (timm_model(name), 224)
    found["BlazeFace style"] = (BlazeFaceStyle, 128)
    found["hand landmark style"] = (HandLandmarkStyle, 224)
    found["PixelShuffle head"] = (PixelShuffleHead, 128)
    return found


def calibrated(network: nn.Module, pixels: int) -> nn.Module:
    """Batch-norm with the statistics of random images, so that activations are neither 0 nor without bound."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    network.train()
    with torch.no_grad():
        for _ in range(2):
            network(torch.randn(4, 3, pixels, pixels))
    return network.eval()


def export(make: Callable[[], nn.Module], pixels: int, folder: Path) -> tuple[ExportReport, dict[str, ExportReport], float]:
    """The export in float32, its dense twin encoded in the other precisions, and the seconds of the export."""
    torch.manual_seed(0)
    network = calibrated(make(), pixels)
    started = time.perf_counter()
    pointwise = any(isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.stride == (1, 1) for layer in network.modules())
    sparsity = SPARSITY if pointwise else None
    report = sparsetorch.export(network, folder / "m.tflite", (3, pixels, pixels), sparsity=sparsity, dense_twin=True)
    seconds = time.perf_counter() - started
    assert report.dense_twin is not None
    stored = {
        values: sparsetorch.encode(report.dense_twin.path, folder / f"{values}.tflite", storage=sparsetorch.Storage(values))
        for values in ("float16", "int8")
    }
    return report, stored, seconds


def row(name: str, make: Callable[[], nn.Module], pixels: int) -> dict[str, object]:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            report, stored, seconds = export(make, pixels, Path(folder))
        except SparsetorchError as error:
            return {"model": name, "pixels": pixels, "status": f"{type(error).__name__}: {error}"}
    verdict = report.verdict
    repairs = Counter(note.repair for note in report.repairs if note.applied)
    where = [f"{reason.module or reason.tensor or 'graph'}: {reason.rule}" for reason in verdict.reasons]
    assert report.dense_twin is not None
    return {
        "model": name,
        "pixels": pixels,
        "status": "written dense: unsafe" if report.refused else "right",
        "eligible": verdict.eligible,
        "convs_1x1": sum(tensor.pointwise for tensor in report.encoded),
        "spmm": verdict.expected_spmm,
        "repairs": ", ".join(f"{kind} {count}" for kind, count in repairs.items()),
        "error": f"{max(report.model.errors):.1e}",
        "dense_float32": report.dense_twin.bytes,
        "float32": report.model.bytes,
        **{values: other.model.bytes for values, other in stored.items()},
        **{f"error_{values}": f"{max(other.model.errors):.1e}" for values, other in stored.items()},
        "seconds": f"{seconds:.1f}",
        "reasons": "; ".join(dict.fromkeys(where)),
    }


def readme(rows: list[dict[str, str]]) -> str:
    """The table as Markdown, and every reason of what is not eligible."""
    lines = [
        "# The model matrix",
        "",
        "Random weights with calibrated batch-norm, one-shot magnitude 85 % over the 1x1 convolutions, exported by "
        "`run.py`; `results.csv` has all columns. Every file was run on the host and compared with PyTorch (the largest "
        "difference relative to the largest output); the two small precisions against the float32 twin. Verdicts are predictions "
        "for arm64 and wasm from XNNPACK's rules.",
        "",
        f"{platform.machine()}, virtual machine of two shared cores, one thread, torch {torch.__version__}, Python "
        f"{platform.python_version()}. Seconds are of the export in float32 with its twin.",
        "",
        "| model | eligible | SPMM expected of 1x1 convs | repairs | error | dense float32 | sparse float32 | float16 | int8-stored | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        if not one["eligible"]:
            lines.append(f"| {one['model']} | {one['status']} | | | | | | | | |")
            continue
        sizes = " | ".join(f"{int(one[key]):,}" for key in ("dense_float32", "float32", "float16", "int8"))
        told = "yes" if one["eligible"] == "True" else "no" if one["status"] == "right" else one["status"]
        lines.append(
            f"| {one['model']} | {told} | {one['spmm']} of {one['convs_1x1']} | {one['repairs']} | {one['error']} | {sizes} | "
            f"{one['seconds']} |"
        )
    lines += ["", "## Why not", ""]
    for one in rows:
        if one["reasons"] and one["eligible"] != "True":
            lines.append(f"- **{one['model']}**: {one['reasons']}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is not there yet, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", nargs="*", default=None)
    told = parser.parse_args()
    file = told.output / "results.csv"
    rows = {one["model"]: one for one in csv.DictReader(file.open())} if file.is_file() else {}
    for name, (make, pixels) in models().items():
        if name in rows if told.only is None else name not in told.only:
            continue
        print(name, flush=True)
        rows[name] = {key: str(value) for key, value in row(name, make, pixels).items()}
        ordered = [rows[known] for known in models() if known in rows]
        with file.open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows(ordered)
        (told.output / "README.md").write_text(readme([{column: one.get(column, "") for column in COLUMNS} for one in ordered]))


if __name__ == "__main__":
    main()
