"""What TFLite's profiler prints, read by hand: calls of all runs, parts that share names, several sections."""

from sparsetorch.runtime.profile import delegate_operators

HEADING = "============================== {} =============================="
COLUMNS = "\t             [node type]\t  [first]\t [avg ms]\t     [%]\t  [cdf%]\t  [mem KB]\t[times called]\t[Name]"


def row(name: str, calls: int) -> str:
    return f"\t        DelegateOpInvoke\t    0.399\t    0.212\t 53.797%\t 53.797%\t     0.000\t        {calls}\t{name}"


def summary(*rows: str, before: str = "") -> str:
    order, top = HEADING.format("Run Order"), HEADING.format("Top by Computation Time")
    table = [COLUMNS, *rows]
    outside = [order, COLUMNS, before, "Number of nodes executed: 2"]
    return "\n".join([*outside, "Delegate internal: ", order, *table, "", top, *table, "6 nodes observed"])


def test_calls_are_added_by_name_and_divided_by_runs() -> None:
    rows = [
        row("Delegate/Convolution (NCHW, F32) SPMM:1", 3),
        row("Delegate/Convolution (NCHW, F32) SPMM:4", 3),
        row("Delegate/Add (ND, F32):2", 3),
    ]
    assert delegate_operators(summary(*rows), 3) == {"Convolution (NCHW, F32) SPMM": 2, "Add (ND, F32)": 1}


def test_two_parts_of_a_graph_may_share_a_name_and_an_index() -> None:
    """The profiler then shows one row with twice the calls."""
    assert delegate_operators(summary(row("Delegate/Convolution (NHWC, F32) GEMM:0", 4)), 2) == {
        "Convolution (NHWC, F32) GEMM": 2
    }


def test_operators_outside_the_delegate_do_not_count() -> None:
    text = summary(
        row("Delegate/Add (ND, F32):0", 1), before=row("[value28]:14", 1).replace("DelegateOpInvoke", "MEAN")
    )
    assert delegate_operators(text, 1) == {"Add (ND, F32)": 1}


def test_of_two_sections_the_last_counts() -> None:
    first = summary(row("Delegate/Add (ND, F32):0", 1))
    assert delegate_operators(first + summary(row("Delegate/Multiply (ND, F32):0", 5)), 5) == {"Multiply (ND, F32)": 1}


def test_a_graph_that_the_delegate_leaves_alone() -> None:
    assert delegate_operators(summary().partition("Delegate internal")[0], 1) == {}
    assert delegate_operators("", 1) == {}
