"""How far a run is, shard by shard: one line each, and one for all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rollmake.core.progress import duration, frequent

# What is of any length comes last, so that the other columns stay in line.
HEADERS = ("shard", "state", "rollouts", "done", "owed", "given up", "per s", "left", "last row", "failed, by class")
LEFT_ALIGNED = frozenset({"shard", "state", "failed, by class"})
GAP = "  "
# Where there is little room these are left out, the first one first, and no column is given more than `ENOUGH`.
LEFT_OUT = ("last row", "per s", "rollouts", "failed, by class", "given up", "left")
ENOUGH = 20
# A collector that says nothing for so long (s) may have been killed; it reports every few seconds.
SILENCE_S = 300.0
RUNNING, WAITING, SEALED = "running", "waiting", "sealed"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What lies on disk of one shard: `counted` and `last_row` come from the journal if there is no progress.json."""

    name: str
    planned: int
    progress: Mapping[str, Any] | None = None
    counted: int | None = None
    last_row: datetime | None = None
    sealed: bool = False


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the status; `owed` rollouts still need something, `gated` ones were given up."""

    name: str
    state: str
    planned: int
    done: int
    gated: int
    owed: int
    failed_by_class: dict[str, int]
    rate_per_s: float | None = None
    eta_s: float | None = None
    age_s: float | None = None


def shard_status(found: Found, now: datetime) -> ShardStatus:
    """How far a shard is at `now`. A progress.json that lacks what it must raises KeyError, TypeError or ValueError."""
    progress = found.progress or {"done": found.counted or 0, "gated": 0, "failed_by_class": {}, "state": None}
    # The plan may have changed since the collector wrote its figures, so what is owed is counted from the plan.
    owed = max(found.planned - progress["done"] - progress["gated"], 0)
    live = progress["state"] in (RUNNING, WAITING) and not found.sealed
    last_row = datetime.fromisoformat(progress["last_row"]) if progress.get("last_row") else found.last_row
    return ShardStatus(
        name=found.name,
        state=_state(found, now),
        planned=found.planned,
        done=progress["done"],
        gated=progress["gated"],
        owed=owed,
        failed_by_class=dict(progress["failed_by_class"]),
        rate_per_s=progress["rate_per_s"] if live else None,
        eta_s=progress["eta_s"] if live else None,
        age_s=max((now - last_row).total_seconds(), 0.0) if last_row else None,
    )


def _state(found: Found, now: datetime) -> str:
    if found.progress is None:
        return SEALED if found.sealed else "not started" if found.counted is None else "started"
    state = found.progress["state"]
    if state in (RUNNING, WAITING):
        silent = (now - datetime.fromisoformat(found.progress["updated"])).total_seconds()
        if found.sealed:
            return SEALED
        return f"{state}? silent {duration(silent)}" if silent > SILENCE_S else state
    return state if found.sealed or state != SEALED else "to be sealed"


def total(shards: Sequence[ShardStatus]) -> ShardStatus:
    """All shards in one; its state is the coverage, its `age_s` that of the latest row."""
    classes: Counter[str] = Counter()
    for shard in shards:
        classes.update(shard.failed_by_class)
    planned, done = sum(shard.planned for shard in shards), sum(shard.done for shard in shards)
    rates = [shard.rate_per_s for shard in shards if shard.rate_per_s]
    ages = [shard.age_s for shard in shards if shard.age_s is not None]
    return ShardStatus(
        name=f"all {len(shards)}",
        state=f"{covered(done, planned)} done",
        planned=planned,
        done=done,
        gated=sum(shard.gated for shard in shards),
        owed=sum(shard.owed for shard in shards),
        failed_by_class=dict(classes.most_common()),
        rate_per_s=sum(rates) or None,
        eta_s=max((shard.eta_s for shard in shards if shard.eta_s is not None), default=None),
        age_s=min(ages, default=None),
    )


def covered(done: int, planned: int) -> str:
    """A percentage rounded down, so that only a complete run says 100 %."""
    return f"{1000 * done // planned / 10:g} %" if planned else "100 %"


def cells(shard: ShardStatus) -> tuple[str, ...]:
    """The texts of one line, in the order of HEADERS."""
    failed = ", ".join(f"{name} {count:,}" for name, count in frequent(shard.failed_by_class))
    counts = (f"{count:,}" for count in (shard.planned, shard.done, shard.owed, shard.gated))
    rate = "" if shard.rate_per_s is None else f"{shard.rate_per_s:.3g}"
    spans = ("" if span is None else duration(span) for span in (shard.eta_s, shard.age_s))
    return (shard.name, shard.state, *counts, rate, *spans, failed)


def table(shards: Sequence[ShardStatus]) -> list[str]:
    """The lines of the table: headers, shards, all; columns are as wide as their content."""
    return _aligned([HEADERS, *map(cells, shards), cells(total(shards))])


def screen(shards: Sequence[ShardStatus], columns: int, lines: int) -> list[str]:
    """The table as it fits on a terminal: columns and shards that matter less are left out, and how many shards."""
    room = max(lines - 3, 1)
    shown = shards
    if len(shards) > room:
        live = [shard for shard in shards if shard.state != SEALED]
        shown = (live + [shard for shard in shards if shard.state == SEALED])[: room - 1]
    rows = [HEADERS, *map(cells, shown), cells(total(shards))]
    for header in ("", *LEFT_OUT):
        rows = [tuple(cell for name, cell in zip(rows[0], row, strict=True) if name != header) for row in rows]
        widths = [min(width, ENOUGH) for width in _widths(rows)]
        if sum(widths) + len(GAP) * (len(widths) - 1) <= columns:
            break
    fitted = [line if len(line) <= columns else f"{line[: columns - 1]}…" for line in _aligned(rows)]
    if len(shown) < len(shards):
        fitted.insert(-1, f"… {len(shards) - len(shown):,} more shards"[:columns])
    return fitted


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    align = [str.ljust if header in LEFT_ALIGNED else str.rjust for header in rows[0]]
    widths = _widths(rows)
    return [
        GAP.join(pad(cell, width) for pad, cell, width in zip(align, row, widths, strict=True)).rstrip() for row in rows
    ]
