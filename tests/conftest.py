"""Let tests import the helper modules that lie beside this file, such as `graphs`, and find the runtimes of `make test`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("SPARSETORCH_RUNTIMES", str(Path(sys.prefix) / "runtimes"))
