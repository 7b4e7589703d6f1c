"""Writing results: whole or not at all."""

import contextlib
import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError


def check_writable(path: Path) -> Path:
    """Refuse a place that cannot be written before time is spent on what goes there.

    Raises:
        BadInputError: a folder, a place without a folder, one without permission, or something that is no file.
    """
    if path.is_dir():
        raise BadInputError(f"{path}: found a folder, needed the name of the file to write, such as model.tflite")
    if not path.parent.is_dir():
        raise BadInputError(f"{path}: its folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadInputError(f"{path}: its folder {path.parent} cannot be written")
    _file_behind(path)
    return path


def _file_behind(path: Path) -> Path:
    """The file that a write to `path` is meant for: itself, or what a link leads to.

    Raises:
        BadInputError: a device, a pipe or a socket, which a rename would replace by a file.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not target.is_file():
        raise BadInputError(f"{path}: found a device, a pipe or another thing that is no file; give the name of a file")
    return target


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the target, flush to the disk, then rename: a reader sees the old file or the new one.

    A link stays a link, and the file that it leads to is the target.

    Raises:
        BadInputError: the place cannot be written, or the disk is full; what lay at `path` before is then untouched.
    """
    target = _file_behind(Path(path))
    temporary = None
    try:
        with disk_errors(target):
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
                temporary = file.name
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            put_in_place(Path(temporary), target)
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a finished file its name, and the rights of a usual file: temporary ones are private.

    Raises:
        BadInputError: the place cannot be written.
    """
    target = _file_behind(path)
    with disk_errors(target):
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full disk, a quota, a missing right: one message that names the place.

    Raises:
        BadInputError: for any OSError inside.
    """
    try:
        yield
    except OSError as error:
        place = "; TMPDIR names another place for temporary files" if path.is_relative_to(tempfile.gettempdir()) else ""
        raise BadInputError(f"{path}: cannot be written ({error.strerror or error}){place}") from None


def gzipped_size(content: bytes) -> int:
    """Bytes of the content as gzip's best compression has it, and so a download."""
    return len(gzip.compress(content, 9, mtime=0))


def first_free(base: Path) -> Path:
    """The first of base, base-2, base-3, ... that does not exist or is an empty folder: nothing is ever written over."""
    candidate, number = base, 1
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(destination: str, result: dict[str, Any]) -> None:
    """Write a result as JSON to a file, or to standard output for `-`."""
    text = json.dumps(result, indent=2, allow_nan=False) + "\n"
    if destination == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_atomically(destination, text.encode())
