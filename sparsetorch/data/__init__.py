"""LightningDataModules."""

from sparsetorch.data.digits import Digits

__all__ = ["Digits"]
