"""Feature-map ranks by hand."""

import pytest
import torch

from sparsetorch import HRank
from sparsetorch.errors import BadInputError
from sparsetorch.sparsify import hrank
from sparsetorch.sparsify.hrank import feature_map_ranks


def test_ranks_of_known_maps() -> None:
    constant, zero = torch.ones(3, 3), torch.zeros(3, 3)
    outer = torch.outer(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.0, 1.0]))
    two = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    maps = torch.stack([torch.stack([constant, zero, outer, torch.eye(3)]), torch.stack([zero, zero, two, two])])
    assert feature_map_ranks(maps).tolist() == [0.5, 0.0, 1.5, 2.5]


def test_maps_need_not_be_square_and_a_single_value_has_rank_one() -> None:
    maps = torch.randn(4, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert feature_map_ranks(maps).tolist() == [3.0, 3.0]
    assert feature_map_ranks(torch.tensor([[[[2.0]], [[0.0]]]])).tolist() == [1.0, 0.0]


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = torch.randn(7, 3, 4, 4, generator=torch.Generator().manual_seed(0)).relu()
    whole = feature_map_ranks(maps)
    monkeypatch.setattr(hrank, "CHUNK_BYTES", 1)
    assert torch.equal(feature_map_ranks(maps), whole)


def test_five_batches_all_layers_at_once_by_default() -> None:
    assert HRank() == HRank(batches=5, one_by_one=False)


def test_at_least_one_batch() -> None:
    with pytest.raises(BadInputError, match="batches: found 0"):
        HRank(batches=0)
