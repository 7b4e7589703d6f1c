"""Let tests import the helper modules that lie beside this file, such as `graphs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
