"""Files that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

BUFFER = 1 << 18


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file beside `path` that takes its name, synced, when the block ends well; else it is removed.

    Missing parent folders are created. Whoever reads `path` sees the old file or the whole new one.
    """
    with replacing_all([path]) as (file,):
        yield file


@contextmanager
def replacing_all(paths: Sequence[Path]) -> Iterator[list[IO[bytes]]]:
    """The same for several files of one folder, which take their names in the order given once all are synced."""
    folder = paths[0].parent
    folder.mkdir(parents=True, exist_ok=True)
    temporary = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(one.open("wb", buffering=BUFFER)) for one in temporary]
            yield files
            for file in files:
                file.flush()
            # Side by side, since each waits for the disk.
            with ThreadPoolExecutor(len(files)) as pool:
                list(pool.map(os.fsync, [file.fileno() for file in files]))
        for one, path in zip(temporary, paths, strict=True):
            one.replace(path)
    except BaseException:
        for one in temporary:
            one.unlink(missing_ok=True)
        raise
    sync_folder(folder)


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
