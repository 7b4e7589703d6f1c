"""What the commands of the whole road leave behind; made once a session by export/conftest.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Road:
    """What the commands left."""

    run_dir: Path
    checkpoint: Path
    model: Path
    dense_twin: Path
    fit: dict[str, Any]
    export: dict[str, Any]
