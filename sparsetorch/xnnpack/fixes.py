"""What to do about a broken condition, in a modeller's words."""

from ai_edge_litert import schema_py_generated as schema

_OP = schema.BuiltinOperator

PAD_FIX = (
    "pad explicitly, equally on all sides: PyTorch's padding=kernel_size//2 does; in Keras, ZeroPadding2D and padding='valid'; "
    "in timm, not the tf_ variants"
)

UNSUPPORTED_FIXES = {
    _OP.CONCATENATION: "add instead of concatenating, or concatenate behind the exit",
    _OP.MAX_POOL_2D: "downsample with a stride-2 depthwise convolution",
    _OP.AVERAGE_POOL_2D: "pool globally: a mean over H and W (AdaptiveAvgPool2d(1)); inside, use a stride-2 depthwise",
    _OP.RESHAPE: "pool globally (a mean over H and W) before flattening",
    _OP.FULLY_CONNECTED: "use a 1x1 convolution inside a block; behind the global pool a linear layer is right",
    _OP.TRANSPOSE: "export channels-last without transposes; a channel shuffle breaks the sparse path",
    _OP.PRELU: "use LeakyReLU, ReLU or Hardswish",
    _OP.PAD: "pad H and W only, directly before one 3x3 or 5x5 convolution that does not pad by itself; a 1x1 takes no padding",
    _OP.RESIZE_NEAREST_NEIGHBOR: "use bilinear resize, or depth-to-space (PixelShuffle)",
    _OP.TRANSPOSE_CONV: "use depth-to-space (PixelShuffle), or bilinear resize and a convolution",
    _OP.SOFTMAX: "compute it behind the exit",
}
