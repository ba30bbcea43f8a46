"""What a plan owes, and the records of repaired shards that answer it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import orjson
import polars as pl

from rollmake.core.contract import ROLLOUT, TASK, failures_path
from rollmake.core.errors import DataError
from rollmake.core.imputation import Record
from rollmake.core.shards import shard_names
from rollmake.edge.journal import lines
from rollmake.edge.plan import REMEDY, read_plan, table_path

COLUMNS = ("task", "rollout", "shard", "server", "agent")
REPAIR = (
    "Repair that shard again: `snakemake --forcerun collect`, for `input_glob` runs `repair`; what was answered is kept"
)
# The environment server of each key of a shard.
Servers = Mapping[tuple[int, int], str | None]


def planned(plan: Path) -> pl.DataFrame:
    """What the plan owes: task, rollout, shard, server and agent. Raises DataError if its files are damaged or do not fit."""
    table, expected = table_path(plan), read_plan(plan).rollouts
    try:
        owed = pl.read_parquet(table, columns=list(COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(table), remedy=REMEDY) from None
    if len(owed) != expected:
        raise DataError(f"{len(owed)} rollouts, but {plan} has {expected}", where=str(table), remedy=REMEDY)
    return owed


def repaired_shards(plan: Path, repaired: Path) -> list[Path]:
    """The rollouts files of all repaired shards of a plan, in order."""
    return [repaired / name / "rollouts.jsonl" for name in shard_names(read_plan(plan).shards)]


def repaired_digest(shards: Sequence[Path]) -> str:
    """A digest of what scoring reads of repaired shards: every scalar and length of their rollouts, and their sidecars."""
    digest = hashlib.sha256()
    for shard in shards:
        for path in (shard.with_name("scores.parquet"), failures_path(shard)):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def dealt(owed: pl.DataFrame, shards: Sequence[Path]) -> Iterator[tuple[Path, Servers]]:
    """Each shard's rollouts file, with the environment server of every rollout that the plan deals to it."""
    by_shard = owed.select("shard", "task", "rollout", "server").partition_by("shard", as_dict=True, include_key=False)
    nothing = owed.select("task", "rollout", "server").clear()
    for index, shard in enumerate(shards):
        rows = by_shard.get((index,), nothing)
        yield shard, {(task, rollout): server for task, rollout, server in rows.iter_rows()}


def repaired_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file of a repaired shard, which has all of its files. Raises DataError if there is none."""
    if not path.is_file():
        raise DataError("there is no such file", where=str(path), remedy=REPAIR)
    return lines(path)


def records(path: Path, servers: Servers) -> Iterator[tuple[str, tuple[int, int], Record]]:
    """The place, key and content of each line of a repaired file, all of them owed. Raises DataError."""
    for number, line in enumerate(repaired_lines(path), 1):
        place = f"{path}:{number}"
        try:
            record = orjson.loads(line)
            key = record[TASK], record[ROLLOUT]
            owed = key in servers
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise DataError("this line is no record with indices", where=place, remedy=REPAIR) from None
        if not owed:
            found = f"the plan does not deal task {key[0]}, rollout {key[1]} to this shard"
            raise DataError(found, where=place, remedy=REPAIR)
        yield place, key, record
