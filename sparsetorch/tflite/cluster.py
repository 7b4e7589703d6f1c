"""Weight clustering: every non-zero weight of a layer becomes one of a few values, so that the file compresses.

Non-uniform quantization by k-means on a line (Han, Mao & Dally 2015, "Deep Compression", arXiv 1510.00149; their linear start,
centroids evenly over the range, which keeps the few large weights that matter). Zeros stay zeros and no weight becomes one.
TFLite has no codebook, so the values are written out; gzip, or an app store's own compression, finds them again.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from sparsetorch.errors import BadInputError

Array = npt.NDArray[Any]

_MOST_ROUNDS = 50


def cluster(weight: Array, clusters: int) -> Array:
    """The weight with each non-zero value replaced by the mean of its cluster.

    Args:
        weight: float32, any shape.
        clusters: most distinct non-zero values, at least 2.

    Raises:
        BadInputError: fewer than 2 clusters, or a weight that is not finite.
    """
    if isinstance(clusters, bool) or clusters < 2:
        raise BadInputError(f"clusters: found {clusters!r}, needed at least 2")
    if not np.isfinite(weight).all():
        raise BadInputError("a weight that is not finite cannot be clustered; find out where it comes from")
    values = np.sort(weight[weight != 0].astype(np.float64))
    if np.unique(values).size <= clusters:
        return weight
    centers = np.linspace(values[0], values[-1], clusters)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    for _ in range(_MOST_ROUNDS):
        # Sorted values: a cluster is a slice, and its mean a difference of prefix sums.
        edges = np.searchsorted(values, (centers[1:] + centers[:-1]) / 2)
        bounds = np.concatenate([[0], edges, [values.size]])
        counts = np.diff(bounds)
        means = np.where(counts > 0, np.diff(sums[bounds]) / np.maximum(counts, 1), centers)
        if np.array_equal(means, centers):
            break
        centers = means
    used = centers[counts > 0].astype(np.float32)
    used = used[used != 0] if (used != 0).any() else used
    nearest = np.searchsorted((used[1:] + used[:-1]) / 2, weight[weight != 0])
    clustered = weight.copy()
    clustered[weight != 0] = used[nearest]
    return clustered
