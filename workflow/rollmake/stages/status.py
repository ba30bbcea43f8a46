"""How far a run is, from its plan and its journals; reads only, and may run while the run is collected."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import polars as pl

from rollmake.core.errors import DataError, InputError
from rollmake.core.ledger import KEY
from rollmake.core.settlement import failure_facts
from rollmake.core.shards import shard_names
from rollmake.core.status import Found, ShardStatus, shard_status, table
from rollmake.edge.plan import read_plan, scan_table
from rollmake.edge.records import REPAIR, repaired_lines
from rollmake.edge.run_files import count_lines, optional

HELP = "Show how far each shard of a run is, and why."
POSITIONAL = ("run",)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the status reads."""

    run: Annotated[Path, msgspec.Meta(description="folder of the run, results/{run}")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The status has no options."""


def run(files: Files, settings: Settings) -> None:
    """Print a line per shard and one for all. Raises InputError if the folder holds no planned run."""
    print("\n".join(table(statuses(files.run, datetime.now(UTC)))))


def statuses(folder: Path, now: datetime) -> list[ShardStatus]:
    """The status of every shard of the run in `folder`, at `now`."""
    plan_path = folder / "plan.json"
    if not plan_path.exists():
        what = "there is no plan.json" if folder.is_dir() else "there is no such folder"
        raise InputError(what, where=str(folder), remedy="Name the folder of a run that was planned, results/{run}")
    names = shard_names(read_plan(plan_path).shards)
    counts = scan_table(plan_path).group_by("shard").len().collect()
    planned = dict(counts.rows())
    return [_status(_found(folder, name, planned.get(index, 0)), folder, now) for index, name in enumerate(names)]


def _status(found: Found, folder: Path, now: datetime) -> ShardStatus:
    try:
        return shard_status(found, now)
    except (KeyError, TypeError, ValueError) as error:
        where = str(folder / "journal" / found.name / "progress.json")
        remedy = "Remove it; the collector writes it again"
        raise DataError(f"it does not say how far the shard is ({error!r})", where=where, remedy=remedy) from error


def _collected_elsewhere(repaired: Path) -> dict[str, Any] | None:
    """How far a shard without a journal is, if it was repaired: nobody asks again for what failed in it."""
    scores = repaired / "scores.parquet"
    if not scores.exists():
        return None
    try:
        done = pl.read_parquet(scores, columns=KEY)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(scores), remedy=REPAIR) from None
    failures = failure_facts(repaired_lines(repaired / "rollouts_failures.jsonl")).unique(KEY, keep="last")
    failed = failures.join(done, on=KEY, how="anti").group_by("failure_class").len().sort("failure_class")
    classes = dict(failed.iter_rows())
    return {"done": len(done), "gated": sum(classes.values()), "failed_by_class": classes, "state": "repaired"}


def _found(folder: Path, name: str, planned: int) -> Found:
    journal, sealed = folder / "journal" / name, folder / "shards" / name / "rollouts.jsonl"
    progress = optional(journal / "progress.json")
    if not journal.exists() and not sealed.parent.exists():
        progress = _collected_elsewhere(folder / "repaired" / name)
    rows = journal / "rollouts.jsonl"
    if not rows.exists():
        rows = sealed
    last_row = datetime.fromtimestamp(rows.stat().st_mtime, UTC) if rows.exists() and rows.stat().st_size else None
    return Found(
        name=name,
        planned=planned,
        progress=progress,
        counted=count_lines(rows) if progress is None and rows.exists() else None,
        last_row=last_row,
        sealed=sealed.exists(),
    )
