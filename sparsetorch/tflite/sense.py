"""A sound flatbuffer may hold a senseless model: options of another operator, operands that are missing."""

import contextlib
import struct
from collections.abc import Iterator

from sparsetorch.errors import BadInputError, SparsetorchError


@contextlib.contextmanager
def expect_sense(source: object) -> Iterator[None]:
    """Around whatever interprets a model that came from outside: one message that names the file.

    Args:
        source: what to call the model in the message.

    Raises:
        BadInputError: for what a senseless model leads to; errors of this package that are none of these pass as they are.
    """
    try:
        yield
    except BadInputError as error:
        raise error if str(source) in str(error) else BadInputError(f"{source} contradicts itself: {error}") from error
    except SparsetorchError:
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError, struct.error) as error:
        raise BadInputError(
            f"{source} contradicts itself ({type(error).__name__}: {error}). Convert it again."
        ) from error
