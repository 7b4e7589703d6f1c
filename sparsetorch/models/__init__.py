"""LightningModules, one per task."""

from sparsetorch.models.classification import ImageClassifier

__all__ = ["ImageClassifier"]
