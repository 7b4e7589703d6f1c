"""recipes/MIGRATION.md: every snippet of ours runs as it stands, and what it says of Lightning's callback is so."""

import re
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.callbacks import ModelPruning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from sparsetorch import SparseTraining
from sparsetorch.analysis import account
from sparsetorch.masking import masked_layers

PAGE = Path(__file__).parents[2] / "recipes" / "MIGRATION.md"
SNIPPETS = re.findall(r"^```python ours\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


class Module(pl.LightningModule):
    """What the page calls `module`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.net = network

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def names() -> dict[str, Any]:
    """What the page's snippets find: network, module, data, batches, optimizer, loss."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 1), nn.Flatten(), nn.Linear(1152, 4)
    )
    images, labels = torch.randn(80, 3, 8, 8), torch.randint(0, 4, (80,))
    data = DataLoader(TensorDataset(images, labels), 8)
    return {
        "network": network,
        "module": Module(network),
        "data": data,
        "batches": list(data),
        "optimizer": torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9),
        "loss": F.cross_entropy,
        "pl": pl,
    }


def test_no_snippet_is_missed() -> None:
    assert len(SNIPPETS) == 7
    assert PAGE.read_text().count("```python ours") == 7


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"snippet {number}" for number in range(1, len(SNIPPETS) + 1)])
def test_a_snippet_runs_as_it_stands(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = names()
    exec(compile(snippet, str(PAGE), "exec"), given)
    # It ends sparse, as it says: masks with zeros on the network it was given.
    assert masked_layers(given["network"])
    assert account(given["network"]).sparsity > 0.5
    for value in given.values():
        if isinstance(value, SparseTraining) and value.sparsifier is not None:
            assert not value.sparsifier.shortfall()
    if "plain" in given:
        plain = given["plain"]
        state = plain if isinstance(plain, dict) else plain.state_dict()
        assert not any(key.endswith(("_orig", "_mask")) for key in state)


@pytest.mark.filterwarnings("ignore")
def test_model_pruning_compounds_and_prunes_biases(tmp_path: Path) -> None:
    given = names()
    trainer = pl.Trainer(
        max_epochs=3,
        callbacks=[ModelPruning("l1_unstructured", amount=0.5)],
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(given["module"], given["data"])
    counted = account(given["network"])
    assert counted.non_zero / counted.parameters == pytest.approx(0.125, abs=0.01)
    assert any(hasattr(layer, "bias_mask") for layer in given["network"]) or any(
        bool((layer.bias == 0).any()) for layer in given["network"] if getattr(layer, "bias", None) is not None
    )
