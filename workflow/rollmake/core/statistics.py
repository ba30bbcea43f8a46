"""How sure a score is: intervals that take tasks as clusters, pass@k and pass^k, and what missing rollouts could do."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rollmake.core.bootstrap import Interval, ratio_intervals
from rollmake.core.contract import REWARD
from rollmake.core.coverage import State
from rollmake.core.passk import Scores, any_of_k_by_task
from rollmake.core.scores import FIELD

Floats = NDArray[np.float64]
# What has no score on purpose; whatever else is owed could have any.
WITHOUT = (State.MASKED, State.UNROUTED)
LARGEST_K = 64


class Rewards(NamedTuple):
    """The rewards, or other scores, of an environment server, one line a scored rollout, sorted by (task, rollout)."""

    task: NDArray[np.int64]
    reward: Floats
    attempt: NDArray[np.int64]
    imputed: NDArray[np.bool_]


def rewards_of(frame: pl.DataFrame, score: str = REWARD) -> Rewards:
    """The lines with a `score` of a frame in the form of `core/scores.py` that says of each whether it is imputed.

    A number that stands for a reward, as that of imputed rollouts, stands for no other score.
    """
    name = "reward" if score == REWARD else FIELD + score
    values = pl.col(name) if name in frame.columns else pl.lit(None)
    known = frame.with_columns(score=values.cast(pl.Float64))
    scored = known.filter(pl.col("score").is_not_null(), ~pl.col("masked")).sort("task", "rollout")
    return Rewards(
        scored["task"].to_numpy(),
        scored["score"].to_numpy(),
        scored["attempt"].cast(pl.Int64).to_numpy(),
        scored["imputed"].to_numpy(),
    )


def statistics(rewards: Rewards, measurable: int) -> dict[str, Any]:
    """The entry of one environment server in statistics.json; rewards as they are, not in per cent.

    `measurable` is how many rollouts should have a score of their own.
    """
    unknown = measurable - int((~rewards.imputed).sum())
    scores = by_task(rewards)
    counts = np.count_nonzero(~np.isnan(scores), axis=1).astype(float)
    some, every = any_of_k_by_task(scores)[:, :LARGEST_K], 1 - any_of_k_by_task(1 - scores)[:, :LARGEST_K]
    eligible = (counts[:, None] >= np.arange(1, some.shape[1] + 1)).astype(float)
    means = np.nansum(scores, axis=1) / np.maximum(counts, 1)
    ones = np.ones_like(counts)
    above = np.column_stack([means * counts, means, np.nan_to_num(some) * eligible, np.nan_to_num(every) * eligible])
    below = np.column_stack([counts, ones, eligible, eligible])
    pooled, mean, *rest = ratio_intervals(above, below, binary=is_binary(rewards.reward))
    number = some.shape[1]
    return {
        "rollouts": len(rewards.reward),
        "imputed": int(rewards.imputed.sum()),
        "tasks": len(counts),
        "mean": as_dict(pooled),
        "mean_of_task_means": as_dict(mean),
        **extremes(rewards, unknown),
        "pass_at_k": by_k(rest[:number], eligible),
        "pass_hat_k": by_k(rest[number:], eligible),
        "by_attempt": by_attempt(rewards),
    }


def by_task(rewards: Rewards) -> Scores:
    """One line a task, one column a scored rollout, in the order of repeats; NaN where a task has fewer than others."""
    _, first, line, counts = np.unique(rewards.task, return_index=True, return_inverse=True, return_counts=True)
    scores = np.full((len(first), int(counts.max(initial=0))), np.nan)
    scores[line, np.arange(len(rewards.task)) - first[line]] = rewards.reward
    return scores


def is_binary(values: Floats) -> bool:
    """Whether all rewards are 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def as_dict(interval: Interval) -> dict[str, float | None]:
    """An interval as JSON; bounds that are not known are null."""
    return {name: None if np.isnan(value) else float(value) for name, value in interval._asdict().items()}


def by_k(intervals: list[Interval], eligible: Floats) -> list[dict[str, Any]]:
    """One entry for each k, with the number of tasks that have at least k scored rollouts."""
    tasks = eligible.sum(axis=0)
    return [{"k": k + 1, "tasks": int(tasks[k]), **as_dict(interval)} for k, interval in enumerate(intervals)]


def extremes(rewards: Rewards, unknown: int) -> dict[str, Any]:
    """The pooled mean if everything without a result had failed, and if all of it had passed.

    Failed is 0 and passed is 1, or the lowest and highest reward that was seen, if that is further out.
    """
    known = rewards.reward[~rewards.imputed]
    total = len(known) + unknown
    low, high = min(0.0, known.min(initial=0.0)), max(1.0, known.max(initial=1.0))
    found = {
        name: float((known.sum() + unknown * bound) / total) if total else None
        for name, bound in (("if_unknown_failed", low), ("if_unknown_passed", high))
    }
    return {"unknown": unknown, **found}


def by_attempt(rewards: Rewards) -> list[dict[str, Any]]:
    """How many rollouts were answered at each attempt, counted from 0, and their mean reward."""
    known = ~rewards.imputed
    attempts, line, counts = np.unique(rewards.attempt[known], return_inverse=True, return_counts=True)
    sums = np.bincount(line, rewards.reward[known], len(attempts))
    rows = zip(attempts.tolist(), counts.tolist(), (sums / np.maximum(counts, 1)).tolist(), strict=True)
    return [{"attempt": attempt, "rollouts": count, "mean": mean} for attempt, count, mean in rows]


def measurable_rollouts(states: pl.DataFrame) -> Mapping[str, int]:
    """How many rollouts of each environment server should have a score, by the states of a run."""
    counts = states.filter(~pl.col("state").is_in([state.value for state in WITHOUT])).group_by("server").len()
    return {server: count for server, count in counts.iter_rows() if server is not None}


def task_rewards(server: str, rewards: Rewards) -> pl.DataFrame:
    """One line a task: how many scored rollouts it has, and their mean reward."""
    frame = pl.DataFrame(
        {"task": rewards.task, "reward": rewards.reward}, schema={"task": pl.Int64, "reward": pl.Float64}
    )
    tasks = frame.group_by("task").agg(rollouts=pl.len(), mean=pl.col("reward").mean()).sort("task")
    return tasks.select(pl.lit(server).alias("server"), "task", "rollouts", "mean")
