"""plan.parquet as it is read back."""

import io

import numpy as np
import polars as pl

from rollmake.core.plan import COLUMNS
from rollmake.core.planning import Columns
from rollmake.edge.plan_table import BATCH, digests, write_table


def columns(count, server, agent):
    numbers = np.arange(count, dtype=np.int64)
    return Columns(
        task=numbers,
        rollout=numbers,
        shard=numbers.astype(np.int32),
        offset=numbers,
        length=numbers,
        digest=np.arange(2 * count, dtype=np.uint64).reshape(-1, 2),
        repeat=numbers.astype(np.int32),
        server=np.array(server, dtype=np.int32),
        agent=np.array(agent, dtype=np.int32),
    )


def written(*args, names):
    file = io.BytesIO()
    write_table(file, columns(*args), names)
    return pl.read_parquet(io.BytesIO(file.getvalue()))


def test_types_and_order():
    table = written(2, [0, -1], [1, 1], names=["s", "a"])
    assert tuple(table.columns) == COLUMNS
    assert table.schema == {
        "task": pl.Int64,
        "rollout": pl.Int64,
        "shard": pl.Int32,
        "offset": pl.Int64,
        "length": pl.Int64,
        "digest": pl.Binary,
        "repeat": pl.Int32,
        "server": pl.String,
        "agent": pl.String,
    }


def test_names_and_digests():
    table = written(3, [0, -1, 0], [1, 1, -1], names=["s", "a"])
    assert table["server"].to_list() == ["s", None, "s"]
    assert table["agent"].to_list() == ["a", "a", None]
    assert table["digest"].to_list() == [bytes(row) for row in np.arange(6, dtype=np.uint64).reshape(-1, 2)]


def test_no_rollouts():
    assert written(0, [], [], names=[]).height == 0


def test_digests_in_batches():
    values = np.arange(2 * (BATCH + 1), dtype=np.uint64).reshape(-1, 2)
    series = digests(values)
    assert len(series) == BATCH + 1
    assert series[BATCH] == values[BATCH].tobytes()
    assert series[BATCH - 1] == values[BATCH - 1].tobytes()
