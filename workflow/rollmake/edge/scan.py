"""Files of a shard, read once from the first byte to the last."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rollmake.core.blocks import ScoreBlocks
from rollmake.core.light import LightReader
from rollmake.core.lines import Reason
from rollmake.core.scan import LENGTH, OFFSET, Kind, Scan
from rollmake.edge.memory import no_cycle_search
from rollmake.edge.ranges import Read, same_bytes

# Shown some records, says which to take out and why, by their places among them.
Look = Callable[[list[dict[str, Any]]], Mapping[int, Reason]]
# Bytes of lines that are decoded at once; more records than fit into a cache are slower.
BATCH = 1 << 18


def scan_file(path: Path, kind: Kind, look: Look | None = None) -> Scan:
    """Index a file; one that is not there is as good as empty.

    `look` is shown all records with identity, some at a time.
    """
    scan = Scan(kind)
    if not path.exists():
        return scan
    with no_cycle_search(), path.open("rb", buffering=1 << 20) as file:
        while lines := file.readlines(BATCH):
            first = len(scan.codes)
            records = scan.take_many(lines)
            if look is not None and records:
                for place, reason in look(records).items():
                    scan.take_out(reason, first + place)
    return scan


def scan_rollouts(path: Path, scores: ScoreBlocks) -> Scan:
    """Index a rollouts file whose records go to `scores`; nothing of them is built that is not needed for these."""
    scan, light = Scan(Kind.ROLLOUTS), LightReader(scores.texts)
    with no_cycle_search(), path.open("rb", buffering=1 << 20) as file:
        while lines := file.readlines(BATCH):
            if (table := light.read(lines)) is not None:
                scan.take_table(lines, table)
                scores.add_table(table)
            else:
                scores.add(scan.take_many(lines))
    return scan


def same_record(scan: Scan, read: Read) -> Callable[[int, int], bool]:
    """A function that says whether two records of a file, source 0 of `read`, hold the same bytes."""

    def same(first: int, second: int) -> bool:
        one, other = scan.rows[first].tolist(), scan.rows[second].tolist()
        if one[LENGTH] != other[LENGTH]:
            return False
        return same_bytes(read, one[LENGTH], (0, one[OFFSET]), (0, other[OFFSET]))

    return same
