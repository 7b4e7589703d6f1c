"""Time .tflite files against each other in real runtimes, and say what was measured, with what chance could have done to it.

Files take turns after a warm-up, in one process a runtime: in its turn a file runs twice, and the second run counts; loading
is apart. `X.dense.tflite`, as `export --dense-twin` writes it, is what X.tflite is compared with. A ratio is of medians,
with its 95 % confidence interval; one that holds 1 says "no difference measured". On x86 with AVX, XNNPACK has no sparse
path: the host then shows what a laptop does, and WebAssembly (`wasm`: Node.js, `chromium`: a browser) or a phone (`android`)
what sparsity gains.

examples:
  sparsetorch bench model.tflite
  sparsetorch bench model.tflite --all-precisions --runtime wasm --runtime chromium --plot latency.svg
  sparsetorch bench a.tflite b.tflite --reference a.tflite --runs 200 --json bench.json
  sparsetorch report model.tflite --results bench.json -o report.html

exit codes: 0 measured; 1 bad input, or a file that does not run; 2 usage; 5 no runtime that was asked for is there, or sparse
            files were measured only where there is no sparse path
"""

import argparse
import sys
from pathlib import Path

from sparsetorch.files import check_writable, write_atomically, write_json
from sparsetorch.report.terminal import is_quiet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    from sparsetorch.latency.bench import DEFAULT_RUNTIMES, RUNTIMES

    parser.add_argument("files", metavar="FILE.tflite", nargs="+", type=Path, help="what to time")
    parser.add_argument(
        "--runtime",
        action="append",
        metavar="R",
        help=f"where: {', '.join(RUNTIMES)}; may be repeated (default: {' and '.join(DEFAULT_RUNTIMES)})",
    )
    parser.add_argument("--runs", type=int, default=60, help="timed runs of each file (default: 60)")
    parser.add_argument("--warmup", type=int, default=5, help="runs before those (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the runtime (default: 1)")
    parser.add_argument(
        "--reference",
        metavar="FILE.tflite",
        type=Path,
        help="what others are compared with (default: the dense twin, or the first)",
    )
    parser.add_argument(
        "--all-precisions",
        action="store_true",
        help="time the network of one file as dense float32, sparse float32, float16 and int8-stored, and dense integer int8",
    )
    parser.add_argument("--plot", metavar="FILE.svg", type=Path, help="write bars with error bars")


def run(args: argparse.Namespace) -> int:
    """Measure and tell.

    Raises:
        BadInputError: a file that cannot be read or does not run.
        UsageError: an unknown runtime, or a number that makes no sense.
    """
    from sparsetorch.latency.bench import DEFAULT_RUNTIMES, bench, check_ran, nothing_observed
    from sparsetorch.report.bench_table import bench_progress, print_bench

    if args.plot is not None:
        check_writable(args.plot)
    with bench_progress(is_quiet(args), args.runs) as progress:
        result = bench(
            args.files,
            args.runtime or DEFAULT_RUNTIMES,
            runs=args.runs,
            warmup=args.warmup,
            threads=args.threads,
            reference=args.reference,
            all_precisions=args.all_precisions,
            progress=progress,
        )
    if args.json is not None:
        write_json(args.json, result.to_dict())
    if args.plot is not None:
        from sparsetorch.report.page.figures import latency_figure

        write_atomically(args.plot, latency_figure(result).standalone().encode(errors="replace"))
    if not is_quiet(args):
        print_bench(result)
    check_ran(result)
    why = nothing_observed(result)
    if why is not None:
        print(f"sparsetorch bench: {why}", file=sys.stderr)
    return 0 if why is None else 5
