"""What is taken out of a shard beside broken lines: duplicates, and records that nobody asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rollmake.core.lines import Reason
from rollmake.core.scan import CODES, RANK, Scan

# What may be taken out of a materialized file although every key is still in it.
HARMLESS = frozenset({Reason.BLANK, Reason.DUPLICATE, Reason.SUPERSEDED})


def settle_duplicates(scan: Scan, same: Callable[[int, int], bool]) -> None:
    """Leave one record of each key: the last success, else the last. `same(a, b)` compares the bytes of two records.

    The others are taken out, as `duplicate` if they are the same as what stays, else as `superseded`.
    """
    order = scan.order()
    keys = scan.rows[:, :RANK]
    again = np.flatnonzero((keys[order[:-1]] == keys[order[1:]]).all(axis=1))
    codes, behind, stays = scan.codes, -1, -1
    for position in map(int, again[::-1]):
        if position + 1 != behind:
            stays = int(order[position + 1])
        other, behind = int(order[position]), position
        codes[other] = CODES[Reason.DUPLICATE if same(other, stays) else Reason.SUPERSEDED]


def owed_keys(scan: Scan, others: int) -> np.ndarray | None:
    """Int64 [keys, 2]: what a materialized file says is owed; None if it lost lines or cannot be the right one.

    `others` is how many records the other two files hold: a file without any row cannot be what they answer.
    """
    if any(reason not in HARMLESS for reason in scan.removed_by_reason()):
        return None
    keys = scan.rows[scan.codes == 0][:, :RANK]
    return keys if len(keys) or not others else None


def take_out_not_owed(scan: Scan, owed: np.ndarray) -> None:
    """Take out every record whose key is not in `owed`, Int64 [keys, 2]."""
    known = contained(scan.rows[:, :RANK], owed)
    scan.codes[~known & (scan.codes == 0)] = CODES[Reason.NOT_OWED]


def contained(keys: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Boolean [keys]: which pairs of `keys`, Int64 [n, 2], are in `among`, Int64 [m, 2]."""
    if not len(among):
        return np.zeros(len(keys), dtype=bool)
    known = np.ones(len(keys), dtype=bool)
    mine, theirs = np.zeros(len(keys), dtype=np.int64), np.zeros(len(among), dtype=np.int64)
    for column in range(2):
        values, ranks = np.unique(among[:, column], return_inverse=True)
        place = np.minimum(np.searchsorted(values, keys[:, column]), len(values) - 1)
        known &= values[place] == keys[:, column]
        mine, theirs = mine * len(values) + place, theirs * len(values) + ranks
    return known & np.isin(mine, theirs)


def file_facts(scan: Scan, gained: int = 0) -> dict[str, Any]:
    """What repair.json says of one file; `gained` counts records that came from another file."""
    return {
        "lines": scan.lines,
        "kept": int((scan.codes == 0).sum()),
        "gained": gained,
        "removed": {reason.value: count for reason, count in sorted(scan.removed_by_reason().items())},
        "changed": {change.value: count for change, count in sorted(scan.changes.items()) if count},
    }


def key_facts(successes: np.ndarray, failures: np.ndarray, owed: np.ndarray | None) -> dict[str, int | None]:
    """What repair.json says of the shard's keys; each argument is Int64 [rows, 2], `owed` is None if that is unknown.

    `failed` keys have failures only; `recovered` ones are among the succeeded and have failures beside their success.
    """
    tried = np.unique(failures, axis=0)
    recovered = int(contained(tried, successes).sum())
    facts = {"succeeded": len(successes), "failed": len(tried) - recovered, "recovered": recovered}
    if owed is None:
        return {"owed": None, **facts, "missing": None}
    missing = ~contained(owed, np.concatenate([successes, tried]))
    return {"owed": len(owed), **facts, "missing": int(missing.sum())}
