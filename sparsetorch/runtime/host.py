"""LiteRT's interpreter of this environment: latency with XNNPACK, and reference numbers without it.

On x86 with AVX XNNPACK never takes its sparse path (XNNPACK 75db3c0 src/configs/hardware-config.c), and this interpreter names
no operators anywhere: it times and it computes, but whether the path was taken has to be seen in another runtime.
"""

import contextlib
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsetorch.runtime.worker import ModelJob, Timing, WorkerResult, run_worker

_WORKER = (sys.executable, "-m", "sparsetorch.runtime.host_worker")


def run(
    jobs: Sequence[ModelJob],
    folder: Path,
    timing: Timing | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
) -> WorkerResult:
    """Outputs, and with `timing` the latencies, of all models with XNNPACK.

    Raises:
        CannotObserveError: LiteRT does not start.
    """
    return run_worker(_WORKER, jobs, folder, timing, extra={"delegate": True, "denormals": False}, progress=progress)


def run_plain(jobs: Sequence[ModelJob], folder: Path, denormals: bool = False) -> WorkerResult:
    """Outputs of all models by LiteRT's own kernels; with `denormals`, their share among the values computed.

    Raises:
        CannotObserveError: LiteRT does not start.
    """
    return run_worker(_WORKER, jobs, folder, extra={"delegate": False, "denormals": denormals})


def has_avx() -> bool:
    """Whether this is an x86 processor with AVX. One whose features cannot be read counts as one: all since 2011 have it."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i686", "i386"):
        return False
    try:
        described = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return any("avx" in line.split() for line in described.splitlines() if line.startswith("flags"))


def processor() -> str:
    """Model name, as far as the system tells."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
