"""The proof that repaired shards hold what the plan owes: every key at most once, each in the shard it belongs to."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from rollmake.core.errors import DataError

KEY = ("task", "rollout")
PLACE = [*KEY, "shard"]
# Under different servers the same indices are two rollouts.
ROLLOUT = ["server", *KEY]


class Presence(NamedTuple):
    """Rollouts of a run, counted: `owed` = `present` + `failed` + `missing`."""

    owed: int
    present: int
    failed: int
    missing: int


def prove(
    owed: pl.DataFrame, rollouts: pl.DataFrame, failures: pl.DataFrame, *, plan: str, names: Sequence[tuple[str, str]]
) -> Presence:
    """Count what is there of the plan; all frames have the columns task, rollout and shard (its index), `owed` server.

    `plan` is the plan's name, `names` are those of each shard's rollouts and failures. Raises DataError, naming both
    files, for a rollout that is there twice, a row that the plan does not owe, or one that belongs to another shard.
    """
    present, failed = (
        _planned(owed, rows, plan, [name[kind] for name in names]) for kind, rows in enumerate((rollouts, failures))
    )
    _once(present, names)
    only_failed = failed.unique(ROLLOUT).join(present, on=ROLLOUT, how="anti", nulls_equal=True).height
    expected = owed.select(ROLLOUT).n_unique()
    return Presence(expected, present.height, only_failed, expected - present.height - only_failed)


def _once(rollouts: pl.DataFrame, names: Sequence[tuple[str, str]]) -> None:
    if rollouts.select(ROLLOUT).n_unique() == rollouts.height:
        return
    again = rollouts.filter(pl.struct(ROLLOUT).is_duplicated()).sort(*ROLLOUT, "shard").head(2)
    task, rollout = again.select(KEY).row(0)
    first, second = (names[shard][0] for shard in again["shard"])
    where = f"in {first} and again in {second}" if first != second else f"twice in {first}"
    raise DataError(f"the rollout of task {task}, rollout {rollout} is {where}", remedy="Repair the shards again.")


def _planned(owed: pl.DataFrame, rows: pl.DataFrame, plan: str, names: Sequence[str]) -> pl.DataFrame:
    """The rows with their environment servers, all of which the plan deals to the shard that they are in."""
    joined = rows.select(PLACE).join(owed.select(*PLACE, "server", planned=pl.lit(True)), on=PLACE, how="left")
    astray = joined.filter(pl.col("planned").is_null())
    if not astray.height:
        return joined.drop("planned")
    row = astray.sort(PLACE).row(0, named=True)
    key, name = f"task {row['task']}, rollout {row['rollout']}", names[row["shard"]]
    remedy = f"Collect and repair that shard again ({astray.height} such rows in all)."
    elsewhere = owed.filter(task=row["task"], rollout=row["rollout"])["shard"]
    if not len(elsewhere):
        raise DataError(f"{name} holds {key}, which {plan} does not owe", remedy=remedy)
    raise DataError(f"{name} holds {key}, which {plan} deals to {names[elsewhere[0]]}", remedy=remedy)
