"""ONNX to a dense .tflite by onnx2tf, in a process of its own.

A process of its own, because TensorFlow and onnx2tf print, seed the random generators, hold a gigabyte, and can end the
process they run in. None of that may happen to a training.

The interpreter is this one, or that of the environment variable SPARSETORCH_ONNX2TF_PYTHON: onnx2tf pins numpy, protobuf and
onnx exactly, and may live in an environment of its own. What it does there is in `onnx2tf_worker`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError

_TIMEOUT_SECONDS = 1800
_WORKER = Path(__file__).with_name("onnx2tf_worker.py")
PYTHON_VARIABLE = "SPARSETORCH_ONNX2TF_PYTHON"
"""Names the interpreter that has onnx2tf."""


def onnx_to_tflite(source: Path) -> bytes:
    """The dense float32 .tflite of an ONNX file: NHWC inputs and outputs, in the order of the ONNX graph.

    Raises:
        BadInputError: where onnx2tf is not installed, or cannot convert the graph.
    """
    return convert_all([source])[0]


def convert_all(sources: Sequence[Path]) -> list[bytes]:
    """The .tflite of each ONNX file, all converted in one process: TensorFlow takes seconds to load.

    Raises:
        BadInputError: where onnx2tf is not installed, or cannot convert one of the graphs.
    """
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        for index, source in enumerate(sources):
            shutil.copyfile(source, Path(folder, f"{index}.onnx"))  # onnx2tf simplifies its input in place
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore")
        # onnx2tf calls the `onnxsim` program, which lies beside its interpreter even where that is not on the PATH.
        python = environment.pop(PYTHON_VARIABLE, "") or sys.executable
        environment["PATH"] = os.pathsep.join([str(Path(python).parent), environment.get("PATH", "")])
        try:
            done = subprocess.run(
                [python, str(_WORKER), str(len(sources))],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_SECONDS * len(sources),
                check=False,
            )
        except OSError as error:
            raise BadInputError(f"{PYTHON_VARIABLE}: {python} cannot be run ({error.strerror})") from error
        except subprocess.TimeoutExpired as error:
            raise BadInputError(f"onnx2tf did not finish within {_TIMEOUT_SECONDS * len(sources)} s") from error
        made = [Path(folder, f"{index}.tflite") for index in range(len(sources))]
        if done.returncode != 0 or not all(file.is_file() for file in made):
            raise BadInputError(_failure(done.stdout + "\n" + done.stderr))
        return [file.read_bytes() for file in made]


def _failure(output: str) -> str:
    """One sentence from what onnx2tf printed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No module named" in line and ("onnx2tf" in line or "tensorflow" in line) for line in lines):
        return (
            "onnx2tf is not installed; needed for export: pip install 'sparsetorch[export]', in one call with the rest"
        )
    told = [line for line in lines if line.startswith("ERROR") or "Error:" in line]
    return f"onnx2tf cannot convert this network: {(told or lines or ['it ended without a word'])[-1][:500]}"
