"""ONNX to a dense .tflite by onnx2tf, in a process of its own.

A process of its own, because TensorFlow and onnx2tf print, seed the random generators, hold a gigabyte, and can end the
process they run in. None of that may happen to a training.

The interpreter is this one, or that of the environment variable SPARSETORCH_ONNX2TF_PYTHON: onnx2tf pins numpy, protobuf and
onnx exactly, and may live in an environment of its own. What it does there is in `onnx2tf_worker`.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sparsetorch.errors import BadInputError
from sparsetorch.exporter.conversion_errors import conversion_failure
from sparsetorch.files import disk_errors
from sparsetorch.process import running

_TIMEOUT_SECONDS = 1800
_SAID = "output.txt"
_WORKER = Path(__file__).with_name("onnx2tf_worker.py")
PYTHON_VARIABLE = "SPARSETORCH_ONNX2TF_PYTHON"
"""Names the interpreter that has onnx2tf."""


class Converter:
    """A process with the converter, which loads TensorFlow (5 s) while its user makes the ONNX file.

    Leaving the `with` block ends the process, whatever happened in it.

    Raises:
        BadInputError: where its interpreter cannot be run.
    """

    def __enter__(self) -> "Converter":
        # onnx2tf calls the `onnxsim` program, which lies beside its interpreter even where that is not on the PATH.
        python = os.environ.get(PYTHON_VARIABLE) or sys.executable
        path = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
        environment = {
            "PATH": path,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONWARNINGS": "ignore",
        }
        with contextlib.ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparsetorch-")))
            said = stack.enter_context((self._folder / _SAID).open("wb"))  # a pipe nobody reads yet could fill up
            options = {"stdin": subprocess.PIPE, "stdout": said.fileno(), "stderr": subprocess.STDOUT}
            process = running([python, str(_WORKER)], **options, environment=environment, folder=self._folder)
            try:
                self._process = stack.enter_context(process)
            except OSError as error:
                raise BadInputError(f"{PYTHON_VARIABLE}: {python} cannot be run ({error.strerror})") from error
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def convert(self, *sources: Path) -> list[bytes]:
        """The dense float32 .tflite of each ONNX file: NHWC inputs and outputs, in the order of the ONNX graph. Once.

        Raises:
            BadInputError: where onnx2tf is not installed, or cannot convert one of the graphs.
        """
        folder = self._folder
        for index, source in enumerate(sources):
            with disk_errors(folder / f"{index}.onnx"):
                shutil.copyfile(source, folder / f"{index}.onnx")  # onnx2tf simplifies its input in place
        try:
            self._process.communicate(f"{len(sources)}\n".encode(), timeout=_TIMEOUT_SECONDS * len(sources))
        except subprocess.TimeoutExpired as error:
            raise BadInputError(f"onnx2tf did not finish within {_TIMEOUT_SECONDS * len(sources)} s") from error
        made = [folder / f"{index}.tflite" for index in range(len(sources))]
        if self._process.returncode != 0 or not all(file.is_file() for file in made):
            output = (folder / _SAID).read_text(errors="replace")
            raise BadInputError(conversion_failure(output, sources[0] if len(sources) == 1 else None))
        return [file.read_bytes() for file in made]


def convert_all(sources: Sequence[Path]) -> list[bytes]:
    """The .tflite of each ONNX file, all converted in one process; see `Converter`."""
    with Converter() as converter:
        return converter.convert(*sources)
