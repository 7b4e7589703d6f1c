"""Child processes: what they say, how they end, and that nothing of them stays behind."""

import os
import sys
import time
from pathlib import Path

import pytest

from sparsetorch.process import ProcessFailedError, ProcessTimeoutError, describe_exit, lines, output


def python(code: str) -> list[str]:
    return [sys.executable, "-u", "-c", code]


def test_lines_come_whole_and_a_last_one_without_an_end_too() -> None:
    assert list(lines(python("print('a\\nb'); print('c', end='')"), silence=20, total=20)) == ["a", "b", "c"]


def test_a_failure_comes_after_its_lines_and_keeps_what_was_complained_about() -> None:
    found: list[str] = []
    code = "import sys; print('so far'); print('bad', file=sys.stderr); sys.exit(3)"
    with pytest.raises(ProcessFailedError, match="exit code 3") as failed:
        found.extend(lines(python(code), silence=20, total=20))
    assert found == ["so far"]
    assert (failed.value.code, failed.value.errors) == (3, "bad")


def test_a_crash_is_named_by_its_signal() -> None:
    with pytest.raises(ProcessFailedError, match="SIGSEGV"):
        output(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), limit=20)
    assert describe_exit(-250) == "signal 250"


def test_silence_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(ProcessTimeoutError, match="no answer in 1 s"):
        list(lines(python("import time; print('up'); time.sleep(60)"), silence=1.0, total=60))
    assert time.monotonic() - started < 10


def test_endless_talk_is_given_up() -> None:
    with pytest.raises(ProcessTimeoutError, match="not done in 1 s"):
        list(lines(python("import time\nwhile True: print(1); time.sleep(0.05)"), silence=30, total=1.0))


def test_what_a_process_started_goes_with_it(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(note)!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    with pytest.raises(ProcessTimeoutError):
        list(lines(python(code), silence=3.0, total=3.0))
    child = int(note.read_text())
    for _ in range(100):
        if not _runs(child):
            break
        time.sleep(0.05)
    assert not _runs(child)


def _runs(number: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        os.kill(number, 0)
        return "\nState:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
