"""Records nested as deep as orjson reads, deeper than orjson writes and than Python lets others go."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import orjson

# Levels of nesting that orjson reads.
DEEPEST = 1024
T = TypeVar("T")


def encode(record: Mapping[str, Any]) -> bytes:
    """JSON of a record that orjson has read."""
    try:
        return orjson.dumps(record)
    except TypeError:
        with _deep():
            return msgspec.json.encode(record)


def decode(decoder: Callable[[bytes], T], line: bytes) -> T:
    """What a decoder of msgspec makes of a line. Raises RecursionError if it is nested far deeper than orjson reads."""
    try:
        return decoder(line)
    except RecursionError:
        with _deep():
            return decoder(line)


@contextmanager
def _deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
