"""Every runtime that `sparsetorch runtime` knows: what it shows, whether it is there, in which versions, and how to get it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sparsetorch.errors import CannotObserveError
from sparsetorch.runtime import android, chromium, emulated, emulated_arm64, host, wasm
from sparsetorch.runtime.node import find_node


@dataclass(frozen=True)
class Entry:
    """One runtime."""

    name: str
    shows: str
    parts: Callable[[], dict[str, str]]
    """Part -> version; raises CannotObserveError with what is missing and the command that installs it."""
    install: Callable[[], tuple[Path, bool]] | None = None
    """Install it; the place, and whether anything was done."""


@dataclass(frozen=True)
class State:
    """Whether a runtime can be used now."""

    name: str
    shows: str
    ready: bool
    parts: dict[str, str]
    missing: str | None
    """What is missing, and the command that installs it."""


def _host() -> dict[str, str]:
    return {"ai-edge-litert": version("ai-edge-litert"), "processor": host.processor()}


def _wasm() -> dict[str, str]:
    node = find_node()
    found = {"Node.js": ".".join(map(str, node.version))}
    for name in ("@litertjs/core", "@tensorflow/tfjs-tflite"):
        manifest = wasm.packages() / "node_modules" / name / "package.json"
        found[name] = str(json.loads(manifest.read_text())["version"])
    return found


def _chromium() -> dict[str, str]:
    name, _, number = chromium.version().rpartition(" ")
    return {name or "Chromium": number, "@litertjs/core": _wasm()["@litertjs/core"]}


ENTRIES = {
    entry.name: entry
    for entry in (
        Entry("host", "numbers and latency on this computer; never the sparse path on x86 with AVX", _host),
        Entry(
            "wasm",
            "operators (XNNPACK of 2023), numbers and latency (today's) in WebAssembly under Node.js",
            _wasm,
            wasm.install_packages,
        ),
        Entry("chromium", "numbers and latency in a browser (today's XNNPACK)", _chromium, chromium.install_browser),
        Entry(
            "emulated",
            "operators and numbers of today's XNNPACK on an emulated x86 processor without AVX; no latency",
            emulated.parts,
            emulated.install_library,
        ),
        Entry(
            "emulated-arm64",
            "the same on an emulated 64-bit ARM processor: the NEON kernels of phones",
            emulated_arm64.parts,
            emulated_arm64.install_system,
        ),
        Entry("android", "operators, numbers and latency on a phone over adb", android.parts),
    )
}
INSTALLABLE = tuple(entry.name for entry in ENTRIES.values() if entry.install is not None)


def state(entry: Entry) -> State:
    """Look whether a runtime is there; nothing is installed."""
    try:
        return State(entry.name, entry.shows, True, entry.parts(), None)
    except CannotObserveError as error:
        return State(entry.name, entry.shows, False, {}, str(error))
