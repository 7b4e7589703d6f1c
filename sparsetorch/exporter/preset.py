"""Export presets: YAML files that say what to write for one target, read by `sparsetorch export --preset`."""

import dataclasses
import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparsetorch.errors import BadInputError
from sparsetorch.tflite.storage import VALUES
from sparsetorch.xnnpack import DEFAULT_TARGETS, TARGETS


@dataclass(frozen=True)
class Preset:
    """What to write."""

    values: str = "float32"
    """What weights are stored as: float32, float16, int8."""
    dense_values: str | None = None
    """The same for weights that stay dense; None: as `values`."""
    clusters: int | None = None
    """Most distinct non-zero values of a weight; None: as many as there are."""
    split: bool = False
    """Large fully-connected layers in parts whose indices fit into a byte."""
    encode: bool = True
    """Leave zeros out, where that is safe."""
    dense_twin: bool = False
    """Also write the same weights as float32, dense: NAME.dense.tflite."""
    quantize: str | None = None
    """Also write a quantized dense file, NAME.int8.tflite: full-int8 (calibrated on the checkpoint's data) or dynamic-int8."""
    targets: tuple[str, ...] = DEFAULT_TARGETS
    """What the verdict is about."""


def load_preset(path: Path) -> Preset:
    """Read a preset.

    Raises:
        BadInputError: no such file, no YAML, or a key or value that is not known, with the near ones.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"--preset: {path} cannot be read ({error}); presets are in export/") from error
    except yaml.YAMLError as error:
        raise BadInputError(f"--preset: {path} is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise BadInputError(f"--preset: {path}: needed keys such as `values: float16`")
    known = [field.name for field in dataclasses.fields(Preset)]
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise BadInputError(f"--preset: {path}: unknown key {key!r}{hint}")
    choices: dict[str, tuple[Any, ...]] = {
        "values": VALUES,
        "dense_values": (None, *VALUES),
        "split": (True, False),
        "encode": (True, False),
        "dense_twin": (True, False),
        "quantize": (None, "full-int8", "dynamic-int8"),
    }
    for key, allowed in choices.items():
        if key in content and content[key] not in allowed:
            raise BadInputError(
                f"--preset: {path}: {key}: found {content[key]!r}, needed one of {', '.join(map(str, allowed))}"
            )
    targets = content.get("targets", DEFAULT_TARGETS)
    if not isinstance(targets, list | tuple) or not targets or any(target not in TARGETS for target in targets):
        raise BadInputError(f"--preset: {path}: targets: found {targets!r}, needed a list of {', '.join(TARGETS)}")
    return Preset(**{**content, "targets": tuple(targets)})
