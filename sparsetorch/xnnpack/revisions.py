"""What differs between the XNNPACK revisions whose rules are applied, as data.

Everything that is equal in all of them (padding, strides, the two-thirds rule ...) is code in `rules` and `clusters`.
A runtime that is released today was built from a revision somewhere between these, so a target lists several and a model is
eligible only if all of them agree.
"""

from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

_OP = schema.BuiltinOperator


@dataclass(frozen=True)
class Revision:
    """One pair of XNNPACK and TFLite delegate sources."""

    name: str
    """As it is cited in verdicts."""
    unary: frozenset[int] | None
    """TFLite's unary operators that may lie in a sparse cluster; None for all that the delegate takes."""
    reductions: frozenset[int]
    """Reductions over H and W that may lie in a cluster and leave it."""
    fully_connected: bool
    """Whether XNNPACK's fully-connected node may lie in a cluster. Since 2025-01 a 1x1 convolution is such a node; TFLite's
    own FULLY_CONNECTED only is one without a reshape before it, with `keep_num_dims`."""
    folds_clamps: bool
    """Whether RELU, RELU6 and RELU_N1_TO_1 melt into the convolution or pooling before them."""
    scalar_clamps: bool
    """Whether MAXIMUM and MINIMUM with a scalar constant turn into a clamp, which is unary."""
    squares: bool
    """Whether MUL of a value with itself turns into a square, which is unary."""
    refused: frozenset[int] = frozenset()
    """TFLite's operators that today's delegate takes and the one of that age does not."""
    pools_only: bool = False
    """Whether a mean is a global average pooling, with H and W (in either order) or W as its axes; other axes are refused, and
    one over W may not lie in a cluster. Its shape is fixed when the graph is built, and right."""
    folds_into_arithmetic: bool = False
    """Whether clamps melt into ADD, SUB, MUL and DIV as well."""
    counts_operands: bool = False
    """Whether a node that reads a value twice counts as two of its readers, and so stays compatible."""


XNNPACK_2026_08 = Revision(
    name="XNNPACK 75db3c0 (2026-08), LiteRT f674577",
    unary=None,
    reductions=frozenset({_OP.MEAN, _OP.SUM}),
    fully_connected=True,
    folds_clamps=True,
    scalar_clamps=True,
    squares=True,
)
"""src/subgraph.c: xnn_check_nchw_compatibility, xnn_subgraph_rewrite_for_nchw, xnn_subgraph_optimize_common_subgraphs;
tflite/delegates/xnnpack/xnnpack_delegate.cc."""

XNNPACK_2025_10 = Revision(
    name="XNNPACK 8b9dff7 (2025-10)",
    unary=None,
    reductions=frozenset({_OP.MEAN, _OP.SUM}),
    fully_connected=True,
    folds_clamps=False,
    scalar_clamps=False,
    squares=False,
)
"""src/subgraph.c before the rewrites of clamps (e9bc43c). Runtimes released in early 2026 lie between this and 75db3c0."""

XNNPACK_2023_06 = Revision(
    name="XNNPACK 1a53232 (2023-06)",
    unary=frozenset(
        {
            _OP.ABS,
            _OP.CEIL,
            _OP.ELU,
            _OP.FLOOR,
            _OP.HARD_SWISH,
            _OP.LEAKY_RELU,
            _OP.LOGISTIC,
            _OP.NEG,
            _OP.RELU,
            _OP.RELU6,
            _OP.RELU_N1_TO_1,
            _OP.ROUND,
            _OP.SQUARE,
        }
    ),
    reductions=frozenset({_OP.MEAN}),
    fully_connected=False,
    folds_clamps=True,
    scalar_clamps=False,
    squares=False,
    refused=frozenset(
        {
            _OP.COS,
            _OP.EXP,
            _OP.GELU,
            _OP.LOG,
            _OP.REDUCE_MAX,
            _OP.REDUCE_MIN,
            _OP.RSQRT,
            _OP.SIN,
            _OP.SUM,
            _OP.TANH,
        }
    ),
    pools_only=True,
    counts_operands=True,
    folds_into_arithmetic=True,
)
"""The age of npm's @tensorflow/tfjs-tflite 0.0.1-alpha.10. In no target's list: nobody ships it. What its delegate takes was
observed in it, operator by operator (graphs of one; its profiler shows what is left to TFLite), as was what clamps melt into."""

CURRENT = (XNNPACK_2026_08, XNNPACK_2025_10)
"""The revisions that today's runtimes are built from."""
