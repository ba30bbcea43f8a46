"""Reading plan.json and plan.parquet."""

import os
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec
import numpy as np
import polars as pl

from rollmake.core.contract import MATERIALIZED_NAME
from rollmake.core.errors import DataError, InputError
from rollmake.core.plan import PLAN_VERSION, Plan
from rollmake.core.shards import parse_shard
from rollmake.edge.ranges import copy_lines

# Rows are read in pieces of so many bytes while one is asked for after the other.
AHEAD = 1 << 18
REMEDY = "Run the stage materialize again (`snakemake --forcerun materialize`)"


def read_plan(path: Path) -> Plan:
    """plan.json. Raises DataError if it is damaged or of another version."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except FileNotFoundError:
        raise DataError("there is no plan", where=str(path), remedy=REMEDY) from None
    except msgspec.MsgspecError as error:
        raise DataError(f"this is no plan: {error}", where=str(path), remedy=REMEDY) from None
    if plan.version != PLAN_VERSION:
        raise DataError(f"version {plan.version}, known is {PLAN_VERSION}", where=str(path), remedy=REMEDY)
    return plan


def table_path(plan: Path) -> Path:
    """plan.parquet, beside plan.json."""
    return plan.with_suffix(".parquet")


def scan_table(plan: Path) -> pl.LazyFrame:
    """plan.parquet, see `core.plan`. Raises DataError if there is none."""
    path = table_path(plan)
    if not path.exists():
        raise DataError("there is no table of the plan", where=str(path), remedy=REMEDY)
    return pl.scan_parquet(path)


def read_shard(plan: Path, shard: str) -> pl.DataFrame:
    """The lines of plan.parquet that belong to `shard`, in order.

    Raises InputError if the plan has no such shard, and DataError if the materialized rows beside it are not its own.
    """
    content = read_plan(plan)
    count = content.shards
    try:
        index, of = parse_shard(shard)
    except ValueError as error:
        raise InputError(str(error), where="shard") from None
    if of != count:
        raise InputError(
            f"{shard} is no shard of a plan with {count}", where=str(plan), remedy="Name one of its shards"
        )
    check_rows(plan.with_name(MATERIALIZED_NAME), content)
    lines = scan_table(plan).filter(pl.col("shard") == index)
    return lines.select("task", "rollout", "offset", "length", "server").collect()


def check_rows(materialized: Path, plan: Plan) -> None:
    """Raise DataError if the materialized rows are not as long as the plan says.

    The plan is published after its rows: a stage that was killed in between leaves new rows beside an old plan.
    """
    try:
        size = materialized.stat().st_size
    except FileNotFoundError:
        raise DataError("there are no materialized rows", where=str(materialized), remedy=REMEDY) from None
    if size != plan.materialized_bytes:
        found = f"the file has {size} bytes, but its plan is about {plan.materialized_bytes}"
        raise DataError(found, where=str(materialized), remedy=REMEDY)


class ShardRows:
    """The rows of one shard in the run's materialized file, read by byte range when they are needed."""

    def __init__(self, table: pl.DataFrame, materialized: Path, ahead: int = AHEAD) -> None:
        self._offsets = table["offset"].to_numpy()
        self._lengths = table["length"].to_numpy()
        servers = table["server"].fill_null("")
        self._names = servers.unique().sort().to_list()
        self._codes = servers.cast(pl.Enum(self._names)).to_physical().to_numpy()
        self._path, self._ahead = materialized, ahead
        self._descriptor = os.open(materialized, os.O_RDONLY)
        # What was read last, from where, and the row behind the last one.
        self._read, self._read_from, self._next = b"", 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def __len__(self) -> int:
        return len(self._offsets)

    def line(self, position: int) -> bytes:
        """The row at `position`, without its newline. Raises DataError if the file is shorter than the plan says."""
        start, length = int(self._offsets[position]) - self._read_from, int(self._lengths[position])
        if start < 0 or start + length > len(self._read):
            size = max(length, self._ahead) if position == self._next else length
            self._read_from += start
            self._read, start = os.pread(self._descriptor, size, self._read_from), 0
        self._next = position + 1
        line = self._read[start : start + length]
        if len(line) != length:
            raise DataError("the file is shorter than its plan says", where=str(self._path), remedy=REMEDY)
        return line

    def copy(self, target: IO[bytes]) -> None:
        """Write all rows to `target`, in order, a line each."""
        source = np.zeros(len(self), dtype=np.int8)
        copy_lines(
            lambda _, start, size: os.pread(self._descriptor, size, start), source, self._offsets, self._lengths, target
        )

    def server(self, position: int) -> str:
        """The name of the environment server that answers the row at `position`."""
        return self._names[self._codes[position]]

    @property
    def servers(self) -> set[str]:
        """The names of all environment servers of the shard."""
        return set(self._names)
