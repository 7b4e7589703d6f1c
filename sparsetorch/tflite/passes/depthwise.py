"""A CONV_2D with as many groups as input channels becomes DEPTHWISE_CONV_2D.

XNNPACK's sparse cluster takes depthwise convolutions, and no grouped ones (75db3c0 src/subgraph.c,
xnn_check_nchw_compatibility). onnx2tf 1.29 writes some depthwise layers as CONV_2D with a filter [O, kh, kw, 1].

With C groups, output channel o reads input channel o // (O / C); so does a depthwise convolution with multiplier O / C and the
filter [1, kh, kw, O]. Exact over the reals; the kernels may add in another order (relative 1e-7).
"""

from sparsetorch.tflite.model import Graph
from sparsetorch.tflite.passes.contract import Outcome, Pass
from sparsetorch.tflite.passes.layers import Parameters, parameters, write_parameters
from sparsetorch.tflite.passes.links import OP, become, new_options

_SHARED = ("padding", "strideH", "strideW", "dilationHFactor", "dilationWFactor", "fusedActivationFunction")


def run(graph: Graph, outcome: Outcome) -> None:
    """Rewrite every convolution whose groups have one channel."""
    for operator in list(graph.operators):
        if operator.code != OP.CONV_2D or operator.inputs[0] is None:
            continue
        found, channels = parameters(operator), operator.inputs[0].shape[-1]
        if isinstance(found, str) or channels == 1 or found.weight.shape[3] != 1 or found.weight.shape[0] % channels:
            continue
        outcome.did(operator, f"CONV_2D with {channels} groups is DEPTHWISE_CONV_2D")
        write_parameters(graph, operator, Parameters(found.weight.transpose(3, 1, 2, 0), found.bias))
        shared = {name: getattr(operator.options, name) for name in _SHARED}
        options = new_options("DepthwiseConv2D", **shared, depthMultiplier=found.weight.shape[0] // channels)
        become(operator, OP.DEPTHWISE_CONV_2D, operator.inputs, options)


PASS = Pass("depthwise", run)
