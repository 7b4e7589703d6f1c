"""History, plots and the accounting table."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from sparsetorch.analysis import account
from sparsetorch.report.sparsity_history import QUANTITIES, SparsityHistory
from sparsetorch.report.sparsity_plots import draw_over_time, draw_per_layer, write_plots
from sparsetorch.report.sparsity_table import accounting_table


def history(points: int = 5, layers: int = 2, capacity: int = 1000) -> SparsityHistory:
    made = SparsityHistory([f"layer.{index}" for index in range(layers)], capacity)
    for step in range(points):
        made.add(100 * step, [[0.5, step, step, 0.1, 0.5 + step / 100]] * (layers + 1))
    return made


def test_the_history_is_bounded_and_keeps_both_ends() -> None:
    made = history(points=1000, capacity=16)
    assert len(made.steps) <= 16
    assert (made.steps[0], made.steps[-1]) == (0, 99_900)
    assert made.steps == sorted(set(made.steps))
    assert made.series("dropped")[-1, -1] == 999


def test_the_history_survives_its_state_dict(tmp_path: Path) -> None:
    made, back = history(), SparsityHistory()
    torch.save(made.state_dict(), tmp_path / "state.pt")
    back.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert back.to_csv() == made.to_csv()
    assert back.series("churn").shape == (5, 3)
    back.load_state_dict(SparsityHistory().state_dict())
    assert back.steps == back.points == []


def test_csv_has_a_line_per_point_and_layer() -> None:
    header, *lines = history(points=2).to_csv().splitlines()
    assert header == ",".join(["step", "layer", *QUANTITIES])
    assert lines[-1] == "100,total,0.5,1,1,0.1,0.51"
    assert len(lines) == 6


def test_axes_have_units_and_bars_the_layers_names() -> None:
    figure = draw_over_time(history())
    assert figure.axes[2].get_xlabel() == "optimizer step"
    assert all("% of" in axis.get_ylabel() for axis in figure.axes[:3])
    panel = draw_per_layer(history()).axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["layer.0", "layer.1", "all layers"]
    assert "%" in panel.get_xlabel()


def test_a_bar_divides_the_weights_into_three() -> None:
    panel = draw_per_layer(history(points=1)).axes[0]
    widths = [[bar.get_width() for bar in container] for container in panel.containers]
    assert widths == [[50.0] * 3, [0.0] * 3, [50.0] * 3]
    assert [sum(parts) for parts in zip(*widths, strict=True)] == [100.0] * 3


@pytest.mark.parametrize(("points", "layers"), [(1, 1), (2, 1), (300, 60)])
def test_any_history_can_be_drawn_and_draws_the_same_again(tmp_path: Path, points: int, layers: int) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        written = write_plots(history(points, layers), tmp_path / folder)
        assert [path.name for path in written] == [
            "sparsity_over_time.png",
            "sparsity_over_time.svg",
            "sparsity_per_layer.png",
            "sparsity_per_layer.svg",
        ]
    for path in written:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()


def test_importing_the_callback_does_not_import_matplotlib() -> None:
    # torchmetrics imports pyplot by itself where it can; the module that draws with Agg comes only with the first plot.
    code = "import sys, sparsetorch.callbacks; sys.exit('matplotlib.backends.backend_agg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_table_ends_with_totals() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.Flatten(), nn.Linear(8 * 36, 10))
    nn.init.ones_(net[0].weight)
    with torch.no_grad():
        net[2].weight.zero_()
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(accounting_table(account(net, (3, 8, 8))))
    lines = console.export_text().splitlines()
    conv = next(line for line in lines if "8x3x3x3" in line).replace(" ", "").split("│")
    assert conv[1:-1] == ["0", "8x3x3x3", "216", "216", "0.00%", "73.0%", "7.776k", "7.776k", "864"]
    total = next(line for line in lines if "all layers" in line).replace(" ", "").split("│")
    assert total[1:-1] == ["alllayers", "", "3,096", "216", "93.02%", "100.0%", "10.66k", "7.776k", "1,024"]


def test_the_table_without_macs_has_dashes() -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(accounting_table(account(nn.Linear(4, 3))))
    text = console.export_text()
    assert "(the network itself)" in text
    assert text.count(" - ") == 6
