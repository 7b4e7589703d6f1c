"""The check says what real exports came to: the committed tables of notebooks/studies are the oracle."""

import csv
from pathlib import Path

import pytest
import torch
import torchvision
from random_networks import SIZE, random_network
from torch import nn

import sparsetorch
from sparsetorch import ByName, PruningPlan

STUDIES = Path(__file__).parents[3] / "notebooks" / "studies"


def table(study: str, key: str) -> dict[str, dict[str, str]]:
    with (STUDIES / study / "results.csv").open() as file:
        return {row[key]: row for row in csv.DictReader(file)}


MODELS, RANDOM = table("model_matrix", "model"), table("random_networks", "seed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["mobilenet_v2", "mobilenet_v3_small", "mnasnet1_0", "efficientnet_b0", "resnet18", "shufflenet_v2_x0_5"],
)
def test_known_networks_as_their_exports(name: str) -> None:
    """64 pixels in place of 224: neither the verdict nor the size of the file depends on them."""
    report = sparsetorch.check(getattr(torchvision.models, name)(), (3, 64, 64))
    real = MODELS[name]
    assert str(report.eligible) == real["eligible"]
    assert str(report.verdict.expected_spmm) == real["spmm"]
    assert report.opaque == ()
    assert report.dense_bytes == pytest.approx(int(real["dense_float32"]), rel=0.01)
    for values, file in report.files.items():
        assert file.bytes == pytest.approx(int(real[values]), rel=0.02)


@pytest.mark.parametrize("seed", range(1006, 1021))
def test_random_networks_as_their_exports(seed: int) -> None:
    real = RANDOM[str(seed)]
    report = sparsetorch.check(random_network(seed), (3, SIZE, SIZE), values=real["values"])
    assert str(report.eligible) == real["eligible"]
    assert str(report.verdict.expected_spmm) == real["spmm"]
    assert bool(report.refused) == (real["status"] == "written dense: unsafe")
    # These files are of ten to thirty kilobytes: a few tensors' names are percents.
    assert report.files[real["values"]].bytes == pytest.approx(int(real["bytes"]), rel=0.03, abs=400)


class Net(nn.Module):
    """Stem, two 1x1 convolutions of 16 x 32 and 32 x 64 weights around a depthwise one, mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.one, self.depthwise, self.two = (
            nn.Conv2d(16, 32, 1),
            nn.Conv2d(32, 32, 3, 1, 1, groups=32),
            nn.Conv2d(32, 64, 1),
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.one(self.stem(x)).relu())
        return self.head(self.two(x.relu()).relu().mean((2, 3)))


def test_two_thirds_over_what_the_policy_prunes() -> None:
    """512 + 2048 weights: more than 1706.67 zeros, so 1707; over `two` alone 1707 / 2048 = 0.8335 are needed."""
    (plan,) = sparsetorch.check(Net(), (3, 32, 32), plan=PruningPlan(0.8, ByName(include=["two"]))).clusters
    assert (plan.layers, plan.not_pruned) == (("one", "two"), ("one",))
    assert (plan.params, plan.prunable, plan.required_zeros) == (2560, 2048, 1707)
    assert plan.planned_zeros == 1638
    assert plan.needed_sparsity == 0.834
    assert not plan.is_enough


def test_the_sparsity_that_is_asked_for_is_enough_and_a_little_less_is_not() -> None:
    def eligible(sparsity: float) -> bool:
        return sparsetorch.check(Net(), (3, 32, 32), plan=PruningPlan(sparsity, ByName(include=["two"]))).eligible

    assert eligible(0.834)
    assert not eligible(0.833)


def test_a_policy_that_cannot_reach_two_thirds_is_told() -> None:
    """512 of 2560 weights."""
    report = sparsetorch.check(Net(), (3, 32, 32), plan=PruningPlan(0.9, ByName(include=["one"])))
    assert report.clusters[0].needed_sparsity is None
    assert not report.eligible
    assert report.hint is not None
    assert "prune two too" in report.hint


def test_the_module_and_the_random_state_are_left_alone() -> None:
    module = Net().train()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    state = torch.get_rng_state()
    sparsetorch.check(module, (3, 32, 32))
    assert module.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(module.state_dict()[key], value) for key, value in before.items())
    assert module.state_dict().keys() == before.keys()


def test_an_operator_that_is_not_known_breaks_the_cluster_and_is_named() -> None:
    class Cumulative(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.cumsum(self.one(self.stem(x)).relu(), 2)
            return self.head(self.two(self.depthwise(x)).relu().mean((2, 3)))

    report = sparsetorch.check(Cumulative(), (3, 32, 32))
    assert not report.eligible
    assert report.opaque == ("CumSum: not known here",)
    assert any("CumSum" in reason.found for reason in report.verdict.reasons)


def test_json_has_the_fields_of_verify_and_its_own() -> None:
    told = sparsetorch.check(Net(), (3, 32, 32)).to_dict()
    assert {"targets", "eligible", "reasons", "expected_spmm", "layers", "clusters", "revision"} <= told.keys()
    assert told["sizes"].keys() == {"dense_float32", "float32", "float16", "int8"}
    assert told["two_thirds"][0]["needed_sparsity"] == 0.667
    assert told["pruned_layers"] == ["one", "two"]
    assert {layer["module"] for layer in told["layers"]} == {"stem", "one", "depthwise", "two", "head"}
