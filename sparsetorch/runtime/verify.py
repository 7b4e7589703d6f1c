"""`sparsetorch.verify`: the static verdict, and what was observed beside it, never mixed."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sparsetorch.errors import UsageError
from sparsetorch.tflite.model import Model
from sparsetorch.xnnpack import DEFAULT_TARGETS, Verdict
from sparsetorch.xnnpack import verify as predict


def verify(
    path_or_model: str | Path | Model, targets: Iterable[str] = DEFAULT_TARGETS, observe: Sequence[str] = ()
) -> Verdict:
    """Predict whether XNNPACK takes its sparse path for a model, and look at real runtimes.

    Args:
        path_or_model: a .tflite file, or, without `observe`, a model in memory. It is not changed.
        targets: names out of `sparsetorch.xnnpack.TARGETS`.
        observe: runtimes to run the file in, names out of `sparsetorch.runtime.observe.RUNTIMES`; see `Verdict.observed`.

    Raises:
        BadInputError: the file cannot be read, contradicts itself, or does not run on this computer.
        CannotObserveError: a runtime is missing; the message says what installs it.
        UsageError: an unknown target or runtime, or a model in memory to be observed.
    """
    verdict = predict(path_or_model, targets)
    if not observe:
        return verdict
    if isinstance(path_or_model, Model):
        raise UsageError("observe: found a model in memory, needed the path of its file")
    from sparsetorch.runtime import observe as observer

    return replace(verdict, observed=observer.observe(path_or_model, observe))
