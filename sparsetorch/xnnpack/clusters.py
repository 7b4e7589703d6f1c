"""The layout decision itself: xnn_subgraph_rewrite_for_nchw, simulated literally, value by value.

XNNPACK 75db3c0 src/subgraph.c. The order of the steps and what each of them leaves unchecked matter: files whose numbers
come out wrong on devices do so because of exactly these gaps. In the source's own order:

1. each node gets flags (`rules.check`) and leads itself; nodes that can leave NCHW pull in their producers;
2. every inside node pulls in its producers, to a fixed point; a producer that can stay in NCHW loses its exit flag; a node
   with an outside or an incompatible producer is marked;
3. a mark passes to the node's leader;
4. a cluster dies if a value that one of its nodes reads is also read by others, counting a graph output as one reader. What
   its nodes write is not looked at: that is the gap;
5. zeros and parameters of pointwise layers are summed per leader; `zeros * 3 <= parameters * 2` keeps the cluster dense;
6. every value that a surviving node reads becomes NCHW.
"""

from dataclasses import dataclass, field

from sparsetorch.tflite.model import Tensor
from sparsetorch.xnnpack.revisions import Revision
from sparsetorch.xnnpack.rules import Compatibility, Failure, check
from sparsetorch.xnnpack.subgraph import Kind, Node, Subgraph, Value
from sparsetorch.xnnpack.weights import count_zeros


