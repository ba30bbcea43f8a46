"""The journal of a shard: what was collected so far, on disk, whatever happens to the job.

A folder with `rollouts.jsonl` and `rollouts_failures.jsonl`, which are only ever appended to, one `write` a line;
`torn.bin` with what a killed write left behind; `jobs.jsonl` with one line per job that wrote here; `progress.json`.
It is no declared output of any rule, so Snakemake never deletes it. The lock lies beside it: `{shard}.lock`.
"""

import errno
import logging
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from rollmake.core.contract import failures_path
from rollmake.core.errors import OwedError
from rollmake.core.outcome import Destination
from rollmake.core.tail import split_tail
from rollmake.edge.files import break_link, publish, sync_file, sync_folder

log = logging.getLogger(__name__)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
BLOCK = 1 << 20


class DiskFullError(Exception):
    """A line did not fit on the disk; the file ends where it ended before."""


class Journal:
    """The two files of a shard, open for appending. Whoever makes one holds the shard's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rollouts = folder / "rollouts.jsonl"
        self.failures = failures_path(self.rollouts)
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {
            Destination.ROLLOUTS: _Appender(self.rollouts, folder / "torn.bin"),
            Destination.SIDECAR: _Appender(self.failures, folder / "torn.bin"),
        }
        sync_folder(folder)

    def append(self, destination: Destination, *parts: bytes | memoryview) -> None:
        """Add one line, given in parts, whole. Raises DiskFullError, after which the file is as it was before."""
        self._files[destination].append(*parts, b"\n")

    def sync(self) -> None:
        """Wait until everything that was appended is on disk. May be called from another thread."""
        for file in self._files.values():
            file.sync()

    def close(self) -> None:
        """Sync and close both files."""
        for file in self._files.values():
            file.close()

    def publish(self, rollouts: Path) -> None:
        """Make both files appear at `rollouts` and its sidecar's name. Close the journal first.

        Raises OwedError if somebody else changed one of them meanwhile: what counts as collected may not be there.
        """
        for file in self._files.values():
            file.check()
        publish(self.failures, failures_path(rollouts))
        publish(self.rollouts, rollouts)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file that may be large, without their ends; nothing if there is no file."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = 0
        while (end := content.find(b"\n", start)) >= 0:
            yield content[start:end]
            start = end + 1
        if start < len(content):
            yield content[start:]


class _Appender:
    """One append-only file. It is opened, and cut loose from a published name, only when something must change in it."""

    def __init__(self, path: Path, torn: Path) -> None:
        self.path = path
        path.touch()
        self._descriptor: int | None = None
        self._size = path.stat().st_size
        self._dirty = False
        tail = _tail(path, self._size)
        if tail:
            self._mend(tail, torn)

    def append(self, *parts: bytes | memoryview) -> None:
        descriptor = self._open()
        length = sum(map(len, parts))
        try:
            written = os.writev(descriptor, parts)
        except OSError as error:
            if error.errno not in FULL:
                raise
            written = 0
        if written != length:
            os.ftruncate(descriptor, self._size)
            raise DiskFullError(str(self.path))
        self._size += written
        self._dirty = True

    def sync(self) -> None:
        if self._dirty and self._descriptor is not None:
            self._dirty = False
            try:
                os.fsync(self._descriptor)
            except OSError:
                self._dirty = True
                raise

    def close(self) -> None:
        if self._descriptor is not None:
            self.sync()
            os.close(self._descriptor)
            self._descriptor = None

    def check(self) -> None:
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self._size:
            found = f"it has {size} bytes, but {self._size} were written; something else changed it"
            raise OwedError(found, where=str(self.path), remedy="Run the stage again: it asks for what is missing")

    def _open(self) -> int:
        if self._descriptor is None:
            break_link(self.path)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        return self._descriptor

    def _mend(self, tail: bytes, torn: Path) -> None:
        """End the file with a whole line; what a killed write left behind goes to `torn`, and only then off here."""
        kept, cut = split_tail(tail)
        if cut:
            with torn.open("ab") as file:
                file.write(cut + b"\n")
            sync_file(torn)
            log.warning("%s: its last line is unfinished; cut %d bytes off, kept in %s", self.path, len(cut), torn)
        descriptor = self._open()
        if not kept.startswith(tail):
            self._size -= len(tail)
            os.ftruncate(descriptor, self._size)
            tail = b""
        self._dirty = True
        if kept != tail:
            self.append(kept[len(tail) :])
        self.sync()


def _tail(path: Path, size: int) -> bytes:
    """What stands behind the last newline of a file."""
    tail = b""
    with path.open("rb") as file:
        while len(tail) < size:
            start = max(0, size - len(tail) - BLOCK)
            file.seek(start)
            block = file.read(size - len(tail) - start)
            newline = block.rfind(b"\n")
            if newline >= 0:
                return block[newline + 1 :] + tail
            tail = block + tail
    return tail
