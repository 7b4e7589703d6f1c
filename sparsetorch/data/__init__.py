"""LightningDataModules."""

from sparsetorch.data.digits import Digits
from sparsetorch.data.fashion_mnist import FashionMNIST
from sparsetorch.data.torchvision_sets import CIFAR10, ImageNet

__all__ = ["CIFAR10", "Digits", "FashionMNIST", "ImageNet"]
