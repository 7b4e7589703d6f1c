"""Show what a .tflite file or a checkpoint holds: sparsity, size and operators, layer by layer. Nothing is run.

examples:
  sparsetorch inspect model.tflite
  sparsetorch inspect runs/digits/rigl_90/checkpoints/last.ckpt
  sparsetorch inspect model.tflite --json - --quiet | jq '.layers[] | [.tensor, .sparsity, .bytes]'

exit codes: 0 shown; 1 no such file, or neither a sound .tflite file nor a checkpoint; 2 usage
"""

import argparse
from pathlib import Path
from typing import Any

from sparsetorch.errors import BadInputError
from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the command line."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a .tflite file, or a PyTorch checkpoint")


def run(args: argparse.Namespace) -> int:
    """Inspect one file."""
    found = inspect(args.file)
    if args.json is not None:
        write_json(args.json, found)
    if not is_quiet(args):
        from sparsetorch.report.inspect_table import print_contents

        print_contents(found)
    return 0


def inspect(path: Path) -> dict[str, Any]:
    """What a file holds, as plain values: `file`, `kind`, `size`, `operators`, `layers`, `totals`.

    Raises:
        BadInputError: missing, or neither a .tflite file nor a checkpoint.
    """
    if _is_checkpoint(path):
        from sparsetorch.report.checkpoint_contents import checkpoint_contents

        return checkpoint_contents(path)
    from sparsetorch.report.file_contents import file_contents

    return file_contents(path)


def _is_checkpoint(path: Path) -> bool:
    """A zip archive, as torch writes it, or its older pickle. Everything else is answered by the reader of .tflite files."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except FileNotFoundError:
        raise BadInputError(f"{path} does not exist; give a .tflite file or a checkpoint.") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror}.") from None
    if start[4:8] == b"TFL3":
        return False
    return start[:2] in (b"PK", b"\x80\x02") or path.suffix in (".ckpt", ".pt", ".pth")
