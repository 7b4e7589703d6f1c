"""The pipeline of passes: order, fixed point, failures that name the pass and leave the model as it was."""

import pytest
from graphs import OP, Net, classifier

from sparsetorch.tflite import Graph, to_bytes
from sparsetorch.tflite.passes import Note, Pass, PassError, repair, run_passes


class Rename(Pass):
    """Puts a mark behind the name of the first operator's result, a few times."""

    def __init__(self, name: str, times: int) -> None:
        self.name, self.times = name, times

    def run(self, graph: Graph) -> list[Note]:
        value = graph.operators[0].outputs[0]
        if value.name.count(self.name) >= self.times:
            return [Note(self.name, value.name, "enough", applied=False)]
        value.name += self.name
        return [Note(self.name, value.name, "marked")]


class Breaks(Pass):
    """Leaves a value without a maker."""

    name = "breaks"

    def run(self, graph: Graph) -> list[Note]:
        graph.operators.pop(0)
        return [Note(self.name, "", "removed")]


class Raises(Pass):
    """Fails on its own."""

    name = "raises"

    def run(self, graph: Graph) -> list[Note]:
        graph.operators[0].outputs[0].name = "half done"
        raise IndexError("no such thing")


def test_passes_run_in_order_until_nothing_changes() -> None:
    model = classifier()
    notes = run_passes(model, [Rename("+", 2), Rename("-", 1)])
    assert [note.repair for note in notes] == ["+", "-", "+", "+", "-"]
    assert [note.applied for note in notes] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("bad", "told"), [(Breaks(), "nothing before it makes"), (Raises(), "IndexError: no such thing")]
)
def test_a_failure_names_the_pass_and_those_before_and_leaves_the_model(bad: Pass, told: str) -> None:
    model = classifier()
    before = to_bytes(model)
    with pytest.raises(PassError, match=f"the pass {bad.name} failed .*{told}.* after first"):
        run_passes(model, [Rename("first", 1), bad])
    assert to_bytes(model) == before


def test_passes_without_an_end_are_stopped() -> None:
    with pytest.raises(PassError, match="no end after 20 rounds of for ever"):
        run_passes(classifier(), [Rename("for ever", 10**6)])


def test_a_model_is_not_changed_through_its_copy() -> None:
    net = Net()
    x = net.pointwise(net.input(4, 3), 8)
    net.output(net.pointwise(net.unary(OP.RELU6, x), 4))
    model = net.model()
    before = to_bytes(model)
    assert repair(model.copy())
    assert to_bytes(model) == before


def test_what_is_right_already_is_left_alone() -> None:
    model = classifier()
    before = to_bytes(model)
    assert repair(model) == ()
    assert to_bytes(model) == before
