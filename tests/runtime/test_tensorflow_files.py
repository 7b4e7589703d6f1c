"""Files of TensorFlow's own sparse converter on real runtimes: every row of the table of what is taken, off, or wrong.

`tests/unit/xnnpack/test_tensorflow_files.py` holds the rules' verdicts against the same table.
"""

from pathlib import Path

import pytest
from differential import ENGINES, Engine, examine, seen
from tensorflow_files import EXPECTED

from sparsetorch.runtime.worker import ModelJob, job_folder
from sparsetorch.xnnpack.revisions import XNNPACK_2023_06

OLD_DIFFERS = {"gapkeep": "taken", "gapkeep_output": "taken"}
"""What XNNPACK of 2023 computes rightly and today's does not."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_row_is_seen_as_predicted(engine: Engine, tensorflow_files: Path) -> None:
    jobs = [ModelJob.read(tensorflow_files / f"{name}.tflite", sets=2) for name in EXPECTED]
    with job_folder() as folder:
        outcomes = dict(zip(EXPECTED, examine(engine, jobs, folder), strict=True))
    expected = {name: row for name, (row, _) in EXPECTED.items()}
    if engine.revision is XNNPACK_2023_06:
        expected |= OLD_DIFFERS
    if engine.name == "LiteRT.js":
        expected = {name: row if row == "unsafe" else "right" for name, row in expected.items()}
    assert {name: seen(outcome) for name, outcome in outcomes.items()} == expected
    assert {name: one.comparison.disagreements for name, one in outcomes.items() if one.comparison.disagreements} == {}
