"""From torch-pruning's dependency graph to plain groups: the only module that imports the library."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from sparsetorch.errors import BadInputError
from sparsetorch.masking import evaluating
from sparsetorch.masking.plain import plain_weights
from sparsetorch.structured.groups import Group, Member, Role

_NAMES = (
    "Abs AdaptiveAvgPool2D AdaptiveMaxPool2D Add AddRelu AvgPool2D Clamp ClampMax ClampMin Clone ConstantPadNd Div Dropout "
    "Elu Exp Gelu Hardsigmoid Hardswish Hardtanh LeakyRelu MaxPool2DWithIndices MaxPool2D Mean Mish Mul NativeDropout Neg Pow "
    "ReflectionPad2D Relu Relu6 ReplicationPad2D Rsqrt Sigmoid Silu Softplus Sqrt Squeeze Sub Sum Tanh Threshold ToCopy "
    "Unsqueeze UpsampleBicubic2D UpsampleBilinear2D UpsampleNearest2D UpsampleNearestExact2D"
)
CHANNELWISE = frozenset(_NAMES.split())
"""Operators, by the name of their autograd node, that treat every channel on its own: what goes into channel j comes out in j."""

KEEP_ZERO = CHANNELWISE - {
    "ClampMin",
    "ClampMax",
    "Clamp",
    "Exp",
    "Hardsigmoid",
    "Rsqrt",
    "Sigmoid",
    "Softplus",
    "Pow",
    "Div",
}
"""Those of which a channel that is 0 everywhere stays 0."""


def trace(module: nn.Module, input_shape: Sequence[int]) -> list[Group]:
    """Channel groups of a network by one forward; see `groups.channel_groups`."""
    import torch_pruning as tp

    names = {inner: name for name, inner in module.named_modules()}
    parameter = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    image = torch.randn(
        2, *input_shape, dtype=parameter.dtype, device=parameter.device, generator=_generator(parameter)
    )
    outputs: list[Any] = []

    def forward(network: nn.Module, inputs: torch.Tensor) -> Any:
        outputs.append(network(inputs))
        return outputs[0]

    try:
        with _traceable(module), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = tp.DependencyGraph().build_dependency(module, image, forward_fn=forward, verbose=False)
            reader = _Reader(graph, names, _grad_functions(outputs[0]))
            return reader.groups(module)
    except (
        RuntimeError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        AssertionError,
        ArithmeticError,
        KeyError,
    ) as error:
        cause = f"{type(error).__name__}: {(str(error) or 'no message').splitlines()[0]}"
        if outputs:
            raise BadInputError(
                f"the channels of {type(module).__name__} cannot be followed ({cause}). Of its operators, these are not "
                f"supported: {', '.join(_unsupported(outputs[0])) or 'none that is known'}"
            ) from error
        raise BadInputError(
            f"input_shape: {type(module).__name__} does not run on inputs of the shape {tuple(image.shape)} ({cause}); needed "
            "the shape of one input without the batch, such as (3, 224, 224)"
        ) from error


class _Reader:
    """Reads groups out of a dependency graph."""

    def __init__(self, graph: Any, names: dict[nn.Module, str], outputs: set[Any]) -> None:
        self.graph, self.names, self.outputs = graph, names, outputs
        self.order = {name: place for place, name in enumerate(names.values())}

    def groups(self, module: nn.Module) -> list[Group]:
        """Of every convolution and linear layer, those output channels that no earlier group holds."""
        found: list[Group] = []
        covered: dict[str, set[int]] = {}
        for name, layer in module.named_modules():
            node = self.graph.module2node.get(layer)
            if node is None or not isinstance(
                layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.Linear
            ):
                continue
            if _is_depthwise(layer):
                continue  # carries channels that another layer makes
            pruner = self.graph.get_pruner_of_module(layer)
            rest = [i for i in range(pruner.get_out_channels(layer)) if i not in covered.get(name, ())]
            if not rest:
                continue
            group = self.read(self.graph.get_pruning_group(layer, pruner.prune_out_channels, rest), rest)
            found.append(group)
            for member in group.of_role("out"):
                covered.setdefault(member.module, set()).update(i for own in member.indices for i in own)
        return found

    def read(self, items: Any, roots: list[int]) -> Group:
        """One group as plain data; the first reason found against it."""
        place = {root: channel for channel, root in enumerate(roots)}
        members: list[Member] = []
        operators: set[str] = set()
        problems: list[str] = []
        features = {
            item.dep.target.module.in_features for item in items if isinstance(item.dep.target.module, nn.Linear)
        }
        for item in items:
            node = item.dep.target
            if node.grad_fn in self.outputs or type(node.module).__name__ == "_OutputOp":
                is_out = self.graph.is_out_channel_pruning_fn(item.dep.handler)
                if is_out or node.module not in self.names or not isinstance(node.module, nn.Conv2d | nn.Linear):
                    problems.append("the channels are an output of the network")
            if node.module not in self.names:
                if not node.inputs and _operator(node) == "T":
                    continue  # the weight of a linear layer on its way into the product
                operators.add(_operator(node))
                problems += self._problem(node, features)
                continue
            own: list[list[int]] = [[] for _ in roots]
            for index, root in zip(item.idxs, item.root_idxs, strict=True):
                own[place[root]].append(index)
            if len({len(indices) for indices in own}) > 1:
                problems.append(f"they reach {self.names[node.module]} unevenly")
            role = self._role(item)
            members.append(
                Member(self.names[node.module], role, tuple(map(tuple, own)), role == "out" and _normalized(node))
            )
            problems += _layer_problem(self.names[node.module], node.module, role)
        members.sort(key=lambda member: (self.order[member.module], member.role != "in"))
        if not any(member.role == "in" for member in members):
            problems.append("no layer reads them")
        why_not = "; ".join(dict.fromkeys(problems)) or None
        return Group(len(roots), tuple(members), tuple(sorted(operators)), why_not)

    def _role(self, item: Any) -> Role:
        module = item.dep.target.module
        if not isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.Linear) or _is_depthwise(
            module
        ):
            return "channel"
        return "out" if self.graph.is_out_channel_pruning_fn(item.dep.handler) else "in"

    def _problem(self, node: Any, features: set[int]) -> list[str]:
        operator, grad_fn = _operator(node), node.grad_fn
        kind = type(node.module).__name__
        if kind == "_ElementWiseOp":
            if operator not in CHANNELWISE:
                return [f"the operator {operator} is not supported"]
            sizes = getattr(grad_fn, "_saved_self_sym_sizes", ()) or ()
            dims = getattr(grad_fn, "_saved_dim", None)
            dims = (dims,) if isinstance(dims, int) else dims
            if operator in ("Mean", "Sum") and len(sizes) > 1 and dims is not None:
                limit = 1 << 63
                if any((dim - (1 << 64) if dim >= limit else dim) % len(sizes) == 1 for dim in dims):
                    return [f"the operator {operator} goes over the channels"]
            return []
        if kind == "_ConcatOp":
            dim = getattr(grad_fn, "_saved_dim", 1)
            return [] if dim == 1 or dim >= 1 << 62 else [f"torch.cat along dimension {dim} is not supported"]
        if kind == "_ReshapeOp":
            sizes = tuple(getattr(grad_fn, "_saved_self_sym_sizes", ()) or ())
            flat = 1
            for size in sizes[1:]:
                flat *= int(size)
            flattens = len(sizes) == 2 or (len(sizes) == 4 and (flat in features or int(sizes[1]) == flat))
            return [] if flattens else [f"the operator {operator} of a tensor of the shape {sizes} is not supported"]
        if kind == "_OutputOp":
            return []
        return [f"the operator {operator} ({kind.strip('_').removesuffix('Op').lower()}) is not supported"]


def _layer_problem(name: str, layer: nn.Module, role: Role) -> list[str]:
    """What of a layer stands against pruning its channels."""
    if (
        isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d)
        and layer.groups > 1
        and role != "channel"
    ):
        return [
            f"{name} is a grouped convolution ({layer.groups} groups), which needs as many channels left in every group"
        ]
    if isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.PReLU | nn.Linear | nn.modules.conv._ConvNd):
        if _is_depthwise(layer) and layer.out_channels != layer.in_channels:
            return [f"{name} makes {layer.out_channels} channels of {layer.in_channels}, which is not supported"]
        return []
    return [f"{name} ({type(layer).__name__}) is not supported"]


def _is_depthwise(layer: Any) -> bool:
    return isinstance(layer, nn.modules.conv._ConvNd) and layer.groups == layer.out_channels and layer.out_channels > 1


def _normalized(node: Any) -> bool:
    followers = node.outputs
    return len(followers) == 1 and isinstance(followers[0].module, nn.modules.batchnorm._BatchNorm)


def _operator(node: Any) -> str:
    """`Relu` from `ReluBackward0`."""
    return _plain_name(node.grad_fn.name() if hasattr(node.grad_fn, "name") else type(node.module).__name__)


def _plain_name(name: str) -> str:
    return re.sub(r"Backward\w*$", "", name.removeprefix("torch::autograd::").removesuffix("()"))


def _unsupported(output: Any) -> list[str]:
    """The operators of a forward, by name, that no group may pass."""
    layers = {
        "Addmm",
        "AccumulateGrad",
        "Cat",
        "Convolution",
        "NativeBatchNorm",
        "T",
        "View",
        "ReshapeAlias",
        "UnsafeView",
    }
    waiting, seen, found = list(_grad_functions(output)), set(), set()
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        name = _plain_name(function.name())
        if name not in CHANNELWISE and name not in layers and "BatchNorm" not in name:
            found.add(name)
        waiting += [following for following, _ in function.next_functions]
    return sorted(found)


def _grad_functions(output: Any) -> set[Any]:
    if isinstance(output, torch.Tensor):
        return {output.grad_fn}
    values = output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    return set().union(*map(_grad_functions, values))


def _generator(parameter: torch.Tensor) -> torch.Generator:
    return torch.Generator(parameter.device).manual_seed(0)


@contextmanager
def _traceable(module: nn.Module) -> Iterator[None]:
    """Eval mode, every parameter asking for a gradient, no masks; everything as before afterwards."""
    with evaluating(module), plain_weights(module):
        wanted = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
        try:
            for parameter, _ in wanted:
                parameter.requires_grad_(parameter.is_floating_point())
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                yield
        finally:
            for parameter, asked in wanted:
                parameter.requires_grad_(asked)
