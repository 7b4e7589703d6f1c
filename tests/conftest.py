"""Let tests import the helper modules that lie beside this file, such as `graphs`, and find the runtimes of `make test`."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("SPARSETORCH_RUNTIMES", str(Path(sys.prefix) / "runtimes"))


@pytest.fixture(scope="session")
def tensorflow_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of `tensorflow_files.EXPECTED`, made by TensorFlow's own sparse converter."""
    from tensorflow_files import convert

    folder = tmp_path_factory.mktemp("tensorflow")
    convert(folder)
    return folder
