"""Predict whether XNNPACK runs a .tflite file on its sparse path. Needs neither torch nor TensorFlow."""

from sparsetorch.xnnpack.targets import DEFAULT_TARGETS, TARGETS
from sparsetorch.xnnpack.verdict import Verdict, verify

__all__ = ["DEFAULT_TARGETS", "TARGETS", "Verdict", "verify"]
