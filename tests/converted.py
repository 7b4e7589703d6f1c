"""In place of the exporter's converter process: graphs that were converted before, so that tests share one conversion."""

from collections.abc import Callable
from pathlib import Path


class AlreadyConverted:
    """Use as `monkeypatch.setattr(pipeline, "Converter", AlreadyConverted(content))`.

    Args:
        content: the converted .tflite, or a function that gives it when it is asked for.
    """

    def __init__(self, content: bytes | Callable[[], bytes]) -> None:
        self._content = content

    def __call__(self) -> "AlreadyConverted":
        return self

    def __enter__(self) -> "AlreadyConverted":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def convert(self, source: Path) -> list[bytes]:
        return [self._content if isinstance(self._content, bytes) else self._content()]
