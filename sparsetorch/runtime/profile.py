"""Read the summary that TFLite's profiler prints, as tfjs-tflite and benchmark_model do.

After the table of TFLite's own nodes comes, behind `Delegate internal:`, one of the operators that XNNPACK ran, tab-separated,
with the number of calls and `Delegate/NAME:INDEX` last. LiteRT f674577 tflite/profiling/profile_summarizer.cc,
profile_summary_formatter.cc.
"""

import re

_SECTION = "Delegate internal:"
_RUN_ORDER = "Run Order"
_END = "Top by Computation Time"
_NAME = re.compile(r"Delegate/(.*):\d+\s*")


def delegate_operators(summary: str, runs: int) -> dict[str, int]:
    """Name -> how often it ran in one inference, in the order of the first runs.

    Args:
        summary: the profiler's text; of several with such a section (benchmark_model prints one for the initialisation as
            well) the last counts.
        runs: inferences that it covers. Two parts of a graph may share a name and an index, so calls are added up, not rows.
    """
    counts: dict[str, int] = {}
    section = summary.rpartition(_SECTION)[2] if _SECTION in summary else ""
    for row in section.partition(_RUN_ORDER)[2].partition(_END)[0].splitlines():
        columns = row.split("\t")
        found = _NAME.fullmatch(columns[-1])
        if found and len(columns) > 1 and columns[-2].strip().isdigit():
            counts[found[1]] = counts.get(found[1], 0) + int(columns[-2])
    return {name: round(calls / runs) for name, calls in counts.items()}
