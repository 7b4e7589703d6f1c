"""Random small PyTorch CNNs, made of the blocks that users bring: inverted bottlenecks, gates, activations, strides, tails."""

import random as python_random

import torch
from torch import Tensor, nn

SIZE = 32


def random_network(seed: int) -> nn.Module:
    """A network for (1, 3, 32, 32) images with calibrated batch-norm, in evaluation mode; the same for the same seed."""
    torch.manual_seed(seed)
    network = _Network(python_random.Random(seed))
    network.train()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # the average over all batches seen
    with torch.no_grad():
        for _ in range(2):
            network(torch.randn(4, 3, SIZE, SIZE))
    return network.eval()


class _Network(nn.Module):
    def __init__(self, draw: python_random.Random) -> None:
        super().__init__()
        width = draw.choice([8, 16])
        act = draw.choice([nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, lambda: nn.LeakyReLU(0.1)])
        stem = draw.choice([*["usual"] * 8, "stride 1", "7x7"])
        kernel, stride = {"usual": (3, 2), "stride 1": (3, 1), "7x7": (7, 2)}[stem]
        parts: list[nn.Module] = [_conv(3, width, kernel, stride, act=act)]
        for _ in range(draw.randint(1, 3)):
            out = draw.choice([8, 16, 24])
            kind = draw.choice([*["bottleneck"] * 6, "separable", "separable", "residual", "dense"])
            stride = draw.choice([1, 1, 2])
            if kind == "bottleneck":
                gate = draw.choice([None, None, nn.Hardsigmoid, nn.Sigmoid])
                parts.append(_Bottleneck(width, out, draw.choice([3, 5]), stride, gate, act))
            elif kind == "separable":
                parts += [_conv(width, width, 3, stride, width, act), _conv(width, out, 1, act=act)]
            elif kind == "residual":
                parts += [_Residual(width, act), _conv(width, out, 1, act=act)]
            else:
                parts.append(_conv(width, out, 3, stride, act=act))
            width = out
        self.body = nn.Sequential(*parts, _conv(width, width, 1, act=act))
        self.tail = _Tail(
            width, draw.choice(["linear", "conv", "hidden", "average", "shuffle", "two heads", "flatten"])
        )

    def forward(self, image: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return self.tail(self.body(image))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: object = nn.ReLU) -> nn.Module:
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))  # type: ignore[operator]


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, gate: object, act: object) -> None:
        super().__init__()
        wide = 3 * inputs
        self.expand = _conv(inputs, wide, 1, act=act)
        self.depthwise = _conv(wide, wide, kernel, stride, wide, act)
        self.gate = None if gate is None else _Gate(wide, gate)
        self.project = _conv(wide, outputs, 1, act=None)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        y = self.project(y if self.gate is None else self.gate(y))
        return x + y if self.adds else y


class _Gate(nn.Module):
    def __init__(self, channels: int, act: object) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)
        self.act = act()  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        return x * self.act(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))


class _Residual(nn.Module):
    def __init__(self, channels: int, act: object) -> None:
        super().__init__()
        self.inner = nn.Sequential(_conv(channels, channels, 3, act=act), _conv(channels, channels, 3, act=None))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.inner(x))


class _Tail(nn.Module):
    def __init__(self, channels: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.one = (
            nn.LazyLinear(10) if kind in ("linear", "two heads", "flatten", "average") else nn.Conv2d(channels, 32, 1)
        )
        self.two = nn.LazyLinear(3) if kind == "two heads" else nn.Conv2d(32, 8, 1)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if self.kind == "linear":
            return self.one(x.mean((2, 3)))
        if self.kind == "two heads":
            pooled = self.pool(x).flatten(1)
            return self.one(pooled), torch.sigmoid(self.two(pooled))
        if self.kind == "flatten":
            return self.one(nn.functional.max_pool2d(x, 2).flatten(1))
        if self.kind == "average":
            return self.one(nn.functional.avg_pool2d(x, x.shape[-1]).flatten(1))
        if self.kind == "shuffle":
            return nn.functional.pixel_shuffle(self.one(x), 4)
        y = self.one(self.pool(x))
        return self.two(nn.functional.hardswish(y) if self.kind == "hidden" else y).flatten(1)
