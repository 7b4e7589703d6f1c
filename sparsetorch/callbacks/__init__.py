"""Thin adapters between Lightning's loop and the rest of the package."""

from sparsetorch.callbacks.sparse_training import SparseTraining

__all__ = ["SparseTraining"]
