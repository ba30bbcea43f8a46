"""All repaired shards become one rollouts file and one sidecar, once it is proven that every row belongs there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import polars as pl

from rollmake.core.contract import failures_path
from rollmake.core.errors import DataError
from rollmake.core.proof import Presence, prove
from rollmake.core.scan import LENGTH, OFFSET, ROLLOUT_COLUMN, TASK_COLUMN, Kind
from rollmake.core.shards import shard_names
from rollmake.edge.files import replacing
from rollmake.edge.plan import read_plan, table_path
from rollmake.edge.ranges import Windows, copy_lines
from rollmake.edge.records import REPAIR
from rollmake.edge.scan import scan_file

HELP = "Merge the repaired shards of a run, sorted by task and rollout."


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What concatenate reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    output: Annotated[Path, msgspec.Meta(description="rollouts file; its sidecar is written beside it")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """concatenate has no options."""


def run(files: Files, settings: Settings) -> None:
    """Write `files.output` and its sidecar, and print how many rollouts are owed, present, failed and missing.

    Raises DataError, before anything is written, if a shard is missing or damaged, a key has two rollouts, or a row is
    not what the plan owes.
    """
    rollouts = [files.repaired / name / "rollouts.jsonl" for name in shard_names(read_plan(files.plan).shards)]
    failures = [failures_path(path) for path in rollouts]
    _require([*rollouts, *failures])
    present = pl.concat([_rollouts_index(path, shard) for shard, path in enumerate(rollouts)])
    failed = pl.concat([_failures_index(path, shard) for shard, path in enumerate(failures)])
    table = table_path(files.plan)
    owed = pl.read_parquet(table, columns=["task", "rollout", "shard", "server"])
    names = [(str(one), str(other)) for one, other in zip(rollouts, failures, strict=True)]
    counts = prove(owed, present, failed, plan=str(table), names=names)
    _merge(failures, failed, failures_path(files.output))
    _merge(rollouts, present, files.output)
    print(summary(counts))


def summary(counts: Presence) -> str:
    """One line for people."""
    return f"owed {counts.owed}: present {counts.present}, failed {counts.failed}, missing {counts.missing}"


def _require(paths: Sequence[Path]) -> None:
    missing = sorted({path.parent.name for path in paths if not path.is_file()})
    if missing:
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        found = f"{len(missing)} planned shards are not there: {', '.join(missing[:8])}{more}"
        raise DataError(found, where=str(paths[0].parent.parent), remedy="Run the stage repair for them first.")


def _rollouts_index(path: Path, shard: int) -> pl.DataFrame:
    """The index of a shard's rollouts, from its scores.parquet. Raises DataError if the two do not fit together."""
    scores = path.with_name("scores.parquet")
    try:
        index = pl.read_parquet(scores, columns=["task", "rollout", "offset", "length"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(scores), remedy=REPAIR) from error
    end = index["offset"] + index["length"] + 1
    gaps = (index["offset"] != end.shift(1, fill_value=0)).any()
    if gaps or path.stat().st_size != (end[-1] if len(end) else 0):
        raise DataError(f"is not the file that {scores} describes", where=str(path), remedy=REPAIR)
    return index.select("task", "rollout", pl.lit(shard, pl.Int32).alias("shard"), "offset", "length")


def _failures_index(path: Path, shard: int) -> pl.DataFrame:
    """The index of a shard's sidecar, read anew. Raises DataError if it is not clean."""
    scan = scan_file(path, Kind.FAILURES)
    if len(broken := scan.removed):
        raise DataError("this line is damaged", where=f"{path}:{broken[0, 0]}", remedy=REPAIR)
    cells = dict(zip(("task", "rollout", "offset", "length"), _columns(scan.rows), strict=True))
    return pl.DataFrame(cells).select("task", "rollout", pl.lit(shard, pl.Int32).alias("shard"), "offset", "length")


def _columns(rows: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(rows[:, column]) for column in (TASK_COLUMN, ROLLOUT_COLUMN, OFFSET, LENGTH)]


def _merge(paths: Sequence[Path], index: pl.DataFrame, target: Path) -> None:
    """Copy the lines of all shards, by (task, rollout), then in the order of their file."""
    ordered = index.sort("task", "rollout", maintain_order=True)
    ranges = [ordered[name].to_numpy() for name in ("shard", "offset", "length")]
    with replacing(target) as file:
        copy_lines(Windows(paths).read, *ranges, file)
