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


class ProcessTimeoutError(Exception):
    """The process said nothing for too long, or ran for too long."""


class ProcessFailedError(Exception):
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
def _running(
    words: Sequence[str], errors: int, environment: dict[str, str] | None, folder: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, the whole of which is gone when the block is left, however it is left."""
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
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
        if process.stdout is not None:
            process.stdout.close()


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
    with tempfile.TemporaryFile() as errors, _running(words, errors.fileno(), environment, folder) as process:
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
