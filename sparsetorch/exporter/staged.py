"""Exported files appear together, checked, or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from sparsetorch.exporter.interpreter import Array, check_storage
from sparsetorch.exporter.outcome import ExportedFile, described
from sparsetorch.files import disk_errors, put_in_place
from sparsetorch.tflite import Model, Storage, decode, to_bytes


@contextlib.contextmanager
def as_file(model: Model) -> Iterator[Path]:
    """A model as a temporary file, for what wants one."""
    with tempfile.TemporaryDirectory(prefix="sparsetorch-") as folder:
        path = Path(folder, "model.tflite")
        with disk_errors(path):
            path.write_bytes(to_bytes(model))
        yield path


class StagedFiles:
    """Files are written and checked under trial names beside their places; leaving the `with` block without an error renames
    them all, which needs no more room on the disk. After an error, a place holds what it held before."""

    def __enter__(self) -> "StagedFiles":
        self._folders = contextlib.ExitStack()
        self._staged: list[tuple[Path, Path]] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._folders:
            if kind is None:
                for trial, target in self._staged:
                    put_in_place(trial, target)

    def write(
        self,
        model: Model,
        path: Path,
        storage: Storage,
        inputs: Sequence[Sequence[Array]],
        check: Callable[[Path], list[float]],
    ) -> ExportedFile:
        """Write a model under a trial name and have that very file checked.

        Args:
            model: what to write.
            path: the name that it gets at the end.
            storage: what its weights are stored as; where that rounds them, the file must compute what its rounded weights say.
            inputs: sets of inputs for that.
            check: gives the errors of a file, per output; raises where they are too large.

        Raises:
            WrongNumbersError: the file computes something else.
            BadInputError: it cannot be written.
        """
        content = to_bytes(model)
        with disk_errors(path):
            folder = tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
            trial = Path(self._folders.enter_context(folder), "trial.tflite")
            with trial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        if storage.rounds:
            with as_file(decode(model)) as plain:
                check_storage(trial, plain, inputs)
        errors = check(trial)
        self._staged.append((trial, path))
        return described(str(path), content, errors, storage.values)
