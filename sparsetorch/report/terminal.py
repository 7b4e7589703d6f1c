"""What all commands share of the terminal: whether to write at all, how wide, and stages while they work."""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 160


def is_quiet(args: argparse.Namespace) -> bool:
    """Whether a command prints nothing but its JSON."""
    return bool(args.quiet) or args.json == "-"


def make_console(soft_wrap: bool = True, width: int = _WIDTH) -> "Console":
    """Standard output. A pipe or a log has no width of its own to keep, and gets `width` columns."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=soft_wrap)
    if not console.is_terminal:
        console.width = max(console.width, width)
    return console


@contextlib.contextmanager
def stages(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner with the name of the stage at hand on a terminal, a line per stage elsewhere; on standard error."""
    if quiet:
        yield lambda stage: None
        return
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    started = time.monotonic()
    if not console.is_terminal:
        yield lambda stage: console.print(f"{time.monotonic() - started:5.1f} s  {stage}")
        return
    with console.status("") as status:
        yield lambda stage: status.update(f"{stage} ...")
