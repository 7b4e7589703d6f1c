"""Install the runtimes that models are proven and timed in, and list what is there.

`list` says of every runtime whether it can be used now, in which versions, and if not, what is missing and the one command that
installs it. `install` is the only command of this package that downloads anything: versions are fixed, npm packages by
integrity hashes. Runtimes lie in ~/.cache/sparsetorch/runtimes, or where the environment variable SPARSETORCH_RUNTIMES says; all
of it may be deleted at any time.

examples:
  sparsetorch runtime list
  sparsetorch runtime install wasm
  sparsetorch runtime install wasm emulated chromium

exit codes: 0 done; 1 the installation failed; 2 usage; 5 something it builds on (Node.js, qemu) is missing
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sparsetorch.errors import UsageError
from sparsetorch.files import write_json
from sparsetorch.report.terminal import is_quiet, make_console, stages
from sparsetorch.runtime.cache import runtimes_folder
from sparsetorch.runtime.catalogue import ENTRIES, INSTALLABLE, State, state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument("action", choices=("list", "install"), help="what to do")
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"what to install: {', '.join(INSTALLABLE)}")


def run(args: argparse.Namespace) -> int:
    """List or install; see the module's description."""
    if args.action == "list":
        if args.names:
            raise UsageError(f"list takes no names: found {' '.join(args.names)}")
        return _tell([state(entry) for entry in ENTRIES.values()], args)
    unknown = [name for name in args.names if name not in INSTALLABLE]
    if unknown or not args.names:
        found = f"found {', '.join(unknown)}" if unknown else "no name"
        raise UsageError(f"install: {found}, needed one or more of {', '.join(INSTALLABLE)}")
    return _tell([_install(name, args) for name in dict.fromkeys(args.names)], args)


def _install(name: str, args: argparse.Namespace) -> State:

    entry = ENTRIES[name]
    with stages(is_quiet(args)) as stage:
        stage(f"installing {name}")
        if entry.install is not None:
            place, new = entry.install()
            stage(f"{name}: {'installed in' if new else 'was there already:'} {place}")
    return state(entry)


def _tell(states: Sequence[State], args: argparse.Namespace) -> int:
    if args.json:
        fields: dict[str, Any] = {one.name: asdict(one) for one in states}
        write_json(args.json, {"folder": str(runtimes_folder()), "runtimes": fields})
    if not is_quiet(args):
        _print(states)
    return 0


def _print(states: Sequence[State]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    console = make_console(soft_wrap=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("runtime", "", "what it shows", "versions, or what is missing"):
        table.add_column(heading, overflow="fold")
    for one in states:
        told = ", ".join(f"{part} {number}" for part, number in one.parts.items()) if one.ready else one.missing or ""
        table.add_row(one.name, "[green]ready[/]" if one.ready else "[yellow]missing[/]", one.shows, escape(told))
    console.print(table)
    console.print(f"Folder: {escape(str(runtimes_folder()))}", soft_wrap=True)
