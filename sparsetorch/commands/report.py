"""Write one HTML page about a run, or about a .tflite file: verdict, network, sparsity, sizes, latency, accuracy.

The page holds everything itself and needs no network: it can be mailed, or kept beside the model. Each figure can be downloaded
as SVG, and its numbers as CSV. Results in the run folder are found by themselves: the exported .tflite, and the JSON of
`verify --observe`, `bench` and `test`.

examples:
  sparsetorch report runs/digits/rigl_90 -o report.html
  sparsetorch report model.tflite -o report.html --results bench.json --results observed.json
  sparsetorch report runs/digits/rigl_90 --model digits.tflite -o report.html
  sparsetorch report model.tflite --json - | jq '.sizes'

exit codes: 0 written, whatever the verdict is; 1 neither a run folder nor a sound .tflite file; 2 usage
"""

import argparse
from pathlib import Path

from sparsetorch.files import check_writable, write_atomically, write_json
from sparsetorch.report.terminal import is_quiet, stages
from sparsetorch.xnnpack import DEFAULT_TARGETS, TARGETS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("source", metavar="RUN_DIR|FILE.tflite", type=Path, help="the folder of a run, or a model")
    parser.add_argument(
        "-o", "--output", metavar="REPORT.html", type=Path, help="the page; without it, only tables are shown"
    )
    parser.add_argument(
        "--model", metavar="FILE.tflite", type=Path, help="the exported file of the run, if it lies elsewhere"
    )
    parser.add_argument(
        "--results",
        metavar="FILE.json",
        type=Path,
        action="append",
        default=[],
        help="JSON of `verify --observe`, `bench` or `test`; may be repeated",
    )
    parser.add_argument(
        "--target",
        metavar="T",
        action="append",
        help=f"what the verdict is about; may be repeated (default: {' and '.join(DEFAULT_TARGETS)}): {', '.join(TARGETS)}",
    )


def run(args: argparse.Namespace) -> int:
    """Gather, and write what was asked for.

    Raises:
        BadInputError: something cannot be read or written.
        UsageError: an unknown target.
    """
    from sparsetorch.report.collect import collect

    if args.output is not None:
        check_writable(args.output)
    with stages(is_quiet(args)) as stage:
        contents = collect(args.source, args.model, args.results, args.target or DEFAULT_TARGETS, stage)
        if args.output is not None:
            from sparsetorch.report.page.render import render

            stage("page")
            write_atomically(args.output, render(contents).encode(errors="replace"))
    if args.json is not None:
        write_json(args.json, contents.to_dict())
    if not is_quiet(args):
        from sparsetorch.report.contents_table import print_contents

        print_contents(contents)
        if args.output is not None:
            print(f"{args.output}: {args.output.stat().st_size / 1e3:,.0f} kB, one file.")
    return 0
