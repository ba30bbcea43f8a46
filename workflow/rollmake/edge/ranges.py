"""Byte ranges of files, copied in an order that is not the files' own."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from rollmake.core.errors import DataError

PIECE = 4 << 20
ROWS = 1 << 16
# read(source, offset, length): that many bytes of a source, fewer only at its end.
Read = Callable[[int, int, int], bytes]


def copy_lines(read: Read, source: np.ndarray, offset: np.ndarray, length: np.ndarray, target: IO[bytes]) -> None:
    """Write the given ranges to `target`, each with a newline behind it.

    `source`, `offset` and `length` are whole numbers, one a line: which source, where its line starts and how many
    bytes it has without its newline. Lines that follow each other in a source, one byte apart, are copied at once.
    """
    for begin in range(0, len(source), ROWS):
        some = slice(begin, begin + ROWS)
        for runs, size in _portions(*_runs(source[some], offset[some], length[some])):
            _copy(read, runs, size, target)


def _copy(read: Read, runs: list[list[int]], size: int, target: IO[bytes]) -> None:
    """Write runs of lines, (source, offset, length) each and `size` bytes in all; a long one goes in pieces."""
    if size <= PIECE:
        whole = b"\n".join([read(source, offset, length) for source, offset, length in runs])
        if len(whole) == size + len(runs) - 1:
            target.writelines([whole, b"\n"])
            return
    for run in runs:
        target.writelines([*pieces(read, *run), b"\n"])


def pieces(read: Read, source: int, offset: int, length: int) -> Iterator[bytes]:
    """One range, in pieces of a few megabytes. Raises DataError if the file ends before it."""
    end = offset + length
    while offset < end:
        piece = read(source, offset, min(PIECE, end - offset))
        if not piece:
            raise DataError(f"a file became shorter while it was read: no byte {offset}", remedy="Run the stage again.")
        yield piece
        offset += len(piece)


def same_bytes(read: Read, length: int, first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Whether two ranges of `length` bytes, given as (source, offset), hold the same bytes."""
    for start in range(0, length, PIECE):
        size = min(PIECE, length - start)
        if read(first[0], first[1] + start, size) != read(second[0], second[1] + start, size):
            return False
    return True


def reader(*files: IO[bytes]) -> Read:
    """Reads from open files, which are the sources in the order given."""
    descriptors = [file.fileno() for file in files]
    return lambda source, offset, length: os.pread(descriptors[source], length, offset)


class Windows:
    """Reads from many files, each from front to back, with one of them open at a time and a bounded buffer for all."""

    def __init__(self, paths: Sequence[Path], budget: int = 64 << 20) -> None:
        """`budget` is in bytes; a file gets its share of it, but no less than 64 KiB."""
        self._paths = paths
        self._size = min(PIECE, max(1 << 16, budget // max(1, len(paths))))
        self._held: dict[int, tuple[int, bytes]] = {}

    def read(self, source: int, offset: int, length: int) -> bytes:
        """That many bytes of a file, fewer only at its end."""
        start, held = self._held.get(source, (0, b""))
        if not start <= offset <= offset + length <= start + len(held):
            start, held = offset, self._load(source, offset, max(length, self._size))
            self._held[source] = (start, held if length < self._size else b"")
        return held[offset - start : offset - start + length]

    def _load(self, source: int, offset: int, length: int) -> bytes:
        with self._paths[source].open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, offset)


def _runs(source: np.ndarray, offset: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, ...]:
    """Lines that stand together, as source, offset and length of each such run."""
    end = offset + length
    apart = np.flatnonzero((source[1:] != source[:-1]) | (offset[1:] != end[:-1] + 1)) + 1
    first, last = np.concatenate([[0], apart]), np.concatenate([apart, [len(source)]]) - 1
    return source[first], offset[first], end[last] - offset[first]


def _portions(source: np.ndarray, offset: np.ndarray, length: np.ndarray) -> Iterator[tuple[list[list[int]], int]]:
    """Runs, (source, offset, length) each, with their bytes: no more than a piece, unless a single one has more."""
    runs, ends, begin, before = np.column_stack([source, offset, length]).tolist(), np.cumsum(length), 0, 0
    while begin < len(runs):
        stop = max(begin + 1, int(np.searchsorted(ends, before + PIECE, side="right")))
        behind = int(ends[stop - 1])
        yield runs[begin:stop], behind - before
        begin, before = stop, behind
