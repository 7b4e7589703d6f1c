"""The devices and runtimes that a model can be verified for."""

from collections.abc import Iterable
from dataclasses import dataclass

from sparsetorch.errors import UsageError
from sparsetorch.xnnpack.revisions import CURRENT, Revision


@dataclass(frozen=True)
class Target:
    """One kind of device, with the XNNPACK revisions that runtimes for it are built from."""

    name: str
    description: str
    revisions: tuple[Revision, ...] = CURRENT
    always_off: str | None = None
    """Why the sparse path is never taken there; None where it can be."""
    knows_densify: bool = True
    """Whether the runtime can load a sparse-encoded file at all."""


_ALL = (
    Target("arm64", "64-bit ARM: Android, iOS, Raspberry Pi 64-bit, Apple silicon (NEON)"),
    Target("arm32", "32-bit ARM with NEON"),
    Target("wasm", "WebAssembly with SIMD: browsers, Node"),
    Target(
        "x86",
        "x86 and x86-64 with AVX: laptops, servers, desktop emulators",
        always_off="XNNPACK switches the sparse path off on x86 with AVX, whatever the model",
    ),
    Target("x86-noavx", "x86 without AVX: old Atom, emulators (SSE)"),
    Target("riscv-vector", "RISC-V with the vector extension"),
    Target(
        "tflite-micro",
        "microcontrollers with TensorFlow Lite Micro",
        always_off="TensorFlow Lite Micro has no XNNPACK, and its DENSIFY is unknown to most builds: ship the dense file",
        knows_densify=False,
    ),
)
"""Hardware rules: XNNPACK 75db3c0 src/configs/hardware-config.c and src/xnnpack/hardware-config.h,
xnn_is_chw_compatible_config."""

TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
DEFAULT_TARGETS = ("arm64", "wasm")


def find_targets(names: Iterable[str]) -> tuple[Target, ...]:
    """The targets of these names, in their order, each once.

    Raises:
        UsageError: an unknown name, or none at all.
    """
    wanted = list(dict.fromkeys(names))
    unknown = [name for name in wanted if name not in TARGETS]
    if unknown or not wanted:
        what = f"unknown target {', '.join(map(repr, unknown))}" if unknown else "no target"
        raise UsageError(f"{what}. Targets: {', '.join(TARGETS)}.")
    return tuple(TARGETS[name] for name in wanted)
