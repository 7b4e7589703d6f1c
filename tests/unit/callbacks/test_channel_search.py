"""ABCPruner in Lightning's loop: the search, its file, and what it leaves alone."""

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from channels import Residual
from torch.utils.data import DataLoader, TensorDataset
from training import trainer, weights

from sparsetorch import ABCPruner, ConstantSparsity, SparseTraining
from sparsetorch.callbacks import channel_search
from sparsetorch.errors import BadInputError
from sparsetorch.models import ImageClassifier
from sparsetorch.sparsify.abcpruner import Colony
from sparsetorch.structured.channel_sparsifier import ChannelSparsifier

DATA = TensorDataset(torch.randn(48, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 4)
BEES = ABCPruner(food_sources=2, cycles=1, fitness_epochs=1, fitness_batches=2)


def fit(
    folder: Path, bees: ABCPruner = BEES, val: bool = True, **options: Any
) -> tuple[SparseTraining, pl.LightningModule]:
    pl.seed_everything(0)
    module = ImageClassifier(Residual(8), num_classes=4)
    sparse = SparseTraining(bees, ConstantSparsity(0.5, end_step=4))
    run = trainer(folder, max_epochs=1, callbacks=[sparse], num_sanity_val_steps=0, **options)
    run.fit(module, DataLoader(DATA, 8, shuffle=True), DataLoader(DATA, 24) if val else None)
    return sparse, module


def test_a_search_prunes_to_its_best_structure_and_trains_on(tmp_path: Path) -> None:
    sparse, module = fit(tmp_path)
    assert isinstance(sparse.sparsifier, ChannelSparsifier)
    colony = Colony.from_json((tmp_path / "abcpruner.json").read_text())
    assert colony.cycle == 1
    assert 6 <= colony.evaluations <= 7
    kept = [int(keep.sum()) for keep in sparse.sparsifier.channels.keep.values()]
    assert kept == [max(size * tenths // 10, 1) for size, tenths in zip((8, 8, 16), colony.best, strict=True)]
    assert sum(kept) <= 16
    assert 0.0 < colony.best_fitness <= 1.0
    assert module.trainer.global_step == 6


def test_a_killed_search_goes_on_and_ends_where_it_would_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = weights(fit(tmp_path / "straight")[1])
    original, left = channel_search._fitness, iter(range(3))

    def tired(*arguments: Any) -> float:
        if next(left, None) is None:
            raise OSError("killed")
        return original(*arguments)

    monkeypatch.setattr(channel_search, "_fitness", tired)
    with pytest.raises(OSError, match="killed"):
        fit(tmp_path / "killed")
    assert Colony.from_json((tmp_path / "killed" / "abcpruner.json").read_text()).evaluations == 3
    monkeypatch.setattr(channel_search, "_fitness", original)
    resumed = weights(fit(tmp_path / "killed")[1])
    assert (tmp_path / "killed" / "abcpruner.json").read_text() == (
        tmp_path / "straight" / "abcpruner.json"
    ).read_text()
    assert all(torch.equal(value, straight[name]) for name, value in resumed.items())


def test_a_finished_search_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit(tmp_path / "one")
    monkeypatch.setattr(channel_search, "_fitness", lambda *_: pytest.fail("searched again"))
    bees = ABCPruner(**{**vars(BEES), "state_file": str(tmp_path / "one" / "abcpruner.json")})
    sparse, _ = fit(tmp_path / "two", bees)
    assert sparse.sparsifier is not None
    assert sparse.sparsifier.sparsity >= 0.5


def test_what_a_search_needs_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="monitor: found no metric 'val_acc'"):
        fit(tmp_path / "a", val=False)
    with pytest.raises(BadInputError, match=r"monitor: found no metric 'iou' after validation, only .*val_acc"):
        fit(tmp_path / "b", ABCPruner(**{**vars(BEES), "monitor": "iou"}))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "abcpruner.json").write_text(Colony(best=(1, 2)).to_json())
    with pytest.raises(BadInputError, match="structures of 2 layers, and this network has 3"):
        fit(tmp_path / "c")


def test_tenths_are_taken_until_a_structure_fits() -> None:
    import random

    fitted = channel_search.within((10, 10, 10), [8, 8, 16], 16, random.Random(0))
    assert sum(map(channel_search.channels_kept, (8, 8, 16), fitted)) <= 16
    assert channel_search.within((3, 4, 5), [8, 8, 16], 30, random.Random(0)) == (3, 4, 5)
    with pytest.raises(BadInputError, match="one tenth of every layer"):
        channel_search.within((10, 10), [2, 2], 1, random.Random(0))
