"""Writing results: whole or not at all."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file through a temporary one in its folder and a rename, so that no reader sees half of it.

    Raises:
        BadInputError: where the folder does not exist or cannot be written, or the disk is full. What lay at `path`
            before is then untouched.
    """
    target = Path(path)
    if target.is_dir():
        raise BadInputError(f"{target}: found a folder, needed a file name")
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes a private file; the result is an ordinary one
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise BadInputError(f"{target}: cannot be written ({error.strerror or error})") from error
    except BaseException:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise


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
