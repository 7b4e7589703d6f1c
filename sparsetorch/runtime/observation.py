"""What a runtime showed, as plain values."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Counts:
    """XNNPACK's convolutions and fully-connected layers, by the kind of kernel that runs them.

    Kinds, not names: revisions since 2025 run a channels-last 1x1 convolution as a fully-connected layer.
    """

    spmm: int
    """1x1 convolutions that run as sparse matrix multiplications."""
    entries: int
    """Convolutions that read channels last and write channels first."""
    depthwise: int
    """Depthwise convolutions in channels-first layout."""
    channels_last: int
    """Every other convolution, and every fully-connected layer."""

    def __str__(self) -> str:
        return (
            f"{self.spmm} SPMM, {self.entries} entry and {self.depthwise} depthwise channels first, "
            f"{self.channels_last} channels last or fully connected"
        )


@dataclass(frozen=True)
class Observation:
    """One model in one runtime."""

    version: str
    """Every part that had a say: the runtime, what ran it, the machine."""
    taken: bool | None
    """Whether every sparse-encoded 1x1 convolution ran sparse, with the right numbers; None where the runtime cannot tell."""
    spmm: int | None
    """Sparse matrix multiplications seen; None where the runtime names no operators, or does not load the file."""
    operators: dict[str, int]
    """XNNPACK operator name -> how often it ran in one inference; empty where the runtime names none."""
    max_rel_error: float | None
    """Largest |difference| from the reference over all outputs and inputs, relative to the largest |value| of the output;
    None where the file does not load, or gives values that are no numbers."""
    errors: dict[str, float | None]
    """`max_rel_error` of each engine in the runtime."""
    expected: Counts | None
    """What the rules of that runtime's XNNPACK revision expect."""
    counts: Counts | None
    wrong: tuple[str, ...] = ()
    """Which engines gave wrong numbers, in words."""
    disagreements: tuple[str, ...] = ()
    """Where rules and observation differ, in words: empty is what should be."""
    notes: tuple[str, ...] = ()
    """What this runtime could not show, and which one can."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {name: list(getattr(self, name)) for name in ("wrong", "disagreements", "notes")}
