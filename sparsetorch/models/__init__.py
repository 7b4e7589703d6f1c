"""LightningModules, one per task, and small networks for them."""

from sparsetorch.models.cifar_resnet import CifarResNet
from sparsetorch.models.classification import ImageClassifier
from sparsetorch.models.lenet import LeNet300100
from sparsetorch.models.mobilenet_v1 import MobileNetV1
from sparsetorch.models.warmup import WarmupCosine

__all__ = ["CifarResNet", "ImageClassifier", "LeNet300100", "MobileNetV1", "WarmupCosine"]
