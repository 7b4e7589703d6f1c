"""The errors a user can see: each carries the exit code of the command-line contract.

0 yes; 1 bad input or failure; 2 usage; 3 not eligible, or a goal missed; 4 observed otherwise than predicted, or wrong
numbers; 5 cannot be observed here. A message says what was found, what is needed, and what to do about it.
"""

from typing import ClassVar


class SparsetorchError(Exception):
    """Base of every error that ends a command with one message and no traceback."""

    exit_code: ClassVar[int] = 1


class BadInputError(SparsetorchError, ValueError):
    """A file, a configuration or an argument that cannot be used as it is."""

    exit_code = 1


class RepairError(BadInputError):
    """A rewrite of a TFLite graph failed, or would have left it broken."""


class UsageError(SparsetorchError):
    """The command line itself is wrong: an unknown command, a missing argument."""

    exit_code = 2


class NotEligibleError(SparsetorchError):
    """The model cannot take the sparse path, or a stated goal (a sparsity, a size) was missed."""

    exit_code = 3


class WrongNumbersError(SparsetorchError):
    """Two runtimes that must agree do not."""

    exit_code = 4


class CannotObserveError(SparsetorchError):
    """This machine has no runtime that could answer the question."""

    exit_code = 5
