"""A 64-bit ARM processor, emulated: the NEON kernels of phones, with today's XNNPACK, and its operators by name.

qemu-aarch64 (Debian's `qemu-user`) runs an ARM Python out of Debian's packages, unpacked into a folder and not installed, and
that loads `libLiteRt.so` of ai-edge-litert's wheel for ARM. Emulated time is not latency and is never reported.

Two things that are not obvious: LiteRT 2.3 asks /proc/cpuinfo for the processor's features, and qemu before version 10 shows the
host's, so the folder has one of a Neoverse N1, which qemu's `-L` puts before the real one; and apt works as any user if all its
state is in a folder of its own.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError, CannotObserveError
from sparsetorch.process import ProcessError, output
from sparsetorch.runtime.cache import install, installed
from sparsetorch.runtime.emulated import (
    LIBRARY,
    LITERT,
    MODEL_LIMIT,
    WORKER,
    find_program,
    install_litert,
    qemu_version,
)
from sparsetorch.runtime.worker import ModelJob, WorkerResult, run_worker

PROCESSOR = "neoverse-n1"
QEMU = "qemu-aarch64"
_FOLDER = f"arm64-litert-{LITERT}"
_WHEEL = (
    "--platform",
    "manylinux_2_27_aarch64",
    "--only-binary=:all:",
    "--python-version",
    "3.11",
    "--implementation",
    "cp",
)
_LIBRARIES = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8")
_LIMIT = 600.0
_CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1
"""
_APT = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
APT::Sandbox::User "";
Dir::State "{folder}/state";
Dir::State::status "{folder}/state/status";
Dir::Cache "{folder}/cache";
"""


def install_system() -> tuple[Path, bool]:
    """Unpack an ARM Python and LiteRT; the folder, and whether it was made now.

    Raises:
        BadInputError: apt, dpkg-deb or pip failed, with what it said.
        CannotObserveError: no qemu, or no apt.
    """
    find_program(QEMU)
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise CannotObserveError(
                f"{program} is not here: the emulated ARM system comes from Debian's packages. Use --observe emulated or wasm."
            )

    def fill(folder: Path) -> None:
        versions = _unpack_debian(folder)
        install_litert(folder / "litert", *_WHEEL)
        (folder / "root" / "proc").mkdir()
        (folder / "root" / "proc" / "cpuinfo").write_text(_CPUINFO)
        (folder / "versions.json").write_text(json.dumps(versions))

    return install(_FOLDER, fill)


def _unpack_debian(folder: Path) -> dict[str, str]:
    """Fetch and unpack a Python with its libraries; Debian's version of each package."""
    apt = folder / "apt"
    for place in ("state/lists/partial", "cache/archives/partial", "packages"):
        (apt / place).mkdir(parents=True)
    (apt / "state" / "status").touch()
    (apt / "apt.conf").write_text(_APT.format(folder=apt))
    environment = {"APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C"}

    def call(*words: str) -> str:
        try:
            return output(words, limit=_LIMIT, environment=environment, folder=apt / "packages")
        except ProcessError as error:
            raise BadInputError(
                f"{words[0]} {words[1]} failed: {error.complaint('E:')}. It needs the network and Debian's arm64 packages once."
            ) from error

    call("apt-get", "update", "-qq")
    found = re.search(r"Depends: python(3\.\d+)-minimal", call("apt-cache", "show", "python3-minimal"))
    if found is None:
        raise BadInputError(
            "apt-cache knows no python3-minimal for arm64: these sources have no arm64 packages (Ubuntu's have not)."
        )
    python = f"python{found[1]}"
    call("apt-get", "download", "-qq", f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib", *_LIBRARIES)
    versions = {}
    for package in sorted((apt / "packages").glob("*.deb")):
        call("dpkg-deb", "--extract", str(package), str(folder / "root"))
        name, version, _ = package.stem.split("_")
        versions[name] = version.replace("%3a", ":")
    shutil.rmtree(apt)
    return versions


def parts() -> dict[str, str]:
    """Part -> version.

    Raises:
        CannotObserveError: not installed.
    """
    qemu, versions = find_program(QEMU), json.loads((_system() / "versions.json").read_text())
    python = next(
        f"{name.removesuffix('-minimal')}:arm64" for name in versions if re.fullmatch(r"python3[\d.]+-minimal", name)
    )
    number = next(version for name, version in versions.items() if name.startswith("python3"))
    return {"ai-edge-litert": f"{LITERT} (aarch64)", python: number, QEMU: f"{qemu_version(qemu)} -cpu {PROCESSOR}"}


def _system() -> Path:
    found = installed(_FOLDER)
    if found is None:
        raise CannotObserveError(
            "the emulated ARM system is not installed; `sparsetorch runtime install emulated-arm64` does it (once, 40 MB from "
            "Debian and PyPI)"
        )
    return found


def observe_operators(jobs: Sequence[ModelJob], folder: Path) -> WorkerResult:
    """Operator names and outputs of all models.

    Raises:
        CannotObserveError: not installed, or it does not start.
    """
    qemu, system = find_program(QEMU), _system()
    (python,) = (
        path for path in (system / "root/usr/bin").glob("python3.*") if path.name.removeprefix("python3.").isdigit()
    )
    words: list[str | Path] = [qemu, "-L", system / "root", "-cpu", PROCESSOR, python, "-I", "-S", WORKER]
    extra = {"library": str(system / "litert" / LIBRARY), "versions": parts()}
    return run_worker(words, jobs, folder, extra=extra, limit=MODEL_LIMIT)
