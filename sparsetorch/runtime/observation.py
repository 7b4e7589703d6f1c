"""What a runtime showed, as plain values."""

from dataclasses import asdict, dataclass, field
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

    runtime: str
    version: str
    """Every part that had a say: the runtime, its XNNPACK, the machine it ran on."""
    taken: bool | None
    """Whether every 1x1 convolution that should ran sparse, and right; None where the runtime does not tell."""
    spmm: int | None
    operators: dict[str, int]
    """XNNPACK operator name -> how many ran; empty where the runtime names none."""
    max_rel_error: float | None
    """Largest |difference| from the reference over all outputs and inputs, relative to the largest |value|; None: not run."""
    predicted: Counts | None = None
    """What the rules of that runtime's XNNPACK revision predict."""
    counts: Counts | None = None
    errors: dict[str, float | None] = field(default_factory=dict)
    """`max_rel_error` of each engine that ran; None for one that does not load the file."""
    disagreements: tuple[str, ...] = ()
    """Where prediction and observation differ: empty is what should be."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        fields = asdict(self)
        del fields["runtime"]
        return fields | {"disagreements": list(self.disagreements), "notes": list(self.notes)}
