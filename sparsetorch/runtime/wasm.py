"""WebAssembly under Node.js: an old XNNPACK that names its operators, and today's, which is timed.

- npm's @tensorflow/tfjs-tflite 0.0.1-alpha.10: XNNPACK of about 2023; its profiler names every operator.
- npm's @litertjs/core: XNNPACK of 2026; numbers and latency, no names.

Both are unmodified released packages. Versions and integrity hashes: `js/package-lock.json`.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError, CannotObserveError
from sparsetorch.process import ProcessFailedError, ProcessTimeoutError, output
from sparsetorch.runtime.cache import install, installed
from sparsetorch.runtime.model_io import inputs_of, outputs_of
from sparsetorch.runtime.node import Node, find_node
from sparsetorch.runtime.worker import ModelJob, Timing, WorkerResult, run_worker
from sparsetorch.tflite import Model

SCRIPTS = Path(__file__).parent / "js"
_MANIFESTS = ("package.json", "package-lock.json")
_INSTALL_LIMIT = 600.0


def folder_name() -> str:
    """`wasm-` and a checksum of the locked versions: other versions are another folder."""
    digest = hashlib.sha256()
    for name in _MANIFESTS:
        digest.update((SCRIPTS / name).read_bytes())
    return f"wasm-{digest.hexdigest()[:12]}"


def install_packages() -> tuple[Path, bool]:
    """Install the packages that `package-lock.json` names; the folder, and whether it was made now.

    Raises:
        CannotObserveError: no Node.js.
        BadInputError: npm failed, with what it said.
    """
    node = find_node()

    def fill(folder: Path) -> None:
        for name in _MANIFESTS:
            shutil.copy(SCRIPTS / name, folder / name)
        # No scripts: the packages need none. No peers: tfjs-tflite's is TensorFlow.js, which its module does not need.
        words = [
            *node.npm,
            "ci",
            "--ignore-scripts",
            "--legacy-peer-deps",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(folder),
        ]
        try:
            output(words, limit=_INSTALL_LIMIT)
        except ProcessFailedError as error:
            said = [line for line in error.errors.splitlines() if "npm error" in line or "npm ERR" in line]
            told = "; ".join(said[:3]) or f"it ended with {error}"
            raise BadInputError(
                f"npm could not install the WebAssembly runtimes: {told}. It needs the network once, to registry.npmjs.org "
                "or the registry that your npm is configured for."
            ) from error
        except ProcessTimeoutError as error:
            raise BadInputError(f"npm could not install the WebAssembly runtimes: {error}. Try again.") from error

    return install(folder_name(), fill)


def packages() -> Path:
    """The folder with the installed packages.

    Raises:
        CannotObserveError: they are not installed.
    """
    found = installed(folder_name())
    if found is None:
        raise CannotObserveError(
            "the WebAssembly runtimes are not installed; `sparsetorch runtime install wasm` does it (once, 15 MB from npm)"
        )
    return found


def observe_operators(jobs: Sequence[ModelJob], folder: Path) -> WorkerResult:
    """Operator names and outputs of all models in tfjs-tflite.

    Raises:
        CannotObserveError: not installed, or it does not start.
    """
    return run_worker([find_node().path, SCRIPTS / "operators.cjs", packages()], jobs, folder)


def litert_takes(model: Model) -> bool:
    """Whether LiteRT.js can be fed: its tensors are float32, int32 and uint8."""
    types = {slot.tensor.type_name for slot in [*inputs_of(model), *outputs_of(model)]}
    return types <= {"float32", "int32", "uint8"}


def run_litert(
    jobs: Sequence[ModelJob],
    folder: Path,
    timing: Timing | None = None,
    progress: Callable[[int], None] = lambda rounds: None,
) -> WorkerResult:
    """Outputs, and with `timing` the latencies, of all models in LiteRT.js.

    Raises:
        CannotObserveError: not installed, or it does not start.
    """
    node = find_node()
    return run_worker(_litert(node, packages()), jobs, folder, timing, progress=progress)


def _litert(node: Node, root: Path) -> list[str | Path]:
    return [node.path, *node.relaxed_simd, SCRIPTS / "litert_node.mjs", root]
