"""Where runtimes are installed: one folder for each set of versions, complete or absent.

`SPARSETORCH_RUNTIMES` names the place; otherwise it is `sparsetorch/runtimes` under `XDG_CACHE_HOME`, or `~/.cache`. Nothing in
it is needed by anything else, and all of it may be deleted.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from sparsetorch.errors import BadInputError

_READY = ".ready"


def runtimes_folder() -> Path:
    """The folder of all runtimes. It need not exist."""
    chosen = os.environ.get("SPARSETORCH_RUNTIMES")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and os.path.isabs(base) else Path.home() / ".cache") / "sparsetorch" / "runtimes"


def installed(name: str) -> Path | None:
    """The folder of a complete installation, or None."""
    folder = runtimes_folder() / name
    return folder if (folder / _READY).is_file() else None


def install(name: str, fill: Callable[[Path], None]) -> tuple[Path, bool]:
    """Make the folder `name` by `fill(temporary folder)`, unless it is there; and whether it was made now.

    Two processes that install the same wait for each other, and one that is killed leaves nothing behind but a folder
    that the next one clears away.

    Raises:
        BadInputError: the place cannot be written. What `fill` raises passes through.
    """
    root = runtimes_folder()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _lock(root / f".{name}.lock"):
            found = installed(name)
            if found is not None:
                return found, False
            for left in root.glob(f".{name}.tmp-*"):
                shutil.rmtree(left, ignore_errors=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{name}.tmp-", dir=root))
            try:
                fill(temporary)
                (temporary / _READY).touch()
                temporary.chmod(0o755)
                target = root / name
                shutil.rmtree(target, ignore_errors=True)  # without the mark it was never complete
                temporary.rename(target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            return target, True
    except OSError as error:
        raise BadInputError(
            f"{root}: runtimes cannot be installed there ({error.strerror or error}). "
            "Name another folder by the environment variable SPARSETORCH_RUNTIMES."
        ) from error


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
