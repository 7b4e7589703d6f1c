"""The figures of a report, each made of what was gathered; those without data are left out."""

from collections.abc import Iterator, Mapping

from sparsetorch.latency.result import BenchResult
from sparsetorch.report.collect import Contents, Size
from sparsetorch.report.page.charts import Bar, Line, bars, line_chart
from sparsetorch.report.page.figure import TIMES, Figure, Table
from sparsetorch.report.page.network_figure import network_figure
from sparsetorch.report.run_folder import Series
from sparsetorch.xnnpack import Verdict

_TOTAL = "total"
_SHARES = frozenset({"acc", "accuracy", "f1", "iou", "precision", "recall"})
_BAR_ROWS = 30


def figures(contents: Contents) -> dict[str, Figure]:
    """Name -> figure, in the order of the page."""
    return {figure.name: figure for figure in _figures(contents)}


def _figures(contents: Contents) -> Iterator[Figure]:
    if contents.network:
        yield network_figure(contents.network)
    if contents.verdict is not None and contents.verdict.layers:
        yield _per_layer(contents.verdict)
    if contents.run is not None and any(len(series.steps) > 1 for series in contents.run.sparsity.values()):
        yield _over_time(contents.run.sparsity)
    if contents.sizes:
        yield _sizes(contents.sizes)
    if contents.bench is not None and any(runtime.rows for runtime in contents.bench.runtimes.values()):
        yield latency_figure(contents.bench)
    if contents.run is not None:
        yield from _metrics(contents.run.metrics)


