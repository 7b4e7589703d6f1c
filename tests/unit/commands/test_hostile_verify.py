"""Files that somebody damaged, by accident or not: an answer or one message, at once, in little memory."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FUZZ = Path(__file__).with_name("fuzz_verify.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("fuzz")
    done = subprocess.run(
        [sys.executable, str(FUZZ), str(folder)], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]  # a crash, or more than 1 GiB
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_file_is_answered_or_refused_in_one_line(answers: list[dict[str, Any]]) -> None:
    assert len(answers) > 2030
    assert {answer["code"] for answer in answers} <= {0, 1, 3}
    for answer in answers:
        if answer["code"] == 1:
            assert answer["error"].count("\n") == 1, answer
            assert "--debug" not in answer["error"], answer  # an exception that nobody thought of
            assert len(answer["error"]) < 600, answer
        else:
            assert answer["error"] == "", answer
    codes = Counter(answer["code"] for answer in answers)
    assert codes[1] > 300
    assert codes[0] + codes[3] > 300


def test_no_file_takes_five_seconds(answers: list[dict[str, Any]]) -> None:
    assert max(answer["seconds"] for answer in answers) < 5


def test_what_makes_no_sense_is_refused(answers: list[dict[str, Any]]) -> None:
    assert answers[0]["kind"] == "good"
    assert answers[0]["code"] == 0
    accepted = [answer["kind"] for answer in answers if answer["code"] != 1 and answer["kind"] not in ("good", "flip")]
    assert accepted == []
