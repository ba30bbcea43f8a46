"""Files of a shard, read once from the first byte to the last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollmake.core.lines import Reason
from rollmake.core.scan import LENGTH, OFFSET, Kind, Scan
from rollmake.edge.ranges import Read, same_bytes

Look = Callable[[dict[str, Any]], Reason | None]


def scan_file(path: Path, kind: Kind, look: Look | None = None) -> Scan:
    """Index a file; one that is not there is as good as empty.

    `look` is shown every record with identity, one at a time, and may give a reason to take it out.
    """
    scan = Scan(kind)
    if not path.exists():
        return scan
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            row = scan.take(line)
            if row is not None and look is not None and (reason := look(row)) is not None:
                scan.take_out(reason)
    return scan


def same_record(scan: Scan, read: Read) -> Callable[[int, int], bool]:
    """A function that says whether two records of a file, source 0 of `read`, hold the same bytes."""

    def same(first: int, second: int) -> bool:
        one, other = scan.rows[first].tolist(), scan.rows[second].tolist()
        if one[LENGTH] != other[LENGTH]:
            return False
        return same_bytes(read, one[LENGTH], (0, one[OFFSET]), (0, other[OFFSET]))

    return same
