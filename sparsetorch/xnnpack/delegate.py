"""Which TFLite operators the XNNPACK delegate takes. What it leaves to TFLite's own kernels splits the graph.

Source of every line: LiteRT f674577, tflite/delegates/xnnpack/xnnpack_delegate.cc, `VisitNode` and the `Visit*Node` it
calls, with the delegate's default options (integer operators on, dynamic fully-connected weights and variables off).
"""

from collections.abc import Callable, Collection

from ai_edge_litert import schema_py_generated as schema

from sparsetorch.tflite.model import Operator, Tensor
from sparsetorch.xnnpack.revisions import Revision

_OP, _TYPE = schema.BuiltinOperator, schema.TensorType
_FLOATS = frozenset({_TYPE.FLOAT32, _TYPE.FLOAT16})
_INTEGERS = frozenset({_TYPE.INT8, _TYPE.UINT8})
_ACTIVATIONS = frozenset(
    {
        schema.ActivationFunctionType.NONE,
        schema.ActivationFunctionType.RELU,
        schema.ActivationFunctionType.RELU_N1_TO_1,
        schema.ActivationFunctionType.RELU6,
    }
)
_MOST_DIMENSIONS = 6

UNARY_FLOAT = frozenset(
    {
        _OP.ABS,
        _OP.CEIL,
        _OP.COS,
        _OP.EXP,
        _OP.FLOOR,
        _OP.GELU,
        _OP.HARD_SWISH,
        _OP.LOG,
        _OP.NEG,
        _OP.RELU_N1_TO_1,
        _OP.RELU,
        _OP.RELU6,
        _OP.ROUND,
        _OP.RSQRT,
        _OP.SIN,
        _OP.SQRT,
        _OP.SQUARE,
    }
)
_UNARY_ANY = frozenset({_OP.ELU, _OP.LOGISTIC, _OP.TANH, _OP.LEAKY_RELU, _OP.QUANTIZE, _OP.DEQUANTIZE})
UNARY = UNARY_FLOAT | _UNARY_ANY
CLAMPS = frozenset({_OP.RELU, _OP.RELU6, _OP.RELU_N1_TO_1})
_BINARY_ANY = frozenset({_OP.ADD, _OP.MUL, _OP.SUB})
_BINARY_FLOAT = frozenset({_OP.DIV, _OP.MAXIMUM, _OP.MINIMUM, _OP.PRELU, _OP.SQUARED_DIFFERENCE})
BINARY = _BINARY_ANY | _BINARY_FLOAT
REDUCTIONS = frozenset({_OP.MEAN, _OP.SUM, _OP.REDUCE_MAX, _OP.REDUCE_MIN})
CONVOLUTIONS = frozenset({_OP.CONV_2D, _OP.DEPTHWISE_CONV_2D})
_STATIC_SECOND = frozenset(
    {*REDUCTIONS, _OP.PAD, _OP.RESHAPE, _OP.RESIZE_BILINEAR, _OP.TRANSPOSE, _OP.PRELU, _OP.EXPAND_DIMS}
)
_OTHERS = frozenset(
    {
        _OP.AVERAGE_POOL_2D,
        _OP.BATCH_MATMUL,
        _OP.CONCATENATION,
        _OP.DEPTH_TO_SPACE,
        _OP.MAX_POOL_2D,
        _OP.SLICE,
        _OP.SOFTMAX,
        _OP.SPACE_TO_DEPTH,
        _OP.SPLIT,
        _OP.STRIDED_SLICE,
        _OP.TRANSPOSE_CONV,
    }
)
_CUSTOM = frozenset(
    {"Convolution2DTransposeBias", "MaxPoolingWithArgmax2D", "MaxUnpooling2D", "odml.scaled_dot_product_attention"}
)


def refusal(operator: Operator, static: Collection[Tensor]) -> str | None:
    """Why the delegate leaves this operator to TFLite, or None if it takes it.

    Args:
        operator: any operator but one that unpacks a constant (see `partition`).
        static: tensors without bytes of their own that are constant all the same, unpacked from a constant.
    """
    for codes, check in _CHECKS:
        if operator.code in codes:
            return check(operator, static) or _activation(operator)
    if operator.code in _OTHERS:
        return _types(operator) or _activation(operator)
    if operator.code == _OP.CUSTOM and operator.custom_code in _CUSTOM:
        return None
    return "the delegate has no such operator"


def older_refusal(operator: Operator, revision: Revision) -> str | None:
    """Why the delegate of `revision` leaves an operator to TFLite that today's takes, or None."""
    if operator.code in revision.refused:
        return "the delegate of that age has no such operator"
    if revision.pools_only and operator.code == _OP.MEAN:
        axes = operator.inputs[1]
        found = () if axes is None or axes.data is None else tuple(axes.stored().ravel().tolist())
        if found not in ((1, 2), (2, 1), (2,)):
            return f"a mean over axes {list(found)}; that age takes H and W, or W"
    return None


def _activation(operator: Operator) -> str | None:
    activation = getattr(operator.options, "fusedActivationFunction", 0)
    return None if activation in _ACTIVATIONS else f"fused activation {activation} has no XNNPACK equal"


