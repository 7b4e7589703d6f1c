"""A configuration error in one sentence: which key, what is wrong with it, and what was probably meant.

jsonargparse reports a mistake deep in a recipe as a tree: every union on the way there, every type tried, and the whole
value again. The innermost cause and the path to it are what a user needs.
"""

import difflib
import importlib
import inspect
import re

_NOISE = ("Subtypes:", "Errors:", "Given value", "Does not validate against", "- Expected a <class 'NoneType'>")


def explain(message: str, known: list[str]) -> str:
    """One line from a jsonargparse message.

    Args:
        message: the text of the error.
        known: every option of the command, to suggest the nearest for one that is unknown.
    """
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_NOISE)]
    text = " ".join(lines)
    path = ".".join(re.findall(r'Parser key "([^"]+)"', text))
    classes = re.findall(r"given class_path '([^']+)'", text)
    cause = re.split(r"""Parser key "[^"]+":|given class_path '[^']+':""", text)[-1].strip(" -") or text
    unknown = re.search(r"[Oo]ption '([^']+)'|[Kk]ey '([^']+)'|unrecognized arguments: --([\w.]+)", cause)
    where = f"{path}: " if path and path not in cause else ""
    hint = _suggestion(next(filter(None, unknown.groups())), known, classes) if unknown else ""
    return f"{where}{cause.rstrip('.')}.{hint}"


def _suggestion(name: str, known: list[str], classes: list[str]) -> str:
    """What `name` was probably meant to be, or what there is."""
    accepted = _parameters(classes[-1]) if classes else []
    for wrong in (name, name.partition(".")[0]):
        near = difflib.get_close_matches(wrong, [*accepted, *known], n=1, cutoff=0.7)
        if near:
            return f" Did you mean {near[0]}?"
    return f" Accepted here: {', '.join(accepted)}." if accepted else ""


def _parameters(class_path: str) -> list[str]:
    """The parameters of a class's constructor."""
    try:
        module, _, name = class_path.rpartition(".")
        return list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)
    except (ImportError, AttributeError, ValueError, TypeError):
        return []
