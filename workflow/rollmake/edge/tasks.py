"""The files with the tasks of a run: where they are, and their lines."""

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from rollmake.core.errors import DataError, InputError
from rollmake.core.inputs import Reading
from rollmake.core.splits import declared
from rollmake.core.topology import Environment, Topology, decode_environment

ROOTS = "NEMO_GYM_EXTRA_ROOTS"
# Bytes that are read at once.
BLOCK = 1 << 18
log = logging.getLogger(__name__)


class TaskFile(NamedTuple):
    """A file of tasks; `source` is the server that declares it, if one does."""

    path: Path
    source: str | None = None


def read_environment(path: Path) -> Environment:
    """environment.json. Raises DataError if there is none, or none of this version."""
    try:
        return decode_environment(path.read_bytes(), str(path))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="Run the stage environment"
        ) from None


def find(path: str | Path) -> Path | None:
    """The file: an absolute path as it is, else below each folder of `NEMO_GYM_EXTRA_ROOTS`, then where we are."""
    roots = [Path(root).absolute() for root in os.environ.get(ROOTS, "").split(os.pathsep) if root]
    places = (root / path for root in (*roots, Path()))
    return next((place for place in places if place.exists()), None)


def input_files(paths: Iterable[Path]) -> tuple[list[TaskFile], list[InputError]]:
    """The files that `input` names, and those that are missing."""
    found, missing = [], []
    for path in paths:
        place = find(path)
        if place is None:
            missing.append(unreadable(path, "there is no such file"))
        else:
            found.append(TaskFile(place))
    return found, missing


def split_files(topology: Topology, split: str) -> tuple[list[TaskFile], list[InputError]]:
    """The data sets that the topology declares for a split, and what keeps others from being used."""
    sets, problems = declared(topology, split)
    found = []
    for dataset in sets:
        place = find(dataset.path)
        if place is None:
            remedy = f"Correct jsonl_fpath there, fetch the file, or name its root folder in {ROOTS}"
            problems.append(InputError(f"there is no file {dataset.path}", where=dataset.place, remedy=remedy))
        else:
            found.append(TaskFile(place, dataset.server))
    return found, problems


def found_files(environment: Path, split: str) -> list[str]:
    """The data sets of a split that are there, by an environment.json. Raises DataError if that cannot be read."""
    found, _ = split_files(read_environment(environment).topology, split)
    return [str(file.path) for file in found]


def read_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The place (`path:line`) and text of each line that is not blank; oddities are said at the end of the file."""
    reading, name = Reading(), str(path)
    with open_input(path) as file:
        while block := file.read(BLOCK) + file.readline():
            for number, line in reading.split(block):
                yield f"{name}:{number}", line
    for remark in reading.remarks():
        log.warning("%s: %s", name, remark)


def open_input(path: Path) -> IO[bytes]:
    """The file at `path`. Raises InputError if it cannot be opened."""
    try:
        return path.open("rb")
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror}") from None


def unreadable(path: Path, found: str) -> InputError:
    """The problem of an input file that gives no rows."""
    return InputError(found, where=str(path), remedy="Correct `input` in the config")
