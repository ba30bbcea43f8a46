"""The plan of shards that something else collected, from the rows that their files hold."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any

import polars as pl

from rollmake.core.errors import InputError
from rollmake.core.lost import Row
from rollmake.core.plan import COLUMNS, PLAN_VERSION, Plan

ROWS = {
    "task": pl.Int64,
    "rollout": pl.Int64,
    "server": pl.String,
    "agent": pl.String,
    "length": pl.Int64,
    "digest": pl.Binary,
}
RESULT = ["server", "task", "rollout"]


def refuse_shared(shards: Sequence[pl.DataFrame], names: Sequence[str]) -> None:
    """Raise InputError for a rollout that has a result in two shards under one environment server.

    The frames have task, rollout and server; under different servers the same indices are two runs. `names` are those
    of the shards' files.
    """
    marked = [frame.select(*RESULT, shard=pl.lit(index)) for index, frame in enumerate(shards)]
    again = pl.concat(marked).filter(pl.struct(RESULT).is_duplicated()).sort(*RESULT, "shard") if marked else []
    if len(again):
        server, task, rollout, first = again.row(0)
        found = f"the rollout of task {task}, rollout {rollout} of environment server {server!r} has a result"
        remedy = f"Give tasks of different shards different indices, or leave one file out ({len(again)} such results)"
        raise InputError(f"{found} in {names[first]} and in {names[again['shard'][1]]}", remedy=remedy)


class Answered:
    """The results of all shards, for rows that were damaged and so may not say who answers them."""

    def __init__(self, shards: Sequence[pl.DataFrame]) -> None:
        """The frames have task, rollout, server and agent."""
        self._shards = shards
        pairs = {pair for shard in shards for pair in shard.select("server", "agent").unique().iter_rows()}
        self._only = pairs.pop() if len(pairs) == 1 else (None, None)

    def unknown(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows without those that name no server although their key has a result, whoever gave that.

        Where all results are of one server and agent, so are the rows that name none.
        """
        for task, rollout, server, agent in rows:
            if server is not None:
                yield task, rollout, server, agent
            elif (task, rollout) not in self._keys:
                yield task, rollout, *self._only

    @cached_property
    def _keys(self) -> set[tuple[int, int]]:
        return {key for shard in self._shards for key in shard.select("task", "rollout").iter_rows()}


def plan_table(shards: Sequence[Sequence[tuple[Any, ...]]]) -> pl.DataFrame:
    """plan.parquet from the rows of each shard, as of ROWS, in the order of the materialized file."""
    frames = [
        pl.DataFrame(rows, schema=ROWS, orient="row").with_columns(shard=pl.lit(index, pl.Int32))
        for index, rows in enumerate(shards)
    ]
    table = pl.concat(frames)
    offset = (pl.col("length") + 1).cum_sum() - pl.col("length") - 1
    return table.with_columns(offset=offset, repeat=pl.int_range(pl.len(), dtype=pl.Int32).over("digest")).select(
        COLUMNS
    )


def adopted_plan(table: pl.DataFrame, shards: int, environment: str) -> Plan:
    """plan.json for that table."""
    content = blake2b(digest_size=16)
    for row in table.select("task", "rollout", "shard", "digest", "server").iter_rows():
        content.update(repr(row).encode())
    return Plan(
        version=PLAN_VERSION,
        shards=shards,
        tasks=table.select("server", "task").n_unique(),
        rollouts=len(table),
        materialized_bytes=int((table["length"] + 1).sum()),
        digest=content.hexdigest(),
        environment=environment,
        adopted=True,
    )
