"""Child processes with a time limit, which never outlive the command that started them."""

import contextlib
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_GRACE = 2.0
"""Seconds between asking a process group to end and ending it."""


class ProcessError(Exception):
    """The process did not come to its end, or not to a good one."""

    errors = ""
    """What it wrote to standard error."""

    def complaint(self, start: str) -> str:
        """One line of what it said: the first that begins with `start`, else the last, else how it ended."""
        said = self.errors.splitlines()
        return next((line for line in said if line.startswith(start)), said[-1] if said else str(self))


class ProcessTimeoutError(ProcessError):
    """The process said nothing for too long, or ran for too long."""


class ProcessFailedError(ProcessError):
    """The process ended with an exit code other than 0."""

    def __init__(self, code: int, errors: str) -> None:
        self.code = code
        self.errors = errors.strip()
        super().__init__(describe_exit(code))


def describe_exit(code: int) -> str:
    """`exit code 3`, or `signal SIGSEGV`."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


@contextlib.contextmanager
def running(
    words: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.DEVNULL,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, the whole of which is gone when the block is left, however it is left.

    Args:
        words: the command.
        stdin, stdout, stderr: as `subprocess.Popen` takes them.
        environment: variables to add.
        folder: where to run it; None: here.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        words,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=None if environment is None else {**os.environ, **environment},
        cwd=folder,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for sign, patience in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)  # also what it started and left behind
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def lines(
    words: Sequence[str],
    *,
    silence: float,
    total: float,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[str]:
    """The lines that a process writes to its standard output, as they come.

    Args:
        words: the command.
        silence: seconds without a line after which it is given up.
        total: seconds after which it is given up, whatever it says.
        environment: variables to add.
        folder: where to run it; None: here.

    Raises:
        ProcessTimeoutError, ProcessFailedError: after the lines that came before.
    """
    with (
        tempfile.TemporaryFile() as errors,
        running(words, stderr=errors.fileno(), environment=environment, folder=folder) as process,
    ):
        assert process.stdout is not None
        end, rest = time.monotonic() + total, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                left = end - time.monotonic()
                if left <= 0 or not selector.select(min(silence, left)):
                    raise ProcessTimeoutError(
                        f"no answer in {silence:.0f} s" if silence < left else f"not done in {total:.0f} s"
                    )
                chunk = os.read(process.stdout.fileno(), 1 << 16)
                if not chunk:
                    break
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")
        try:
            code = process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            raise ProcessTimeoutError("it closed its output and went on") from None
        if code != 0:
            errors.seek(0)
            raise ProcessFailedError(code, errors.read().decode("utf-8", "replace"))


def output(
    words: Sequence[str], *, limit: float, environment: dict[str, str] | None = None, folder: Path | None = None
) -> str:
    """All that a process writes to its standard output.

    Raises:
        ProcessTimeoutError, ProcessFailedError.
    """
    return "\n".join(lines(words, silence=limit, total=limit, environment=environment, folder=folder))
