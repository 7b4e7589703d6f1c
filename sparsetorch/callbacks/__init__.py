"""Thin adapters between Lightning's loop and the rest of the package."""

from sparsetorch.callbacks.sparse_training import SparseTraining
from sparsetorch.callbacks.sparsity_monitor import SparsityMonitor

__all__ = ["SparseTraining", "SparsityMonitor"]
