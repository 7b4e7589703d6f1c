"""Operators that compute each result from the one element at its place. Layout and shape are nothing to them."""

from sparsetorch.tflite.passes.links import OP

UNARY = frozenset(
    {
        OP.ABS, OP.CEIL, OP.COS, OP.ELU, OP.EXP, OP.FLOOR, OP.GELU, OP.HARD_SWISH, OP.LEAKY_RELU, OP.LOG, OP.LOGISTIC, OP.NEG,
        OP.RELU, OP.RELU6, OP.RELU_0_TO_1, OP.RELU_N1_TO_1, OP.ROUND, OP.RSQRT, OP.SIN, OP.SQRT, OP.SQUARE, OP.TANH,
    }
)  # fmt: skip
BINARY = frozenset({OP.ADD, OP.SUB, OP.MUL, OP.DIV, OP.MAXIMUM, OP.MINIMUM, OP.SQUARED_DIFFERENCE})
