"""What an environment server says about its rollouts by default (NeMo Gym contract 5.1)."""

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from rollmake.core.columns import EXACT, HIDDEN, field_names, frame_of, usage_names
from rollmake.core.contract import TASK
from rollmake.core.errors import DataError
from rollmake.core.infos import as_dicts, rollout_infos
from rollmake.core.perf import perf_summary
from rollmake.core.repeats import deviation, repeat_metrics
from rollmake.core.scores import FIELD, USAGE

STATISTICS = ("mean", "max", "min", "median", "std")
# How many entries of tasks are held at once; with their rollouts they have a few kilobytes each.
TASKS_AT_ONCE = 4096
SAMPLE = {"agent_ref": {"name": "agent"}}
Metrics = dict[str, Any]


def aggregate_metrics(rows: list[dict[str, Any]]) -> Metrics:
    """The reply of POST /aggregate_metrics to the items `rows`, in any order.

    Raises DataError for what `frame_of` and `metrics_of` refuse.
    """
    return metrics_of(frame_of(rows))


def metrics_of(frame: pl.DataFrame) -> Metrics:
    """The same from a frame in the form of `core/scores.py`. Raises DataError if a rollout is there twice."""
    whole = Scored(frame)
    return {"group_level_metrics": [entry for some in whole.groups() for entry in some], **whole.overall()}


