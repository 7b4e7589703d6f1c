"""Results of a measurement: there and back through JSON, and what to ship."""

import json
from dataclasses import replace

import pytest

from sparsetorch.errors import BadInputError
from sparsetorch.latency.result import BenchResult, RuntimeResult, Timed, to_ship
from sparsetorch.latency.statistics import Ratio, Summary

DENSE = Timed("m.dense.tflite", "dense float32", 14_000_000, 30.0, Summary(24, 23, 26, 60))
SPARSE = Timed(
    "m.tflite", "sparse float32", 7_000_000, 90.0, Summary(10, 9, 11, 60), Ratio(2.4, 2.3, 2.5), {"SPMM": 34}
)
HALF = Timed("h.tflite", "sparse float16", 4_000_000, 80.0, Summary(10.2, 9, 12, 60), Ratio(2.35, 2.25, 2.45))
BYTES = Timed("b.tflite", "sparse int8", 2_000_000, 80.0, Summary(12, 11, 13, 60), Ratio(2.0, 1.9, 2.1))
GONE = Timed("x.tflite", "dense int8", 1, failure="does not run: no such operator")
RESULT = BenchResult(
    60, 5, 2, "some processor", "dense float32",
    {
        "wasm": RuntimeResult("LiteRT.js 2.5", True, (DENSE, SPARSE, HALF, GONE), ("one thread",), None, 1),
        "android": RuntimeResult("", True, missing="adb is not installed"),
    },
    "0.1.0", ("a note",),
)  # fmt: skip


def test_json_holds_everything() -> None:
    fields = json.loads(json.dumps(RESULT.to_dict(), allow_nan=False))
    assert BenchResult.from_dict(fields, "x.json") == RESULT
    rows = fields["runtimes"]["wasm"]["rows"]
    assert [row["in_words"] for row in rows] == [
        "", "2.40 times as fast (2.30 to 2.50)", "2.35 times as fast (2.25 to 2.45)", "does not run: no such operator",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        {"runs": "many"},
        {"runtimes": []},
        {"runtimes": {"wasm": {}}},
        {"runtimes": {"wasm": {**RESULT.to_dict()["runtimes"]["wasm"], "rows": [{"file": 1}]}}},
        {"runs": float("inf")},
        {"notes": None},
    ],
)
def test_something_else_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match=r"x\.json: no result of `sparsetorch bench --json`"):
        BenchResult.from_dict({**RESULT.to_dict(), **damage}, "x.json")


def test_numbers_that_are_none_are_refused() -> None:
    fields = RESULT.to_dict()
    fields["runtimes"]["wasm"]["rows"][0]["ms"]["median"] = float("nan")
    with pytest.raises(BadInputError, match="at least 0"):
        BenchResult.from_dict(fields, "x.json")


def test_the_smallest_of_the_fastest_is_to_ship() -> None:
    # float16's interval 2.25 to 2.45 reaches into float32's 2.3 to 2.5, int8's 1.9 to 2.1 does not.
    assert to_ship([DENSE, SPARSE, HALF, BYTES, GONE]) is HALF
    assert to_ship([DENSE, SPARSE, BYTES]) is SPARSE
    assert to_ship([DENSE, replace(SPARSE, ratio=Ratio(1.02, 0.97, 1.1))]) is None
    assert to_ship([DENSE, GONE]) is None
    assert to_ship([]) is None
