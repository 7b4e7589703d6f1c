"""Which XNNPACK nodes may lie in a sparse cluster: one predicate for each condition, each with its reason and its fix.

Every predicate here is a line of xnn_check_nchw_compatibility, XNNPACK 75db3c0 src/subgraph.c; it says None if the node
passes. Conditions on more than one node (clusters, exits, the two-thirds rule) are in `clusters`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.xnnpack.fixes import PAD_FIX, UNSUPPORTED_FIXES
from sparsetorch.xnnpack.revisions import Revision
from sparsetorch.xnnpack.subgraph import Kind, Node, Padding, Window

_OP = schema.BuiltinOperator


@dataclass(frozen=True)
class Failure:
    """A broken condition, in words."""

    rule: str
    found: str
    required: str
    fix: str


@dataclass(frozen=True)
class Compatibility:
    """What XNNPACK thinks of one node: its three layout flags, or the conditions it breaks."""

    inside: bool = False
    """May read and write NCHW."""
    entry: bool = False
    """May read NHWC and write NCHW."""
    exit: bool = False
    """May read NCHW and write NHWC."""
    failures: tuple[Failure, ...] = ()


Predicate = Callable[[Node, Window], Failure | None]


def compute_is_float(node: Node) -> Failure | None:
    """all_values_fp: every input, constant and output is float32 or float16."""
    values = [value for value in [*node.inputs, *node.outputs] if not value.is_float]
    if not values:
        return None
    names = sorted({value.tensor.type_name for value in values})
    return Failure(
        "integer-compute",
        f"{', '.join(names)} values: integer compute, which has no sparse path",
        "float32 or float16 activations, weights and bias",
        "export with float compute: weights stored as float16 (--values float16), or as int8 behind DENSIFY and DEQUANTIZE "
        "(--values int8)",
    )


def groups_are_one(node: Node, window: Window) -> Failure | None:
    """convolution_2d.groups != 1."""
    if window.groups == 1:
        return None
    return Failure("groups", f"{window.groups} groups", "1 group", "use a full or a depthwise convolution")


def dilation_is_one(node: Node, window: Window) -> Failure | None:
    """dilation_height | dilation_width != 1, for convolutions and depthwise convolutions."""
    if window.dilation == (1, 1):
        return None
    return Failure(
        "dilation",
        f"dilation {_pair(window.dilation)}",
        "dilation 1x1",
        "use dilation=1 (a 5x5 kernel sees as far as a 3x3 with dilation 2)",
    )


def kernel_is_known(node: Node, window: Window) -> Failure | None:
    """A convolution is 1x1, or it is the 3x3 entry."""
    if window.kernel in ((1, 1), (3, 3)):
        return None
    return Failure(
        "kernel",
        f"a {_pair(window.kernel)} convolution",
        "1x1, or the 3x3 stride-2 entry",
        "start with a 3x3 stride-2 convolution; deeper, split it into depthwise 3x3 or 5x5 and 1x1",
    )


def pointwise_is_unpadded(node: Node, window: Window) -> Failure | None:
    """1x1 kernel: no padding."""
    if window.kernel != (1, 1) or window.padding == Padding():
        return None
    return Failure("pointwise-padding", f"padding {window.padding}", "no padding", "use padding=0")


def pointwise_stride_is_one(node: Node, window: Window) -> Failure | None:
    """1x1 kernel: subsampling 1."""
    if window.kernel != (1, 1) or window.stride == (1, 1):
        return None
    return Failure(
        "pointwise-stride",
        f"stride {_pair(window.stride)}",
        "stride 1x1",
        "let a depthwise convolution do the striding",
    )


def entry_stride_is_two(node: Node, window: Window) -> Failure | None:
    """3x3 kernel: subsampling 2."""
    if window.kernel != (3, 3) or window.stride == (2, 2):
        return None
    return Failure(
        "entry-stride",
        f"a 3x3 convolution with stride {_pair(window.stride)}",
        "stride 2x2: a dense 3x3 convolution is supported as the network's first operator only",
        "stride=2 in the first convolution; deeper, depthwise 3x3 and 1x1 instead of a dense 3x3",
    )


def entry_padding_is_one(node: Node, window: Window) -> Failure | None:
    """3x3 kernel: explicit padding 1 on all sides. SAME at stride 2 never is that."""
    if window.kernel != (3, 3) or (window.padding == Padding(1, 1, 1, 1) and not window.same):
        return None
    return Failure("entry-padding", _padding(window), "1 pixel on all four sides", PAD_FIX)


def entry_channels_are_three(node: Node, window: Window) -> Failure | None:
    """3x3 kernel: exactly 3 input channels."""
    if window.kernel != (3, 3) or window.group_input_channels == 3:
        return None
    return Failure(
        "entry-channels",
        f"{window.group_input_channels} input channels",
        "3 input channels",
        "feed 3 channels (repeat a grey image); deeper, depthwise 3x3 and 1x1 instead of a dense 3x3",
    )


def depthwise_is_not_same(node: Node, window: Window) -> Failure | None:
    """XNN_FLAG_TENSORFLOW_SAME_PADDING, which is left at strides other than 1."""
    if not window.same:
        return None
    return Failure("same-padding", _padding(window), "explicit padding", PAD_FIX)


def depthwise_multiplier_is_one(node: Node, window: Window) -> Failure | None:
    """depth_multiplier != 1."""
    if window.multiplier == 1:
        return None
    return Failure(
        "multiplier", f"depth multiplier {window.multiplier}", "1", "use groups = in_channels = out_channels"
    )


def depthwise_stride_is_small(node: Node, window: Window) -> Failure | None:
    """Subsampling is square, and 1 or 2."""
    if window.stride in ((1, 1), (2, 2)):
        return None
    return Failure("depthwise-stride", f"stride {_pair(window.stride)}", "1x1 or 2x2", "use stride 1 or 2")


def depthwise_kernel_is_known(node: Node, window: Window) -> Failure | None:
    """The kernel is 3x3 or 5x5."""
    if window.kernel in ((3, 3), (5, 5)):
        return None
    return Failure("depthwise-kernel", f"a {_pair(window.kernel)} kernel", "3x3 or 5x5", "use kernel_size 3 or 5")


def depthwise_padding_fits(node: Node, window: Window) -> Failure | None:
    """Padding 1 on all sides for 3x3, 2 for 5x5."""
    if window.kernel not in ((3, 3), (5, 5)) or window.same:
        return None
    side = window.kernel[0] // 2
    if window.padding == Padding(side, side, side, side):
        return None
    return Failure("depthwise-padding", _padding(window), f"{side} pixel(s) on all four sides", PAD_FIX)


CONVOLUTION_RULES: tuple[Predicate, ...] = (
    groups_are_one,
    dilation_is_one,
    kernel_is_known,
    pointwise_is_unpadded,
    pointwise_stride_is_one,
    entry_padding_is_one,
    entry_stride_is_two,
    entry_channels_are_three,
)
DEPTHWISE_RULES: tuple[Predicate, ...] = (
    dilation_is_one,
    depthwise_is_not_same,
    depthwise_multiplier_is_one,
    depthwise_stride_is_small,
    depthwise_kernel_is_known,
    depthwise_padding_fits,
)


def is_four_dimensional(node: Node) -> Failure | None:
    """shape.num_dims != 4, for unary, binary and reducing nodes."""
    shapes = [value.shape for value in node.inputs if len(value.shape) != 4]
    if not shapes:
        return None
    return Failure(
        "rank",
        f"an operand of shape {list(shapes[0])}",
        "4-D operands",
        "keep H and W as dimensions of size 1 (keepdim=True); give constants the shape [1,1,1,C]",
    )


def binary_is_supported(node: Node) -> Failure | None:
    """binary_operator is neither add nor multiply."""
    if node.operator.code in (_OP.ADD, _OP.MUL):
        return None
    return _unsupported(node)


def constant_operand_is_small(node: Node) -> Failure | None:
    """A constant operand: the source counts the non-unit dimensions of operand 0, whichever of the two is constant."""
    if not any(value.static for value in node.inputs) or sum(size != 1 for size in node.inputs[0].shape) <= 1:
        return None
    return Failure(
        "constant-operand",
        f"a constant operand beside one of shape {list(node.inputs[0].shape)}",
        "two computed operands",
        "fold the constant into the weights and bias of the neighbouring convolution",
    )


def resize_input_has_extent(node: Node) -> Failure | None:
    """Bilinear resize: input height and width above 1."""
    if node.inputs[0].shape[1] > 1 and node.inputs[0].shape[2] > 1:
        return None
    return Failure(
        "resize-input",
        f"an input of shape {list(node.inputs[0].shape)}",
        "height and width above 1",
        "resize later or not at all: it is a broadcast",
    )


def check(node: Node, revision: Revision) -> Compatibility:
    """All of a node's broken conditions, or the flags that XNNPACK gives it."""
    failures = [failure for failure in (compute_is_float(node),) if failure is not None]
    if node.kind in (Kind.CONVOLUTION, Kind.DEPTHWISE) and node.window is not None:
        rules = CONVOLUTION_RULES if node.kind is Kind.CONVOLUTION else DEPTHWISE_RULES
        failures += [failure for rule in rules if (failure := rule(node, node.window)) is not None]
        entry = node.kind is Kind.CONVOLUTION and node.window.kernel == (3, 3)
        return _verdict(failures, inside=not entry, entry=entry)
    if node.kind is Kind.UNARY:
        return _verdict(failures + _broken(node, is_four_dimensional), inside=True)
    if node.kind is Kind.BINARY:
        found = _broken(node, binary_is_supported)
        return _verdict(
            failures + (found or _broken(node, is_four_dimensional, constant_operand_is_small)), inside=True
        )
    if node.kind is Kind.REDUCTION:
        return _verdict(failures + _broken(node, is_four_dimensional), inside=True, exit=True)
    if node.kind is Kind.RESIZE_BILINEAR:
        return _verdict(failures + _broken(node, resize_input_has_extent), inside=True)
    if node.kind is Kind.DEPTH_TO_SPACE:
        return _verdict(failures, exit=True)
    if node.kind is Kind.FULLY_CONNECTED and revision.fully_connected:
        return _verdict(failures, inside=True)
    return Compatibility(failures=(*failures, _unsupported(node)))


def _broken(node: Node, *rules: Callable[[Node], Failure | None]) -> list[Failure]:
    return [failure for rule in rules if (failure := rule(node)) is not None]


def _verdict(
    failures: list[Failure], *, inside: bool = False, entry: bool = False, exit: bool = False
) -> Compatibility:
    if failures:
        return Compatibility(failures=tuple(failures))
    return Compatibility(inside, entry, exit)


def _unsupported(node: Node) -> Failure:
    return Failure(
        "unsupported-operator",
        f"{node.operator.name}",
        "an operator with a channels-first kernel",
        UNSUPPORTED_FIXES.get(node.operator.code, "replace it, or move it behind the global pool"),
    )


def _pair(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"


def _padding(window: Window) -> str:
    return "SAME padding at stride " + _pair(window.stride) if window.same else f"padding {window.padding}"
