"""Weight clustering: by hand, few values, no zero lost or made, and a smaller compressed file that computes what it says."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from graphs import classifier
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tflite_run import difference

import sparsetorch
from sparsetorch.errors import BadInputError
from sparsetorch.tflite import Storage, decode, encode, save, to_bytes
from sparsetorch.tflite.cluster import cluster


def test_by_hand() -> None:
    """Centers start at 1 and 10; 1, 2, 3 are nearer to the first and move it to their mean, 9 and 10 to 9.5."""
    weight = np.array([[1, 2, 0], [3, 9, 10]], np.float32)
    assert cluster(weight, 2).tolist() == [[2, 2, 0], [2, 9.5, 9.5]]


@settings(max_examples=200, deadline=None)
@given(
    arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-4, 4, width=32)),
    st.integers(2, 40),
)
def test_few_values_and_the_same_zeros(weight: np.ndarray, clusters: int) -> None:
    found = cluster(weight, clusters)
    assert np.unique(found[found != 0]).size <= clusters
    assert np.array_equal(found == 0, weight == 0)
    if weight.any():
        assert found.min() >= weight.min()
        assert found.max() <= weight.max()


def test_as_many_values_as_clusters_stay_as_they_are() -> None:
    weight = np.array([0, -1, 0.5, 3], np.float32)
    assert np.array_equal(cluster(weight, 3), weight)


def test_more_clusters_are_nearer() -> None:
    weight = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    errors = [float(np.abs(cluster(weight, k) - weight).mean()) for k in (4, 16, 64, 256)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.02


def test_a_clustered_file_compresses_and_computes_what_its_weights_say(tmp_path: Path) -> None:
    sizes = {}
    for clusters in (None, 32):
        model = classifier(size=32)
        encode(model, storage=Storage(clusters=clusters))
        assert difference(decode(model), model) <= 1e-5
        sizes[clusters] = len(gzip.compress(to_bytes(model), 9))
    assert sizes[32] < 0.5 * sizes[None]
    save(classifier(), tmp_path / "in.tflite")
    report = sparsetorch.encode(
        tmp_path / "in.tflite", tmp_path / "out.tflite", storage=Storage("float32", clusters=32)
    )
    assert report.verdict.eligible
    assert 0 < max(report.model.errors) < 0.3


@pytest.mark.parametrize("clusters", [1, 0, True])
def test_too_few_are_refused(clusters: int) -> None:
    with pytest.raises(BadInputError, match="clusters: found"):
        Storage(clusters=clusters)
