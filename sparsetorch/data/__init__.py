"""LightningDataModules."""

from sparsetorch.data.digits import Digits
from sparsetorch.data.fashion_mnist import FashionMNIST

__all__ = ["Digits", "FashionMNIST"]
