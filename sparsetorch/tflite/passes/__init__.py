"""Repairs: rewrites of a TFLite graph into an equal one that XNNPACK's sparse path accepts. One file each."""

from sparsetorch.tflite.passes.contract import Note, Outcome, Pass
from sparsetorch.tflite.passes.pipeline import PASSES, repair

__all__ = ["PASSES", "Note", "Outcome", "Pass", "repair"]
