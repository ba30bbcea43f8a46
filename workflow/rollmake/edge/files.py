"""Files that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

BUFFER = 1 << 20


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file beside `path` that takes its name, synced, when the block ends well; else it is removed.

    Missing parent folders are created. Whoever reads `path` sees the old file or the whole new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=BUFFER) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path`, whole or not at all."""
    with replacing(path) as file:
        file.write(content)


def publish(source: Path, target: Path) -> None:
    """Give `source` the second name `target` at once, by hard link where the file system can, else by copy and rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
        sync_file(temporary)
    temporary.replace(target)
    # Renaming one name of a file to another name of the same file does nothing, and leaves both.
    temporary.unlink(missing_ok=True)
    sync_folder(target.parent)


def break_link(path: Path) -> None:
    """Make `path` the only name of its content, so that appending to it changes no published file."""
    if path.stat().st_nlink == 1:
        return
    with path.open("rb") as source, replacing(path) as copy:
        shutil.copyfileobj(source, copy, 1 << 20)


def sync_file(path: Path) -> None:
    """Wait until the content of `path` is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in the folder `path` are on disk, where the file system can say so."""
    with suppress(OSError):
        sync_file(path)
