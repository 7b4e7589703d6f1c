"""All repairs and the encoder on 240 random graphs: the same numbers, on this machine, as before."""

from collections import Counter

from random_graphs import random_model
from tflite_run import difference

from sparsetorch.tflite import encode, from_bytes, to_bytes
from sparsetorch.tflite.passes import repair

GRAPHS = 240
TOLERANCE = 1e-4


def test_repaired_and_encoded_graphs_compute_what_they_did() -> None:
    seen: Counter[str] = Counter()
    for seed in range(GRAPHS):
        model = random_model(seed)
        after = model.copy()
        notes = repair(after)
        seen.update({note.repair for note in notes if note.applied})
        assert not [note for note in repair(after) if note.applied], f"seed {seed}: no fixed point"
        encoded = encode(after)
        seen.update(["encoded"] if any(tensor.encoding == "sparse" for tensor in encoded) else [])
        # Through the bytes, as the file goes out.
        assert difference(model, from_bytes(to_bytes(after), "written"), seeds=(seed,)) <= TOLERANCE, f"seed {seed}"
    rare = [name for name, count in seen.items() if count < 8]
    assert not rare, seen  # every repair was at work
    assert len(seen) >= 11, seen
