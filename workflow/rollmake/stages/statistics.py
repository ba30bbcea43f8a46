"""How sure the scores of a run are, and what its missing rollouts could change."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import polars as pl

from rollmake.core.bootstrap import CONFIDENCE, RESAMPLES, SEED
from rollmake.core.statistics import rewards_of, statistics, task_rewards, unknown_rollouts
from rollmake.edge.files import replacing, write_atomic
from rollmake.edge.records import planned, repaired_shards
from rollmake.edge.run_scores import RunScores

HELP = "Say how sure the scores of a run are."
STATISTICS_VERSION = 1
TASKS = {"server": pl.String, "task": pl.Int64, "rollouts": pl.UInt32, "mean": pl.Float64}


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    output: Annotated[Path, msgspec.Meta(description="statistics.json, to be written")]
    tasks: Annotated[
        Path, msgspec.Meta(description="task_rewards.parquet, to be written: the mean reward of each task")
    ]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    count_failure_classes_as_zero: list[str]
    count_missing_rollouts_as_zero: bool


def run(files: Files, settings: Settings) -> None:
    """Write `files.tasks` and `files.output`. Raises DataError for shards that are not what the plan owes."""
    scores = RunScores(
        planned(files.plan),
        repaired_shards(files.plan, files.repaired),
        count_classes=settings.count_failure_classes_as_zero,
        count_missing=settings.count_missing_rollouts_as_zero,
    )
    unknown = unknown_rollouts(scores.states)
    servers: dict[str, Any] = {}
    tasks = [pl.DataFrame(schema=TASKS)]
    for server in scores.impute():
        rewards = rewards_of(scores.scores(server))
        servers[server] = statistics(rewards, unknown.get(server, 0))
        tasks.append(task_rewards(server, rewards).cast(TASKS))
    with replacing(files.tasks) as target:
        pl.concat(tasks).write_parquet(target)
    method = {"version": STATISTICS_VERSION, "confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED}
    write_atomic(files.output, orjson.dumps(method | {"servers": servers}, option=orjson.OPT_INDENT_2) + b"\n")
