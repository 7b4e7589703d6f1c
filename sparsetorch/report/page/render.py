"""The page itself: what was gathered, put into the template. Everything that comes from files is escaped there."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sparsetorch.latency.result import stored_as
from sparsetorch.report.collect import Contents
from sparsetorch.report.headline import headline
from sparsetorch.report.page.colours import DARK, FIGURE_RULES, LIGHT, variables
from sparsetorch.report.page.figure import TIMES
from sparsetorch.report.page.figures import figures
from sparsetorch.report.reasons import grouped_reasons

_HERE = Path(__file__).parent

LEGEND = (
    ('<rect class="sparse" x="2" y="2" width="12" height="12" rx="3"/>', "1x1 convolution, runs sparse"),
    ('<circle class="inside" cx="8" cy="8" r="6"/>', "in the cluster, channels first"),
    ('<path class="entry" d="M1 2h14l-7 12z"/>', "entry"),
    ('<path class="exit" d="M8 1l7 7l-7 7l-7 -7z"/>', "exit"),
    ('<rect class="outside" x="2" y="2" width="12" height="12" rx="3"/>', "channels last"),
    ('<rect class="candidate" x="3" y="3" width="10" height="10" rx="3"/>', "could run sparse, does not"),
    ('<path class="breaker" d="M8 1l7 13h-14z"/>', "breaks the cluster"),
    ('<path class="unsafe" d="M8 1l7 13h-14z"/>', "wrong numbers"),
    ('<path class="wire first" d="M1 8h14"/>', "channels-first values"),
)
"""Marks of the network's picture, in boxes of 16 by 16."""


@dataclass(frozen=True)
class Tile:
    """A figure in digits."""

    value: str
    label: str


def render(contents: Contents) -> str:
    """One HTML page that needs nothing else."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html").render(
        title=Path(contents.model or contents.source).name,
        contents=contents,
        headline=headline(contents),
        verdict=contents.verdict,
        bench=contents.bench,
        figures=figures(contents),
        tiles=_tiles(contents),
        reasons=[] if contents.verdict is None else grouped_reasons(contents.verdict),
        legend=LEGEND,
        style=Markup(_style()),
        script=Markup((_HERE / "page.js").read_text()),
        version=version("sparsetorch"),
    )


def _style() -> str:
    dark = variables(DARK)
    return (
        f":root {{ {variables(LIGHT)} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }} "
        f':root[data-theme="dark"] {{ {dark} }} :root[data-theme="light"] {{ {variables(LIGHT)} }}'
        f"{(_HERE / 'page.css').read_text()}{_scoped(FIGURE_RULES)}"
    )


def _scoped(rules: str) -> str:
    """The figures' rules for drawings alone: their class names are short. A `g`, since <use> copies nothing above it."""
    lines = []
    for rule in rules.replace("\n", " ").split("}"):
        names, _, body = rule.partition("{")
        if body:
            lines.append(", ".join(f".drawing {name.strip()}" for name in names.split(",")) + " {" + body + "}")
    return "\n".join(lines)


def _tiles(contents: Contents) -> list[Tile]:
    tiles = []
    verdict, run = contents.verdict, contents.run
    if verdict is not None:
        params, zeros = sum(one.params for one in verdict.clusters), sum(one.zeros for one in verdict.clusters)
        if params:
            tiles.append(
                Tile(f"{zeros / params:.1%}", "zeros in the 1x1 convolutions of the cluster; over 66.7% needed")
            )
        tiles.append(Tile(str(verdict.expected_spmm), "sparse matrix multiplications expected"))
    own = next((size for size in contents.sizes if size.is_file), None)
    twin = next((size for size in contents.sizes if (size.encoding, size.values) == ("dense", "float32")), None)
    if own is not None:
        compared = f", {own.raw / twin.raw:.0%} of dense float32" if twin is not None and twin is not own else ""
        tiles.append(Tile(f"{own.raw / 1e6:.2f} MB", f"file size{compared}"))
    tiles += _best_ratios(contents)
    accuracies = {
        name: value
        for name, value in contents.accuracy.items()
        if name.endswith("acc") and not name.startswith("train")
    }
    for name, value in list(accuracies.items())[:2]:
        tiles.append(Tile(f"{value:.2%}", name))
    if run is not None and isinstance(run.summary.get("sparsity"), dict):
        total = run.summary["sparsity"].get("total")
        if isinstance(total, int | float):
            tiles.append(Tile(f"{total:.1%}", "zeros among the masked weights"))
    return tiles


def _best_ratios(contents: Contents) -> list[Tile]:
    """Of each runtime, how many times as fast the reported file is, or one that is stored alike; only what was measured."""
    own = next((size for size in contents.sizes if size.is_file), None)
    if contents.bench is None or own is None or contents.model is None:
        return []
    tiles, file = [], Path(contents.model).name
    for name, runtime in contents.bench.runtimes.items():
        measured = [row for row in runtime.rows if row.ratio is not None and row.ratio.is_difference]
        chosen = [row for row in measured if Path(row.file).name == file]
        chosen += [row for row in measured if row.label == stored_as(own.encoding, own.values)]
        for row in chosen[:1]:
            assert row.ratio is not None
            tiles.append(
                Tile(f"{row.ratio.value:.2f}{TIMES}", f"as fast as {contents.bench.reference} in {name}, measured")
            )
    return tiles
