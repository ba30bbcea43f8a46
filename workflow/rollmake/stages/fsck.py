"""What repair would take out of rollouts, sidecar and materialized files, said without changing anything."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec

from rollmake.core.contract import materialized_path
from rollmake.core.errors import DataError, InputError
from rollmake.core.repair import owed_keys, settle_duplicates, take_out_not_owed
from rollmake.core.scan import REASONS, Kind, Scan, kind_of
from rollmake.edge.ranges import reader
from rollmake.edge.scan import same_record, scan_file

HELP = "Say what is damaged in rollouts, sidecar and materialized files, and change nothing."
POSITIONAL = ("files",)
PLACES = 3


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What fsck reads."""

    files: Annotated[list[Path], msgspec.Meta(description="files to check; what kind they are is in their names")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """fsck has no options."""


def run(files: Files, settings: Settings) -> None:
    """Print one block per file. Raises InputError for a file that is not there, DataError if one is not clean."""
    for path in files.files:
        if not path.is_file():
            raise InputError("there is no such file", where=str(path), remedy="Name files that exist.")
    damaged = [path for path in files.files if not _check(path)]
    if damaged:
        names = ", ".join(map(str, damaged))
        raise DataError(
            f"{len(damaged)} of {len(files.files)} files are not clean: {names}", remedy="Run the stage repair."
        )


def _check(path: Path) -> bool:
    """Print what there is to say about one file; whether it is clean."""
    scan = _settled(path)
    print(f"{path}: {scan.kind}, {scan.lines} lines, {int((scan.codes == 0).sum())} good records")
    counts, places = scan.removed_by_reason(), _places(scan)
    for reason, count in sorted(counts.items()):
        more = f" and {count - PLACES} more" if count > PLACES else ""
        print(f"  {reason}: {count}, at {'; '.join(places[reason])}{more}")
    for change, count in sorted(scan.changes.items()):
        if count:
            print(f"  {change}: {count}, which repair puts right")
    return not counts and not any(scan.changes.values())


def _settled(path: Path) -> Scan:
    """The index of a file in which everything that repair takes out is taken out."""
    kind = kind_of(path)
    scan = scan_file(path, kind)
    if kind is not Kind.FAILURES:
        with path.open("rb") as file:
            settle_duplicates(scan, same_record(scan, reader(file)))
    plan = _materialized_beside(path, kind)
    owed = owed_keys(scan_file(plan, Kind.MATERIALIZED), len(scan.codes)) if plan.is_file() else None
    if kind is not Kind.MATERIALIZED and owed is not None:
        take_out_not_owed(scan, owed)
    return scan


def _materialized_beside(path: Path, kind: Kind) -> Path:
    rollouts = path.with_name(f"{path.stem.removesuffix(f'_{kind}')}.jsonl")
    return materialized_path(rollouts)


def _places(scan: Scan) -> dict[str, list[str]]:
    """The first places of each reason, for people."""
    seen: Counter[int] = Counter()
    places: dict[str, list[str]] = {}
    for line, offset, length, code in scan.removed.tolist():
        seen[code] += 1
        if seen[code] <= PLACES:
            text = f"line {line} (byte {offset}, {length} bytes)"
            places.setdefault(REASONS[code - 1], []).append(text)
    return places
