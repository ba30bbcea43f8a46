"""What the scores of a run rest on, and what became of its other rollouts; it needs no server and no score."""

import os
from pathlib import Path
from typing import Annotated

import msgspec
import orjson

from rollmake.core.chosen import Metrics
from rollmake.core.contract import aggregate_path
from rollmake.core.coverage import coverage
from rollmake.core.settlement import max_attempts
from rollmake.edge.files import write_atomic
from rollmake.edge.lost import lost_lines
from rollmake.edge.plan import read_plan
from rollmake.edge.records import planned, repaired_digest, repaired_shards
from rollmake.edge.run_scores import RunScores

HELP = "Say what the scores of a run rest on."


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    output: Annotated[Path, msgspec.Meta(description="coverage.json, to be written")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    metrics: Metrics
    disable_aggregation: bool
    count_failure_classes_as_zero: list[str]
    count_missing_rollouts_as_zero: bool
    max_attempts: int | None
    retry_terminal_timeouts: bool


def run(files: Files, settings: Settings) -> None:
    """Write `files.output`. Raises DataError for shards that are not what the plan owes.

    With `disable_aggregation` metrics that an earlier run left beside it are removed, since nothing renews them.
    """
    chosen = settings.metrics.chosen
    shards = repaired_shards(files.plan, files.repaired)
    scores = RunScores(
        planned(files.plan),
        shards,
        count_classes=settings.count_failure_classes_as_zero,
        count_missing=settings.count_missing_rollouts_as_zero,
        retry_terminal_timeouts=settings.retry_terminal_timeouts,
        texts=chosen.texts,
        subset_key=chosen.subset_key,
    )
    lost = lost_lines(shards, adopted=read_plan(files.plan).adopted)
    limit = max_attempts(settings.max_attempts, os.environ)
    numbers = coverage(scores.states, limit, lost, repaired=repaired_digest(shards))
    write_atomic(files.output, orjson.dumps(numbers, option=orjson.OPT_INDENT_2))
    if settings.disable_aggregation:
        aggregate_path(files.output.with_name("rollouts.jsonl")).unlink(missing_ok=True)
