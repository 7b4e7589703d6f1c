"""One sentence for what PyTorch's tracer and onnx2tf say in pages: which operator of which layer, and what to do."""

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    import onnx

_NO_ONNX_FORM = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
_BY_VALUE = re.compile(r'File "([^"]+)", line (\d+), in \w+\s+([^\n]+)')
_NODE = re.compile(r"onnx_op_name: (\S+)")
_NO_TFLITE_FORM = re.compile(r"\btf\.([A-Z]\w+)\(")
_ADVICE = "Replace it by operators that TFLite has, or leave it out of the exported network"


def tracing_failure(module: nn.Module, image: Tensor, error: Exception) -> str:
    """Why a network cannot be traced into an ONNX graph.

    Args:
        module: the network.
        image: the input it was traced with.
        error: what torch.onnx.export raised.
    """
    causes = [error]
    while causes[-1].__cause__ is not None and len(causes) < 20:
        causes.append(causes[-1].__cause__)  # type: ignore[arg-type]
    texts = [str(cause) for cause in causes]
    name = type(module).__name__
    for text in reversed(texts):
        if found := _NO_ONNX_FORM.search(text):
            operator = found.group(1)
            users = _users(module, image, operator)
            return f"{name} cannot be traced into an ONNX graph: {operator}, {users}, has no ONNX form. {_ADVICE}."
    if "data-dependent" in texts[-1] or "DataDependent" in type(causes[-1]).__name__:
        lines = _BY_VALUE.findall(texts[-1])
        where = f": {Path(lines[-1][0]).name}, line {lines[-1][1]}: {lines[-1][2].strip()}" if lines else ""
        return (
            f"{name} cannot be traced into an ONNX graph: its forward branches on values{where}. "
            "Write it without the branch, with torch.where for example."
        )
    first = (texts[-1].strip() or type(causes[-1]).__name__).splitlines()[0]
    return (
        f"{name} cannot be traced into an ONNX graph: {first}. Control flow that depends on values, "
        "and calls outside torch, have to go from its forward."
    )


def _users(module: nn.Module, image: Tensor, operator: str) -> str:
    """Which layers use an operator. PyTorch may know it there by a longer name: aten.special_bessel_j0 for prims.bessel_j0."""
    name = operator.split(".")[-1].lstrip("_")
    with torch.no_grad():
        graph = torch.export.export(module, (image,)).run_decompositions().graph
    layers = []
    for node in graph.nodes:
        if name in str(node.target) and (stack := node.meta.get("nn_module_stack")):
            layers.append(list(stack.values())[-1][0].removeprefix("L['self']").lstrip("."))
    return _in_layers(layers)


def _in_layers(layers: list[str]) -> str:
    named = list(dict.fromkeys(layer for layer in layers if layer))
    return f"in {', '.join(named[:5])}{' and others' * (len(named) > 5)}" if named else "in the network's own forward"


def conversion_failure(output: str, source: Path | None = None) -> str:
    """Why onnx2tf did not convert.

    Args:
        output: all that its process printed.
        source: the ONNX file, to name layers by; None where there were several.
    """
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", output).splitlines() if line.strip()]
    if any("No module named" in line and ("onnx2tf" in line or "tensorflow" in line) for line in lines):
        return (
            "onnx2tf is not installed; needed for export: pip install 'sparsetorch[export]', in one call with the rest"
        )
    import onnx  # there since the graph was made with it

    told = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    said = (told or lines or ["it ended without a word"])[-1][:500]
    nodes = [] if source is None else list(onnx.load(source, load_external_data=False).graph.node)
    failed = [node for node in nodes if (found := _NODE.search(output)) and node.name == found.group(1)]
    if not failed:
        kinds = {kind.lower() for kind in _NO_TFLITE_FORM.findall(output)}
        failed = [node for node in nodes if node.op_type.lower() in kinds]
    if not failed:
        return f"onnx2tf cannot convert this network: {said}"
    layers = [_layer(node) for node in failed]
    return f"TFLite has no form, or the converter knows none, of {failed[0].op_type} {_in_layers(layers)} ({said}). {_ADVICE}."


def _layer(node: "onnx.NodeProto") -> str:
    """The module path that torch.onnx.export left in a node; empty for what the network's own forward calls."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            scopes: list[str] = ast.literal_eval(entry.value)
            return scopes[-2] if len(scopes) > 1 else ""
    return ""
