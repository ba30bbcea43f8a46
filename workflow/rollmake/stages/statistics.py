"""How sure the scores of a run are, and what its missing rollouts could change."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import polars as pl

from rollmake.core.bootstrap import CONFIDENCE, RESAMPLES, SEED
from rollmake.core.chosen import Chosen, Metrics, require_fields
from rollmake.core.contract import REWARD
from rollmake.core.statistics import measurable_rollouts, rewards_of, statistics, task_rewards
from rollmake.edge.files import replacing, write_atomic
from rollmake.edge.records import planned, repaired_shards
from rollmake.edge.run_scores import RunScores

HELP = "Say how sure the scores of a run are."
STATISTICS_VERSION = 1
TASKS = {"server": pl.String, "task": pl.Int64, "rollouts": pl.UInt32, "mean": pl.Float64, "score": pl.String}


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    plan: Annotated[Path, msgspec.Meta(description="plan.json of the run; plan.parquet lies beside it")]
    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    output: Annotated[Path, msgspec.Meta(description="statistics.json, to be written")]
    tasks: Annotated[Path, msgspec.Meta(description="task_rewards.parquet, to be written: the mean score of each task")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    metrics: Metrics
    count_failure_classes_as_zero: list[str]
    count_missing_rollouts_as_zero: bool


def run(files: Files, settings: Settings) -> None:
    """Write `files.tasks` and `files.output`: over the score that the config names, else over the rewards.

    Raises DataError for shards that are not what the plan owes, InputError for a score that no rollout has.
    """
    chosen = Chosen(settings.metrics.chosen.score)
    score = chosen.score or REWARD
    scores = RunScores(
        planned(files.plan),
        repaired_shards(files.plan, files.repaired),
        count_classes=settings.count_failure_classes_as_zero,
        count_missing=settings.count_missing_rollouts_as_zero,
    )
    measurable, names = measurable_rollouts(scores.states), scores.impute()
    if names:
        require_fields(map(scores.scores, names), chosen)
    servers: dict[str, Any] = {}
    tasks = [pl.DataFrame(schema=TASKS)]
    for server in names:
        rewards = rewards_of(scores.scores(server), score)
        servers[server] = statistics(rewards, measurable.get(server, 0))
        tasks.append(task_rewards(server, rewards).with_columns(score=pl.lit(score)).cast(TASKS))
    with replacing(files.tasks) as target:
        pl.concat(tasks).write_parquet(target)
    method = {"version": STATISTICS_VERSION, "confidence": CONFIDENCE, "resamples": RESAMPLES, "seed": SEED}
    content = method | {"score": score, "servers": servers}
    write_atomic(files.output, orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
