"""Serve a page on which .tflite files run in a browser, dense and sparse side by side. For this machine alone: 127.0.0.1.

Open the printed address, drop files, press Run: load time, latency and its ratio, and the largest difference of the outputs.
Needs LiteRT.js, which `sparsetorch runtime install wasm` brings. Ends with Ctrl-C.

examples:
  sparsetorch serve
  sparsetorch serve model.tflite                  # model.dense.tflite comes along
  sparsetorch serve a.tflite b.tflite --port 8080

exit codes: 0 stopped; 1 a file or the port cannot be used; 2 usage; 5 LiteRT.js is not installed
"""

import argparse
import contextlib
from pathlib import Path

from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("files", metavar="FILE.tflite", nargs="*", type=Path, help="what the page begins with")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted.

    Raises:
        BadInputError: a file or the port cannot be used.
        CannotObserveError: LiteRT.js is not installed.
    """
    from sparsetorch.latency.variants import dense_twin
    from sparsetorch.web.server import ADDRESS, Site, make_server

    twins = [twin for file in args.files if (twin := dense_twin(file)) is not None]
    site = Site.of(list({path.resolve(): path for path in [*twins, *args.files]}.values()))
    with make_server(site, args.port) as server:
        address = f"http://{ADDRESS}:{server.server_port}/"
        if args.json is not None:
            write_json(args.json, {"address": address, "models": list(site.models)})
        if not is_quiet(args):
            print(f"{address}  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0
