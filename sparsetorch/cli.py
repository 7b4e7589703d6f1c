"""The one entry point, `sparsetorch COMMAND ...`.

A command is a module of `sparsetorch.commands` with `add_arguments(parser)` and `run(args) -> int`. It is imported only
when asked for, so that `--help` and `verify` never pay for torch or TensorFlow. Every error a user can cause becomes one
message on standard error and an exit code of the contract in `sparsetorch.errors`; `--debug` shows the traceback.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from sparsetorch.errors import SparsetorchError

COMMANDS = {
    "fit": "train from a recipe",
    "validate": "evaluate a checkpoint on the validation split",
    "test": "evaluate a checkpoint on the test split",
    "predict": "predict with a checkpoint",
    "check": "say before training whether the trained network will take the sparse path, and how large its file will be",
    "export": "convert a checkpoint or a model to a sparse-encoded .tflite, checked against PyTorch",
    "sensitivity": "measure accuracy against sparsity, layer by layer, and recommend sparsities for a budget",
    "encode": "leave the zeros of any .tflite's weights out, whoever made it",
    "quantize": "quantize a float .tflite after training, with calibration and accuracy before and after",
    "inspect": "show sparsity, sizes and operators of a .tflite or a checkpoint, layer by layer",
    "verify": "say whether XNNPACK takes its sparse path for a .tflite, and if not, why; and look, in real runtimes",
    "bench": "time .tflite files against each other in real runtimes",
    "serve": "serve a page on which .tflite files run in a browser, dense and sparse side by side",
    "report": "write one HTML page about a run or a .tflite: verdict, network, sparsity, sizes, latency, accuracy",
    "costs": "measure what each 1x1 convolution of a network costs, dense and sparse, for the distribution LatencyAware",
    "runtime": "install the runtimes that models are proven and timed in, and list what is there",
}
_LIGHTNING = ("fit", "validate", "test", "predict")

_EXAMPLES = """examples:
  sparsetorch fit --config recipes/digits/rigl_90.yaml
  sparsetorch check --config recipes/digits/rigl_90.yaml
  sparsetorch export --checkpoint runs/digits/rigl_90/checkpoints/last.ckpt -o model.tflite --dense-twin
  sparsetorch verify model.tflite --target arm64 --target wasm

exit codes: 0 yes; 1 bad input or failure; 2 usage; 3 not eligible, or a goal missed;
            4 observed otherwise than predicted, or wrong numbers; 5 cannot be observed here
`sparsetorch COMMAND --help` explains a command."""


def _version() -> str:
    from importlib.metadata import version

    return version("sparsetorch")


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return (
        "usage: sparsetorch COMMAND [arguments]\n\n"
        "Train sparse CNNs, export them to TFLite, and know that XNNPACK runs them on its sparse path.\n\n"
        f"commands:\n{commands}\n\n{_EXAMPLES}\n"
    )


def _fail(command: str, message: str, code: int) -> int:
    print(f"sparsetorch {command}: error: {message}".replace("  ", " ").strip(), file=sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; never lets an exception of the package escape.

    Args:
        argv: the words after `sparsetorch`; None takes them from the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="")
        return 0 if words else 2
    if words[0] == "--version":
        print(f"sparsetorch {_version()}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        return _fail("", f"unknown command {name!r}. Commands: {', '.join(COMMANDS)}.", 2)
    if argv is None and name not in _LIGHTNING:  # Lightning has its own answer
        # Ended by `kill` or a job scheduler: as after ctrl-C, temporary files go, and processes that were started end.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    debug = "--debug" in rest
    rest = [word for word in rest if word != "--debug"]
    try:
        return _run(name, rest)
    except SparsetorchError as error:
        if debug:
            raise
        return _fail(name, str(error), error.exit_code)
    except SystemExit as stop:  # argparse and jsonargparse end a usage error or --help this way
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        return _fail(name, "interrupted.", 130)
    except BrokenPipeError:  # the reader of a pipe went away (`| head`): no more output, and no complaint at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return _fail(name, f"{type(error).__name__}: {first} (run again with --debug for the traceback)", 1)


def _run(name: str, words: list[str]) -> int:
    if name in _LIGHTNING:
        module = importlib.import_module("sparsetorch.commands.train")
        return int(module.run(name, words))
    module = importlib.import_module(f"sparsetorch.commands.{name}")
    parser = argparse.ArgumentParser(
        prog=f"sparsetorch {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON to FILE, or to standard output for -")
    parser.add_argument("--quiet", action="store_true", help="print no table and no progress")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return int(module.run(parser.parse_args(words)))


if __name__ == "__main__":
    raise SystemExit(main())