def _per_layer(verdict: Verdict) -> Figure:
    layers = verdict.layers
    items = [
        Bar(
            layer.module or layer.tensor,
            layer.sparsity,
            f"{layer.sparsity:.1%}",
            "sparse" if layer.encoding == "sparse" else "dense",
        )
        for layer in layers
    ]
    body, height = bars(items, most=1.0, compact=True)
    cuts = tuple(16.0 * (len(items) * part // 3) for part in (1, 2)) if len(items) > _BAR_ROWS else ()
    weights = sum(layer.dense_bytes for layer in layers) or 1
    zeros = sum(layer.sparsity * layer.dense_bytes for layer in layers) / weights
    encoded = sum(layer.encoding == "sparse" for layer in layers)
    return Figure(
        "sparsity_per_layer",
        "Zeros per layer",
        f"{zeros:.1%} of all weight bytes are zeros; {encoded} of {len(layers)} layers are stored sparsely (coloured).",
        body,
        height,
        Table(
            ("tensor", "module", "shape", "sparsity", "encoding", "values", "kernel_block", "bytes", "dense_bytes"),
            [
                (
                    one.tensor, one.module, "x".join(map(str, one.shape)), one.sparsity, one.encoding, one.values,
                    one.kernel_block, one.bytes, one.dense_bytes,
                )
                for one in layers
            ],
        ),
        cuts=cuts,
    )  # fmt: skip


def _over_time(sparsity: Mapping[str, Series]) -> Figure:
    names = [name for name in sparsity if name != _TOTAL]
    lines = [
        Line(sparsity[name].steps, sparsity[name].values, "early" if 2 * number < len(names) else "late", steps=True)
        for number, name in enumerate(names)
    ]
    if _TOTAL in sparsity:
        lines.append(Line(sparsity[_TOTAL].steps, sparsity[_TOTAL].values, "total", steps=True))
    body, height = line_chart(lines, "optimizer step", "zeros, % of weights")
    last = sparsity[_TOTAL].values[-1] if _TOTAL in sparsity and sparsity[_TOTAL].values else None
    return Figure(
        "sparsity_over_time",
        "Zeros over time",
        f"Thick: all masked layers together{'' if last is None else f', {last:.1%} in the end'}. Thin: each layer, the first "
        "half of the network in blue, the second in yellow.",
        body,
        height,
        Table(
            ("layer", "step", "sparsity"),
            [
                (name, step, value)
                for name, one in sparsity.items()
                for step, value in zip(one.steps, one.values, strict=True)
            ],
        ),
    )


def _sizes(sizes: tuple[Size, ...]) -> Figure:
    items = [
        Bar(
            size.label,
            size.raw,
            f"{_bytes(size.raw)}, gzip {_bytes(size.gzip)}",
            "border-bar" if size.is_file else size.encoding,
        )
        for size in sizes
    ]
    body, height = bars(items)
    own = next(size for size in sizes if size.is_file)
    largest = max(sizes, key=lambda size: size.raw)
    return Figure(
        "sizes",
        "Sizes",
        f"This file: {_bytes(own.raw)}, {_bytes(own.gzip)} with gzip"
        + (f"; {1 - own.raw / largest.raw:.0%} smaller than {largest.label}." if largest.raw > own.raw else "."),
        body,
        height,
        Table(
            ("label", "encoding", "values", "bytes", "gzip_bytes", "is_this_file"),
            [(size.label, size.encoding, size.values, size.raw, size.gzip, size.is_file) for size in sizes],
        ),
    )


def latency_figure(bench: BenchResult) -> Figure:
    """Medians as bars, the 10th to the 90th percentile as error bars, for each runtime."""
    rows = [(name, runtime, row) for name, runtime in bench.runtimes.items() for row in runtime.rows]
    items = [
        Bar(
            row.label,
            row.ms.median,
            f"{row.ms.median:.2f} ms"
            + (f", {row.ratio.value:.2f}{TIMES}" if row.ratio and row.ratio.is_difference else ""),
            "sparse" if row.label.startswith("sparse") else "dense",
            row.ms.p10,
            row.ms.p90,
            group=name,
        )
        for name, _, row in rows
        if row.ms is not None
    ]
    body, height = bars(items)
    return Figure(
        "latency",
        "Latency",
        f"Median of {bench.runs} runs in turns after {bench.warmup} to warm up, {bench.threads} thread"
        f"{'' if bench.threads == 1 else 's'}; lines: 10th to 90th percentile. {bench.processor}.",
        body,
        height,
        Table(
            (
                "runtime", "version", "label", "file", "bytes", "init_ms", "median_ms", "p10_ms", "p90_ms", "runs",
                "ratio", "ratio_low", "ratio_high",
            ),
            [
                (
                    name, runtime.version, row.label, row.file, row.bytes, row.init_ms,
                    *((row.ms.median, row.ms.p10, row.ms.p90, row.ms.count) if row.ms else (None,) * 4),
                    *((row.ratio.value, row.ratio.low, row.ratio.high) if row.ratio else (None,) * 3),
                )
                for name, runtime, row in rows
            ],
        ),
    )  # fmt: skip


def _metrics(metrics: Mapping[str, Series]) -> Iterator[Figure]:
    """Accuracies in one chart, losses in another."""
    for name, title, label, percent in (
        ("accuracy", "Accuracy over time", "accuracy, %", True),
        ("loss", "Loss over time", "loss", False),
    ):
        chosen = {
            metric: series
            for metric, series in metrics.items()
            if len(series.steps) > 1 and (_is_share(metric, series) if percent else metric.endswith("loss"))
        }
        if not chosen:
            continue
        lines = [
            Line(one.steps, one.values, "total" if metric.startswith("val") else "early")
            for metric, one in chosen.items()
        ]
        body, height = line_chart(lines, "optimizer step", label, percent)
        ends = ", ".join(f"{metric} {series.values[-1]:.4g}" for metric, series in chosen.items())
        yield Figure(
            f"{name}_over_time",
            title,
            f"Thick: validation; thin: training. In the end {ends}.",
            body,
            height,
            Table(
                ("metric", "step", "value"),
                [
                    (metric, step, value)
                    for metric, one in chosen.items()
                    for step, value in zip(one.steps, one.values, strict=True)
                ],
            ),
        )


def _is_share(metric: str, series: Series) -> bool:
    return metric.split("_")[-1] in _SHARES and all(0 <= value <= 1 for value in series.values)


def _bytes(count: int) -> str:
    for size, unit in ((10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"
