"""The proof that repaired shards hold what the plan owes: every key at most once, each in the shard it belongs to."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from rollmake.core.errors import DataError

KEY = ("task", "rollout")


class Presence(NamedTuple):
    """Rollouts of a run, counted: `owed` = `present` + `failed` + `missing`."""

    owed: int
    present: int
    failed: int
    missing: int


def prove(
    owed: pl.DataFrame, rollouts: pl.DataFrame, failures: pl.DataFrame, *, plan: str, names: Sequence[tuple[str, str]]
) -> Presence:
    """Count what is there of the plan; all frames have the columns task, rollout and shard (its index).

    `plan` is the plan's name, `names` are those of each shard's rollouts and failures. Raises DataError, naming both
    files, for a key with two rollouts, a row that the plan does not owe, or one that belongs to another shard.
    """
    _once(rollouts, names)
    for kind, rows in enumerate((rollouts, failures)):
        _planned(owed, rows, plan, [name[kind] for name in names])
    only_failed = failures.select(KEY).unique().join(rollouts, on=KEY, how="anti").height
    return Presence(owed.height, rollouts.height, only_failed, owed.height - rollouts.height - only_failed)


def _once(rollouts: pl.DataFrame, names: Sequence[tuple[str, str]]) -> None:
    again = rollouts.filter(pl.struct(KEY).is_duplicated()).sort(*KEY, "shard").head(2)
    if again.height:
        task, rollout = again.select(KEY).row(0)
        first, second = (names[shard][0] for shard in again["shard"])
        where = f"in {first} and again in {second}" if first != second else f"twice in {first}"
        raise DataError(f"the rollout of task {task}, rollout {rollout} is {where}", remedy="Repair the shards again.")


def _planned(owed: pl.DataFrame, rows: pl.DataFrame, plan: str, names: Sequence[str]) -> None:
    joined = rows.join(owed.select(*KEY, planned="shard"), on=KEY, how="left")
    astray = joined.filter(pl.col("planned").is_null() | (pl.col("planned") != pl.col("shard")))
    if not astray.height:
        return
    row = astray.sort(*KEY, "shard").row(0, named=True)
    key, name = f"task {row['task']}, rollout {row['rollout']}", names[row["shard"]]
    remedy = f"Collect and repair that shard again ({astray.height} such rows in all)."
    if row["planned"] is None:
        raise DataError(f"{name} holds {key}, which {plan} does not owe", remedy=remedy)
    raise DataError(f"{name} holds {key}, which {plan} deals to {names[row['planned']]}", remedy=remedy)