@dataclass
class Cluster:
    """Nodes with one leader, after the rewrite."""

    nodes: list[Node] = field(default_factory=list)
    params: int = 0
    zeros: int = 0
    marked: bool = False
    """Incompatible: it stays in NHWC whatever its sparsity."""

    @property
    def pointwise(self) -> list[Node]:
        return [node for node in self.nodes if node.is_pointwise]

    @property
    def sparse_enough(self) -> bool:
        """Strictly more than two thirds of the weights are zero."""
        return self.zeros * 3 > self.params * 2

    @property
    def missing_zeros(self) -> int:
        """Zeros to add until it is sparse enough."""
        return max(0, self.params * 2 // 3 + 1 - self.zeros)


@dataclass
class Layouts:
    """What the rewrite decides for one subgraph."""

    flags: dict[Node, Compatibility]
    clusters: list[Cluster]
    nchw: set[Value]
    """The values that are laid out channels first."""
    marks: dict[Node, str]
    """Nodes that the source marks as incompatible although they pass the rules, with why."""

    def runs_sparse(self, node: Node) -> bool:
        """Whether a pointwise convolution becomes a sparse matrix multiplication: it writes NCHW."""
        return node.is_pointwise and node.outputs[0] in self.nchw


class _Rewrite:
    def __init__(self, graph: Subgraph, revision: Revision) -> None:
        self.graph, self.nodes = graph, graph.nodes
        self.number = {node: index for index, node in enumerate(graph.nodes)}
        self.flags = [check(node, revision) for node in graph.nodes]
        self.inside = [flag.inside for flag in self.flags]
        self.leaves = [flag.exit for flag in self.flags]
        self.leader = list(range(len(self.nodes)))
        self.marked = [False] * len(self.nodes)
        self.marks: dict[Node, str] = {}
        self.producer = {output: index for index, node in enumerate(self.nodes) for output in node.outputs}
        self.readers: dict[Value, int] = {}
        for node in self.nodes:
            for value in node.inputs if revision.counts_operands else set(node.inputs):
                self.readers[value] = self.readers.get(value, 0) + 1
        for value in self.producer:
            self.readers[value] = self.readers.get(value, 0) + value.external_output

    def member(self, index: int) -> bool:
        return self.inside[index] or self.leaves[index]

    def alive(self, index: int) -> bool:
        return not self.marked[self.leader[index]] and self.member(index)

    def mark(self, index: int, why: str) -> None:
        self.marked[index] = True
        self.marks.setdefault(self.nodes[index], why)

    def pull(self, index: int) -> bool:
        """Join a node with its producers; whether a leader changed."""
        changed = False
        for value in self.nodes[index].inputs:
            if value.static:
                continue
            # xnn_value_is_external counts outputs too: a value that both a cluster and the caller read kills the cluster.
            if value.external_input or value.external_output:
                self.mark(
                    index, "reads the graph's input" if value.external_input else "reads a value that leaves the graph"
                )
                continue
            source = self.producer[value]
            if not (self.inside[source] or self.flags[source].entry) or self.marked[source]:
                self.mark(index, f"reads {self.nodes[source].operator.name}, which stays channels last")
                continue
            self.leaves[source] = False
            if self.leader[source] != self.leader[index]:
                self.leader[source] = self.leader[index] = max(self.leader[source], self.leader[index])
                changed = True
        return changed

    def run(self) -> Layouts:
        # The leaders are set while the loop runs, as in the source: a producer has its own leader already.
        changed = False
        for index in range(len(self.nodes)):
            if self.leaves[index]:
                changed |= self.pull(index)
        joined = changed
        while changed:
            changed = False
            for index in range(len(self.nodes)):
                if not self.marked[index] and self.member(index):
                    changed |= self.pull(index)
        if joined:
            self.spread_marks()
            self.check_readers()
        clusters = self.count()
        nchw: set[Value] = set()
        if joined:
            for index, node in enumerate(self.nodes):
                if self.alive(index) and clusters[self.leader[index]].sparse_enough:
                    nchw.update(node.computed)
        for index, cluster in clusters.items():
            cluster.marked = self.marked[index] or not joined
        flags = dict(zip(self.nodes, self.flags, strict=True))
        return Layouts(flags, list(clusters.values()), nchw, self.marks)

    def spread_marks(self) -> None:
        for index in range(len(self.nodes)):
            if self.marked[index]:
                self.marked[self.leader[index]] = True

    def check_readers(self) -> None:
        compatible: dict[Value, int] = {}
        for index, node in enumerate(self.nodes):
            if self.alive(index):
                for value in node.computed:
                    compatible[value] = compatible.get(value, 0) + 1
        for index, node in enumerate(self.nodes):
            if self.alive(index):
                for value in node.computed:
                    if compatible[value] != self.readers[value]:
                        self.mark(
                            self.leader[index], f"{value.tensor.name} is read by operators that stay channels last"
                        )

    def count(self) -> dict[int, Cluster]:
        clusters: dict[int, Cluster] = {}
        for index, node in enumerate(self.nodes):
            cluster = clusters.setdefault(self.leader[index], Cluster())
            cluster.nodes.append(node)
            if node.is_pointwise and node.inputs[1].is_float:
                params, zeros = count_zeros(self.source(node.inputs[1].tensor))
                cluster.params += params
                cluster.zeros += zeros
        return clusters

    def source(self, tensor: Tensor) -> Tensor:
        return self.graph.sources.get(tensor, tensor)


def decide(graph: Subgraph, revision: Revision) -> Layouts:
    """The layouts of a subgraph's values, as XNNPACK would set them with the sparse hint. Without it, none is NCHW."""
    layouts = _Rewrite(graph, revision).run()
    if not graph.sparse_hint:
        layouts.nchw.clear()
    return layouts


def unsafe_nodes(graph: Subgraph, layouts: Layouts, revision: Revision) -> dict[Node, Failure]:
    """Nodes that would read numbers in one order and take them for another.

    Channels first to channels last is right in a mean over H and W and in DEPTH_TO_SPACE, which have kernels for it, in
    elementwise operators without spatial extent, where both orders are one, and in a fully-connected layer behind a mean that
    dropped H and W. One that kept them gets its shape in the wrong order, and the runtime stops. Channels last to channels
    first is right in the entry convolution. Anything else computes garbage, or does not load.
    """
    found: dict[Node, Failure] = {}
    for node in graph.nodes:
        reads = {value in layouts.nchw for value in node.computed}
        writes = any(value in layouts.nchw for value in node.outputs)
        if len(reads) > 1:
            found[node] = _garbage(node, "reads one operand channels first and another channels last")
        elif reads == {True} and not writes and not _may_leave(node, graph, revision):
            found[node] = _garbage(node, "reads channels first, writes channels last, and has no kernel for that")
        elif reads == {False} and writes and not (node.kind is Kind.CONVOLUTION and not node.is_pointwise):
            found[node] = _garbage(node, "reads channels last, writes channels first, and has no kernel for that")
        elif node.kind is Kind.REDUCTION and reads == {True} and not _keeps_order(node):
            found[node] = _garbage(node, f"reduces axes {list(node.axes)} of a channels-first value")
        elif node.kind is Kind.REDUCTION and reads == {True} and _has_wrong_shape(node, revision):
            for reader in graph.consumers(node.outputs[0]):
                if not _takes_kept_mean(reader, writes):
                    found[reader] = _garbage(
                        reader, f"reads {node.operator.name} with keep_dims, whose shape is wrong then"
                    )
        elif layouts.nchw and node.is_pointwise and not node.inputs[1].is_float:
            found[node] = Failure(
                "integer-beside-sparse",
                f"{node.inputs[1].tensor.type_name} weights in a graph with the sparse hint",
                "float weights in every 1x1 convolution and fully-connected layer of that graph",
                "store them as float, or put DEQUANTIZE between the int8 weights and the layer",
            )
    return found


def _may_leave(node: Node, graph: Subgraph, revision: Revision) -> bool:
    if node.kind in (Kind.REDUCTION, Kind.DEPTH_TO_SPACE):
        return True
    if node.is_pointwise and not node.inputs[0].has_extent:
        made = (maker for maker in graph.nodes if node.inputs[0] in maker.outputs)
        if any(maker.kind is Kind.REDUCTION and not _has_wrong_shape(maker, revision) for maker in made):
            return True
    if node.kind is Kind.FULLY_CONNECTED:
        return len(node.inputs[0].shape) != 4  # 4-D is 1x1 convolutions, and layers that keep the dimensions
    elementwise = node.kind in (Kind.UNARY, Kind.BINARY)
    return elementwise and not any(value.has_extent for value in [*node.inputs, *node.outputs])


def _keeps_order(node: Node) -> bool:
    """Whether what a reduction leaves of a channels-first value has the right order: no channels, or nothing but channels.

    The mapping to channels first takes H for W and W for H: with the channels and one of them, only squares come out right.
    XNNPACK 75db3c0 src/subgraph/static-reduce.c; observed in ai-edge-litert 2.3.0 and LiteRT.js 2.5.3 with every set of axes.
    """
    height, width = node.inputs[0].shape[1:3]
    axes = set(node.axes)
    return {1, 2} <= axes or axes == {3} or (3 in axes and height == width)


def _has_wrong_shape(node: Node, revision: Revision) -> bool:
    """Whether a mean of a channels-first value that keeps H and W gets a shape in the wrong order; see `_takes_kept_mean`.

    By the source's mapping the channels of that shape are H (observed): where there are as many, it is right by chance.
    """
    source = node.inputs[0]
    kept = len(node.outputs[0].shape) == 4
    return kept and not revision.pools_only and not (sorted(node.axes) == [1, 2] and source.shape[1] == source.shape[3])


def _takes_kept_mean(reader: Node, channels_first: bool) -> bool:
    """Whether a node is right behind a mean that keeps H and W and reads channels first.

    Such a mean writes the right numbers with a wrong shape: [N, 1, 1, H] channels first, [N, C, 1, 1] channels last. A
    pointwise convolution in the cluster does not look at the channels of that shape, and a reshape only counts elements;
    elementwise operators handle H elements instead of C. XNNPACK 75db3c0 src/subgraph/static-reduce.c
    reshape_reduce_operator; ai-edge-litert 2.3.0 shows it.
    """
    return reader.is_pointwise if channels_first else reader.kind is Kind.RESHAPE


def _garbage(node: Node, found: str) -> Failure:
    return Failure(
        "unsafe-layout",
        f"{node.operator.name} {found}: wrong numbers on devices, right ones on this computer",
        "a cluster that ends in a mean over H and W or in DEPTH_TO_SPACE",
        "repair the operators listed beside this, or ship the dense file",
    )
