"""Two runs over the same tasks, compared task by task."""

from pathlib import Path
from typing import Annotated

import msgspec
import orjson
import polars as pl

from rollmake.core.compare import compare
from rollmake.core.errors import DataError
from rollmake.edge.files import write_atomic

HELP = "Compare two runs over the same tasks."
COMPARE_VERSION = 1
COLUMNS = ["server", "task", "rollouts", "mean", "score"]


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    first: Annotated[Path, msgspec.Meta(description="task_rewards.parquet of the first run")]
    second: Annotated[Path, msgspec.Meta(description="task_rewards.parquet of the second run")]
    output: Annotated[Path, msgspec.Meta(description="the comparison, to be written")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The stage has no options."""


def run(files: Files, settings: Settings) -> None:
    """Write `files.output`.

    Raises DataError for files that cannot be read, and for runs without a common server or over different scores.
    """
    first, second = (_tasks(path) for path in (files.first, files.second))
    scores = sorted({*first["score"].unique(), *second["score"].unique()})
    if len(scores) > 1:
        found = f"the runs have different scores, {' and '.join(scores)}"
        raise DataError(found, remedy="Name the same `metrics.score` for both")
    content = {
        "version": COMPARE_VERSION,
        "first": files.first.resolve().parent.name,
        "second": files.second.resolve().parent.name,
        "score": scores[0] if scores else None,
        "comparisons": compare(first, second),
    }
    write_atomic(files.output, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")


def _tasks(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, columns=COLUMNS)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path), remedy="Run the stage statistics") from None