def _computed(operator: Operator) -> list[Tensor]:
    """The operands that carry activations: the first input and the outputs."""
    return [tensor for tensor in [*operator.inputs[:1], *operator.outputs] if tensor is not None]


def _types(operator: Operator) -> str | None:
    for tensor in _computed(operator):
        if tensor.type not in _FLOATS | _INTEGERS | {_TYPE.INT32, _TYPE.INT64}:
            return f"{tensor.type_name} activations"
    return None


def _is_static(tensor: Tensor, static: Collection[Tensor]) -> bool:
    return tensor.data is not None or tensor in static


def _unary(operator: Operator, static: Collection[Tensor]) -> str | None:
    if len(operator.inputs) != 1 or operator.inputs[0] is None:
        return f"{len(operator.inputs)} operands instead of 1"
    source, result = operator.inputs[0], operator.outputs[0]
    if len(source.shape) > _MOST_DIMENSIONS:
        return f"{len(source.shape)} dimensions"
    if operator.code in UNARY_FLOAT and not {source.type, result.type} <= _FLOATS:
        return f"{source.type_name} to {result.type_name}; it takes float only"
    if operator.code == _OP.DEQUANTIZE and (source.type not in _INTEGERS or result.type not in _FLOATS):
        return f"{source.type_name} to {result.type_name}"
    if operator.code == _OP.LEAKY_RELU and getattr(operator.options, "alpha", 1.0) == 0:
        return "alpha 0"
    return None if {source.type, result.type} <= _FLOATS | _INTEGERS else f"{source.type_name} activations"


def _binary(operator: Operator, static: Collection[Tensor]) -> str | None:
    tensors = [tensor for tensor in [*operator.inputs, *operator.outputs] if tensor is not None]
    if len(operator.inputs) != 2 or len(tensors) != 3:
        return f"{len(operator.inputs)} operands instead of 2"
    types = {tensor.type for tensor in tensors}
    if operator.code in _BINARY_ANY and (len(types) > 1 or not types <= _FLOATS | _INTEGERS):
        return "operands of types " + ", ".join(sorted({tensor.type_name for tensor in tensors}))
    if operator.code in _BINARY_FLOAT and not types <= _FLOATS:
        return "integer operands"
    if any(len(tensor.shape) > _MOST_DIMENSIONS for tensor in tensors):
        return "more than 6 dimensions"
    return _static_second(operator, static) if operator.code == _OP.PRELU else None


def _static_second(operator: Operator, static: Collection[Tensor]) -> str | None:
    if operator.code == _OP.RESHAPE and len(operator.inputs) == 1:
        return _types(operator)
    second = operator.inputs[1] if len(operator.inputs) == 2 else None
    if second is None or not _is_static(second, static):
        return "its second operand (axes, paddings, shape or size) is not constant"
    if operator.code != _OP.PRELU and second.type != _TYPE.INT32:
        return f"its second operand is {second.type_name} instead of int32"
    return _types(operator)


def _convolution(operator: Operator, static: Collection[Tensor]) -> str | None:
    if len(operator.inputs) != 3 or any(tensor is None for tensor in operator.inputs):
        return "no bias; the delegate takes convolutions with a bias only"
    source, weight, bias = (tensor for tensor in operator.inputs if tensor is not None)
    result = operator.outputs[0]
    if any(len(tensor.shape) != 4 for tensor in (source, weight, result)) or len(bias.shape) != 1:
        return "operands that are not 4-D"
    for name, tensor in (("weight", weight), ("bias", bias)):
        if not _is_static(tensor, static):
            return f"its {name} is not constant"
    if source.type != result.type:
        return f"{source.type_name} to {result.type_name}"
    dynamic = operator.code == _OP.CONV_2D and (source.type, weight.type) == (_TYPE.FLOAT32, _TYPE.INT8)
    if source.type != weight.type and not dynamic:
        return f"{source.type_name} activations with {weight.type_name} weights"
    if operator.code == _OP.CONV_2D and (weight.shape[3] == 0 or source.shape[3] // weight.shape[3] == 0):
        return "more weight channels than input channels"
    return None if source.type in _FLOATS | _INTEGERS else f"{source.type_name} activations"


def _fully_connected(operator: Operator, static: Collection[Tensor]) -> str | None:
    if len(operator.inputs) not in (2, 3) or operator.inputs[0] is None or operator.inputs[1] is None:
        return f"{len(operator.inputs)} operands"
    if operator.version == 8 or operator.inputs[1].sparsity is not None:
        return "version 8 (sparse weights without DENSIFY)"
    if getattr(operator.options, "weightsFormat", 0) != 0:
        return "shuffled weights"
    if len(operator.inputs[1].shape) != 2 or not _is_static(operator.inputs[1], static):
        return "its weight is not constant, or not 2-D"
    if len(operator.inputs) == 3 and operator.inputs[2] is not None and not _is_static(operator.inputs[2], static):
        return "its bias is not constant"
    return _types(operator)


_CHECKS: tuple[tuple[frozenset[int], Callable[[Operator, Collection[Tensor]], str | None]], ...] = (
    (UNARY, _unary),
    (BINARY, _binary),
    (_STATIC_SECOND, _static_second),
    (CONVOLUTIONS, _convolution),
    (frozenset({_OP.FULLY_CONNECTED}), _fully_connected),
)
