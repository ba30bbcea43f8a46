"""What a run left on disk, read for people: small JSON files whole, records one at a time by their byte range."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from rollmake.core import contract as c
from rollmake.core.coverage import UNCLASSIFIED
from rollmake.core.errors import DataError, InputError
from rollmake.core.excerpts import Example, Failure, example, failure
from rollmake.core.picks import PICK_COLUMNS, Pick, best_and_worst, extremes
from rollmake.core.shards import parse_shard, shard_names


def optional(path: Path) -> Any:
    """The content of a JSON file, or None if there is no such file. Raises DataError if it is no JSON."""
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except orjson.JSONDecodeError as error:
        remedy = "Remove it; the stage that owes it writes it"
        raise DataError(f"no JSON ({error})", where=str(path), remedy=remedy) from error


def required(path: Path) -> Any:
    """The content of a JSON file. Raises InputError if there is no such file."""
    content = optional(path)
    if content is None:
        remedy = "Run the stages before this one first"
        raise InputError(f"{path.name} is missing", where=str(path.parent), remedy=remedy)
    return content


def shard_folders(folder: Path, plan: Mapping[str, Any] | None) -> list[str]:
    """The shards of a run: as planned, else (shards that something else collected) those that were repaired."""
    if plan is not None:
        return shard_names(plan["shards"])
    found = sorted(path.name for path in (folder / "repaired").glob("*-of-*"))
    return [name for name in found if _is_shard(name)]


def _is_shard(name: str) -> bool:
    try:
        return bool(parse_shard(name))
    except ValueError:
        return False


def examples(folder: Path, names: Sequence[str]) -> list[tuple[str, Example]]:
    """A few of the best and the worst rollouts, read by the byte ranges in `scores.parquet`."""
    candidates: list[Pick] = []
    for name in names:
        path = folder / "repaired" / name / "scores.parquet"
        if path.exists():
            candidates += extremes(pl.read_parquet(path, columns=list(PICK_COLUMNS)), name)
    picked = best_and_worst(candidates)
    rows = _materialized(folder, [(pick.task, pick.rollout) for _, pick in picked])
    return [(kind, example(_record(folder, pick), rows.get((pick.task, pick.rollout), {}))) for kind, pick in picked]


def _record(folder: Path, pick: Pick) -> Mapping[str, Any]:
    path = folder / "repaired" / pick.shard / "rollouts.jsonl"
    record = _at(path, pick.offset, pick.length)
    if (record.get(c.TASK), record.get(c.ROLLOUT)) != (pick.task, pick.rollout):
        raise DataError(
            f"at byte {pick.offset} is not task {pick.task}, rollout {pick.rollout}",
            where=str(path),
            remedy="It changed after scores.parquet was written: repair the shard again",
        )
    return record


def failures(folder: Path, classes: Collection[str]) -> dict[str, Failure]:
    """The first row of each of `classes` in the run's sidecar, read no further than needed."""
    records: dict[str, Mapping[str, Any]] = {}
    for record in _lines(c.failures_path(folder / "rollouts.jsonl")):
        if len(records) == len(classes):
            break
        name = str(record.get(c.FAILURE_CLASS) or UNCLASSIFIED)
        if name in classes:
            records.setdefault(name, record)
    keys = {name: (record.get(c.TASK), record.get(c.ROLLOUT)) for name, record in records.items()}
    rows = _materialized(folder, list(keys.values()))
    return {name: failure(record, rows.get(keys[name], {})) for name, record in records.items()}


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield _object(line, f"{path}:{number}")


def _materialized(folder: Path, keys: Sequence[tuple[Any, Any]]) -> dict[tuple[int, int], Mapping[str, Any]]:
    """The materialized rows of `keys`; of a run without a plan, none."""
    path = folder / "plan.parquet"
    wanted = [key for key in keys if all(isinstance(index, int) for index in key)]
    if not path.exists() or not wanted:
        return {}
    asked = pl.LazyFrame(wanted, schema={"task": pl.Int64, "rollout": pl.Int64}, orient="row")
    columns = pl.scan_parquet(path).select("task", "rollout", "offset", "length")
    found = columns.join(asked, on=["task", "rollout"], how="semi").collect()
    return {
        (task, rollout): _at(folder / c.MATERIALIZED_NAME, offset, length)
        for task, rollout, offset, length in found.rows()
    }


def _at(path: Path, offset: int, length: int) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return _object(file.read(length), f"{path}, byte {offset}")
    except FileNotFoundError as error:
        raise DataError("the file is missing", where=str(path), remedy="Run the stage that writes it again") from error


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    remedy = "Repair the shard again"
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise DataError(f"no JSON ({error})", where=where, remedy=remedy) from error
    if not isinstance(record, dict):
        raise DataError(f"an object was expected, not {type(record).__name__}", where=where, remedy=remedy)
    return record


def count_lines(path: Path) -> int:
    """How many whole lines a file has, read in blocks."""
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
