"""Small files of every kind that a runtime is shown."""

from pathlib import Path

import pytest
from graphs import OP, classifier

from sparsetorch.tflite import Storage, encode, save


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`good` in three precisions, its `dense` twin, `unsafe`, not eligible (`same_stem`), `old_breaks`, and `unloadable`."""
    folder = tmp_path_factory.mktemp("observed")
    made = {
        "good": classifier(),
        "float16": classifier(),
        "int8": classifier(),
        "dense": classifier(),
        "unsafe": classifier(same=True),
        "same_stem": classifier(stem_same=True),
        "old_breaks": classifier(middle=lambda net, x: net.unary(OP.TANH, x)),
        "unloadable": classifier(),
    }
    for name, model in made.items():
        if name != "dense":
            encode(model, storage=Storage(name) if name in ("float16", "int8") else None)
        if name == "unloadable":
            model.graphs[0].operators[0].code = OP.HASHTABLE_LOOKUP
        save(model, folder / f"{name}.tflite")
    return {name: folder / f"{name}.tflite" for name in made}