class Scored:
    """The metrics over all lines of a frame; those of the tasks come a few at a time, since they may be many.

    Numbers of any size are taken; a statistic that is not finite is left out.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        """Raises DataError if a rollout is there twice."""
        refuse_duplicates(frame)
        self.frame = frame.sort("task", "rollout")
        self.measured = self.frame.filter(~pl.col("masked"))
        self._values = value_columns(self.measured)

    def overall(self, custom: Metrics | None = None, custom_keys: Metrics | None = None) -> Metrics:
        """All members but `group_level_metrics`; what is `custom` goes over `agent_metrics`, its keys over `key_metrics`."""
        repeats, across = repeat_metrics(as_floats(self._values))
        coverage = coverage_metrics(self.frame, self.measured)
        agent = overall_statistics(self._values) | across | coverage
        means = {name: value for name, value in agent.items() if name.startswith("mean/")}
        number = {"num_repeats": self.frame["rollout"].n_unique()} if len(self.measured) else {}
        return {
            "agent_metrics": agent | (custom or {}) | number,
            "key_metrics": means | coverage | (custom_keys or {}),
            "perf_summary": perf_summary(self.frame),
            "repeat_level_metrics": repeats,
        }

    def groups(self) -> Iterator[list[Metrics]]:
        """The entries of `group_level_metrics`, by task."""
        tasks = self._values.group_by("task", maintain_order=True).agg(pl.len(), *aggregations(self._values))
        start = 0
        for some in tasks.iter_slices(TASKS_AT_ONCE):
            count = some["len"].sum()
            yield task_metrics(some, rollout_infos(self.measured.slice(start, count)))
            start += count


def refuse_duplicates(frame: pl.DataFrame) -> None:
    """Raise DataError if a (task, rollout) stands on two lines."""
    keys = frame.select("task", "rollout")
    if keys.n_unique() < len(keys):
        twice = keys.filter(keys.is_duplicated()).unique().sort("task", "rollout")
        task, rollout = twice.row(0)
        raise DataError(
            f"{len(twice)} rollouts are there more than once, such as task {task}, rollout {rollout}",
            remedy="Score each rollout once: repair the shards, or give their rows different task indices.",
        )


def coverage_metrics(frame: pl.DataFrame, measured: pl.DataFrame) -> Metrics:
    """How many rollouts and tasks are masked; nothing if none is."""
    if len(measured) == len(frame):
        return {}
    tasks = measured["task"].n_unique()
    return {
        "coverage/measured_rollouts": len(measured),
        "coverage/masked_rollouts": len(frame) - len(measured),
        "coverage/measured_tasks": tasks,
        "coverage/fully_masked_tasks": frame["task"].n_unique() - tasks,
    }


def value_columns(measured: pl.DataFrame) -> pl.DataFrame:
    """`task`, `rollout` and every column that has a value: fields, and usage, which wins where both have a name.

    All columns stay Int64 if none of them has a fraction or a gap, else all are Float64.
    """
    measured = without_hidden(measured)
    usage = [name for name in usage_names(measured) if not name.startswith("_")]
    names = dict.fromkeys(field_names(measured) + usage)
    series: dict[str, pl.Series] = {}
    for name in names:
        parts = [restored(measured, prefix + name) for prefix in (USAGE, FIELD) if prefix + name in measured.columns]
        both = parts[0] if len(parts) == 1 else measured.select(pl.coalesce(*parts)).to_series()
        if both.count():
            series[name] = both.alias(name)
    values = pl.DataFrame(measured.select("task", "rollout").get_columns() + list(series.values()))
    whole = all(one.dtype == pl.Int64 and not one.null_count() for one in series.values())
    return values if whole else as_floats(values)


def without_hidden(measured: pl.DataFrame) -> pl.DataFrame:
    """The same without the values of fields in whose place usage has a member that is no number."""
    hidden = {HIDDEN + name: name for name in field_names(measured) if HIDDEN + name in measured.columns}
    return measured.with_columns(
        pl.when(~pl.col(flag).fill_null(False)).then(pl.col(prefix + name)).alias(prefix + name)
        for flag, name in hidden.items()
        for prefix in (FIELD, EXACT + FIELD)
        if prefix + name in measured.columns
    )


def restored(frame: pl.DataFrame, name: str) -> pl.Series:
    """The column `name` as Int64 if all its values on these lines are whole numbers of 64 bits, else as Float64."""
    column = frame[name]
    if column.dtype == pl.Float64 and EXACT + name in frame.columns:
        whole = frame[EXACT + name].replace({"true": "1", "false": "0"}).cast(pl.Int64, strict=False)
        return whole if whole.null_count() == column.null_count() else column
    return column if column.dtype == pl.Float64 else column.cast(pl.Int64)


def as_floats(values: pl.DataFrame) -> pl.DataFrame:
    """All columns but the key as Float64."""
    return values.with_columns(pl.exclude("task", "rollout").cast(pl.Float64))


def aggregations(values: pl.DataFrame) -> list[pl.Expr]:
    """The five statistics of each value column; the spread of a single line is 0, of a single value undefined."""
    names = [name for name in values.columns if name not in ("task", "rollout")]
    by_name = {
        "mean": lambda name: pl.col(name).cast(pl.Float64).mean(),
        "max": lambda name: pl.col(name).max(),
        "min": lambda name: pl.col(name).min(),
        "median": lambda name: pl.col(name).cast(pl.Float64).median(),
        "std": lambda name: pl.when((pl.len() == 1) & (pl.col(name).count() == 1)).then(0.0).otherwise(deviation(name)),
    }
    return [by_name[kind](name).alias(f"{kind}/{name}") for kind in STATISTICS for name in names]


def overall_statistics(values: pl.DataFrame) -> Metrics:
    """The statistics over all lines."""
    if len(values.columns) == 2:
        return {}
    return finite(values.select(aggregations(values)).row(0, named=True))


def finite(found: Metrics) -> Metrics:
    """What is there and can be written as JSON."""
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def task_metrics(tasks: pl.DataFrame, infos: list[Metrics]) -> list[Metrics]:
    """An entry for each line of `tasks`: its index, the number `len` of its rollouts, and statistics.

    `infos` are those of all their rollouts, in the same order.
    """
    entries = as_dicts(tasks.drop("len").rename({"task": TASK}))
    start = 0
    for entry, count in zip(entries, tasks["len"].to_list(), strict=True):
        entry.update(sample=SAMPLE, **completion(count), rollout_infos=infos[start : start + count])
        start += count
    return entries


def completion(count: int) -> Metrics:
    """How complete a task is: always wholly, since a server does not see what is missing."""
    return {
        "num_rollouts": count,
        "expected_num_rollouts": count,
        "missing_num_rollouts": 0,
        "reward_profile_completion_pct": 100.0,
    }
