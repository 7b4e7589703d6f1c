"""Names that tell tensors apart, for tools that look tensors up by name."""

from sparsetorch.tflite.model import Graph


def make_names_unique(graph: Graph) -> None:
    """Give tensors that bear the name of an earlier one a number behind it."""
    taken = {tensor.name for tensor in graph.tensors}
    seen: set[str] = set()
    for tensor in graph.tensors:
        if tensor.name in seen:
            count = 1
            while f"{tensor.name};{count}" in taken:
                count += 1
            tensor.name = f"{tensor.name};{count}"
            taken.add(tensor.name)
        seen.add(tensor.name)
