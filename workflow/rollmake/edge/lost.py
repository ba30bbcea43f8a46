"""What was taken out of repaired shards and may have been a rollout, from their repair.json and quarantine.jsonl."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from rollmake.core.errors import DataError
from rollmake.core.lost import LOST, Lost, Row, lost_by_reason, lost_row, says_what_is_owed
from rollmake.edge.records import REPAIR, repaired_lines
from rollmake.edge.run_files import required


def repair_facts(rollouts: Path) -> Any:
    """The content of repair.json beside a repaired rollouts file."""
    return required(rollouts.with_name("repair.json"))


def lost_rows(rollouts: Path) -> Iterator[Row | None]:
    """What each lost line of a shard says of its rollout, if materialized inputs do not say what the shard owes."""
    if says_what_is_owed(repair_facts(rollouts)):
        return
    quarantine = rollouts.with_name("quarantine.jsonl")
    for number, line in enumerate(repaired_lines(quarantine), 1):
        try:
            part = orjson.loads(line)
            if part["reason"] in LOST:
                yield lost_row(part["text"].encode() if "text" in part else b64decode(part["base64"], validate=True))
        except (ValueError, KeyError, TypeError, AttributeError):
            found, where = "this line does not say what was taken out", f"{quarantine}:{number}"
            raise DataError(found, where=where, remedy=REPAIR) from None


def lost_lines(shards: Sequence[Path], *, adopted: bool) -> Lost:
    """What the repaired rollouts files `shards` lost; in an `adopted` run the lines without a key may be owed."""
    by_reason = lost_by_reason(map(repair_facts, shards))
    unreadable = {path.parent.name: sum(row is None for row in lost_rows(path)) for path in shards if adopted}
    return Lost(by_reason=by_reason, unreadable={name: count for name, count in unreadable.items() if count})
