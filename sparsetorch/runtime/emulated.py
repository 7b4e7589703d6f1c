"""An x86 processor without AVX, emulated: today's XNNPACK takes its sparse path there and names its operators.

qemu-x86_64 (Debian's `qemu-user`) runs this computer's Python as a Nehalem, and that loads `libLiteRt.so` of an unmodified
ai-edge-litert wheel, installed beside the environment's own. Emulated time is not latency and is never reported.
"""

import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError, CannotObserveError
from sparsetorch.process import ProcessError, output
from sparsetorch.runtime.cache import install, installed
from sparsetorch.runtime.worker import ModelJob, WorkerResult, run_worker

LITERT = "2.3.0"
PROCESSOR = "Nehalem"
"""The last Intel generation without AVX."""
QEMU = "qemu-x86_64"
LIBRARY = Path("ai_edge_litert") / "libLiteRt.so"
WORKER = Path(__file__).with_name("profile_worker.py")
_INSTALL_LIMIT = 600.0
MODEL_LIMIT = 600.0


def folder_name() -> str:
    """The folder in the cache; wheels differ by Python version."""
    return f"litert-{LITERT}-{sys.implementation.cache_tag}"


def install_library() -> tuple[Path, bool]:
    """Install the LiteRT library; the folder, and whether it was made now.

    Raises:
        BadInputError: pip failed, with what it said.
        CannotObserveError: another processor, or no qemu.
    """
    _find_qemu()

    return install(folder_name(), install_litert)


def install_litert(folder: Path, *options: str) -> None:
    """Let pip unpack the wheel of ai-edge-litert into a folder; `options` choose one of another platform.

    Raises:
        BadInputError: pip failed, with what it said.
    """
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *options]
    try:
        output([*words, "--target", str(folder), f"ai-edge-litert=={LITERT}"], limit=_INSTALL_LIMIT)
    except ProcessError as error:
        raise BadInputError(
            f"pip could not install ai-edge-litert {LITERT}: {error.complaint('ERROR')}. It needs the network once."
        ) from error
    if not (folder / LIBRARY).is_file():
        raise BadInputError(f"ai-edge-litert {LITERT} holds no {LIBRARY} for this platform.")


def observe_operators(jobs: Sequence[ModelJob], folder: Path) -> WorkerResult:
    """Operator names and outputs of all models.

    Raises:
        CannotObserveError: not installed, or it does not start.
    """
    qemu, library = _find_qemu(), _library()
    # The interpreter itself, not a virtual environment's link to it: qemu starts the file that it is given.
    words: list[str | Path] = [qemu, "-cpu", PROCESSOR, os.path.realpath(sys.executable), "-I", "-S", WORKER]
    extra = {"library": str(library), "versions": parts()}
    return run_worker(words, jobs, folder, extra=extra, limit=MODEL_LIMIT)


def parts() -> dict[str, str]:
    """Part -> version.

    Raises:
        CannotObserveError: not installed.
    """
    qemu = _find_qemu()
    _library()
    return {"ai-edge-litert": LITERT, QEMU: f"{qemu_version(qemu)} -cpu {PROCESSOR}"}


def _library() -> Path:
    root = installed(folder_name())
    if root is None:
        raise CannotObserveError(
            "the emulated runtime is not installed; `sparsetorch runtime install emulated` does it (once, 30 MB from PyPI)"
        )
    return root / LIBRARY


def _find_qemu() -> str:
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        raise CannotObserveError(
            f"the emulated runtime runs this computer's Python as an older x86-64 processor; this is {sys.platform} on "
            f"{platform.machine()}. Use --observe wasm."
        )
    return find_program(QEMU)


def find_program(qemu: str) -> str:
    """The path of an emulator.

    Raises:
        CannotObserveError: it is not installed.
    """
    found = shutil.which(qemu)
    if found is None:
        raise CannotObserveError(
            f"{qemu} is not installed; on Debian and Ubuntu: apt-get install qemu-user. Or use --observe wasm."
        )
    return found


def qemu_version(qemu: str) -> str:
    """The emulator's version, such as `7.2.22`."""
    try:
        return output([qemu, "--version"], limit=20).split("version ")[1].split()[0].rstrip(",")
    except (IndexError, ProcessError):
        return "of unknown version"
