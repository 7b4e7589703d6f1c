"""The loop around the passes: what it asks, what it blames, when it ends."""

import numpy as np
import pytest
from graphs import OP, Net, classifier

from sparsetorch.errors import RepairError
from sparsetorch.tflite import Graph, Signature, Tensor, encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import PASSES, Outcome, Pass, repair
from sparsetorch.tflite.passes import clamps as clamps_module
from sparsetorch.tflite.passes.contract import is_sound


def gated() -> Net:
    net = Net()
    net.output(net.pointwise(net.squeeze_excite(net.pointwise(net.input(5, 3), 8), "hard"), 4))
    return net


def test_names_are_unique_and_match_their_files() -> None:
    names = [single.name for single in PASSES]
    assert len(set(names)) == len(names)
    assert all(single.run.__module__ == f"sparsetorch.tflite.passes.{single.name}" for single in PASSES)


def test_a_clean_graph_is_left_alone_byte_for_byte() -> None:
    model = from_bytes(to_bytes(classifier()))
    before = to_bytes(model)
    assert repair(model) == ()
    assert to_bytes(model) == before


def test_an_encoded_graph_is_read_and_not_damaged() -> None:
    model = classifier(gate="hard")
    encode(model)
    repair(model)
    assert not any(operator.name == "RELU_0_TO_1" for operator in model.graphs[0].operators)
    assert sum(operator.name == "DENSIFY" for operator in model.graphs[0].operators) == 11


def test_a_copy_is_not_touched() -> None:
    model = gated().model()
    kept = model.copy()
    before = to_bytes(kept)
    repair(model)
    assert to_bytes(kept) == before


def test_outputs_and_signatures_are_the_same_tensors() -> None:
    net = gated()
    model = net.model()
    model.signatures = [Signature("serve", net.graph, [("x", net.graph.inputs[0])], [("y", net.graph.outputs[0])])]
    output = net.graph.outputs[0]
    assert repair(model)
    assert net.graph.outputs == [output]
    assert from_bytes(to_bytes(model)).signatures[0].outputs[0][1].name == output.name


def test_a_signature_inside_the_graph_keeps_it_as_it_is() -> None:
    net = gated()
    model = net.model()
    inner = next(operator for operator in net.graph.operators if operator.name == "RELU_0_TO_1").outputs[0]
    model.signatures = [Signature("serve", net.graph, [], [("gate", inner)])]
    (note,) = repair(model)
    assert "a signature names a value inside the graph" in note.what


def test_dynamic_shapes_keep_it_as_it_is() -> None:
    net = gated()
    net.graph.inputs[0].fields.shapeSignature = np.array([-1, 5, 5, 3], np.int32)
    (note,) = repair(net.model())
    assert not note.applied
    assert "only known at run time" in note.what


def break_it(graph: Graph, outcome: Outcome) -> None:
    graph.operators.reverse()
    outcome.modified = True


def lose_an_output(graph: Graph, outcome: Outcome) -> None:
    graph.outputs = [graph.operators[0].outputs[0]]


def crash(graph: Graph, outcome: Outcome) -> None:
    raise KeyError("CONV_9D")


def restless(graph: Graph, outcome: Outcome) -> None:
    outcome.modified = True


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (break_it, "repair 'wrong', after clamps, left a broken graph: .* reads .* before anything has written it"),
        (lose_an_output, "repair 'wrong', after clamps, left a broken graph: it changed the graph's outputs"),
        (crash, "repair 'wrong', after clamps, failed: KeyError: 'CONV_9D'"),
        (restless, "do not come to an end"),
    ],
)
def test_a_failure_names_the_pass_and_those_before_it(run: object, message: str) -> None:
    with pytest.raises(RepairError, match=message):
        repair(gated().model(), (clamps_module.PASS, Pass("wrong", run)))


def test_what_a_pass_requires_is_asked_first() -> None:
    asks = Pass("asks", lambda graph, outcome: None, requires=lambda graph: "no operators at all")
    with pytest.raises(
        RepairError, match="repair 'asks', as the first, cannot work on this graph: no operators at all"
    ):
        repair(gated().model(), (asks,))


def test_a_damaged_graph_is_refused() -> None:
    net = gated()
    net.graph.operators.reverse()
    with pytest.raises(RepairError, match="before anything has written it"):
        repair(net.model())


def test_soundness_worked_by_hand() -> None:
    net = Net()
    x = net.input(2, 1)
    y = net.unary(OP.ABS, x)
    net.output(y)
    assert is_sound(net.graph) is None
    net.graph.outputs = [Tensor("ghost", (1,))]
    assert "returns 'ghost', which nothing writes" in (is_sound(net.graph) or "")
    net.graph.operators.append(net.graph.operators[0])
    assert "has a value already" in (is_sound(net.graph) or "")


def test_a_constant_without_elements_is_sound() -> None:
    net = Net()
    x = net.unary(OP.ABS, net.mean(net.input(2, 1), axes=(0, 1, 2, 3)))
    net.output(net.add(OP.RESHAPE, [x, net.tensor((0,), kind=2)], ()))
    assert is_sound(net.graph) is None


def test_dead_operators_and_tensors_go() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 4)
    net.unary(OP.ABS, net.unary(OP.NEG, x))
    net.output(x)
    model = net.model()
    repair(model)
    assert [operator.name for operator in net.graph.operators] == ["CONV_2D"]
    assert len(from_bytes(to_bytes(model)).graphs[0].tensors) == 4
