"""Which rollouts are worth reading: a few of the best and a few of the worst."""

from collections.abc import Iterable

import msgspec
import polars as pl

EXAMPLES = 3
PICK_COLUMNS = ("task", "rollout", "masked", "reward", "offset", "length")


class Pick(msgspec.Struct, frozen=True):
    """One rollout, its shard, and the byte range of its line in the shard's repaired file."""

    reward: float
    task: int
    rollout: int
    shard: str
    offset: int
    length: int


def extremes(scores: pl.DataFrame, shard: str) -> list[Pick]:
    """Candidates of one shard from PICK_COLUMNS of its scores: enough of both ends to know the run's."""
    measured = scores.filter(pl.col("reward").is_finite() & ~pl.col("masked").fill_null(False))
    ends = [
        measured.sort("reward", "task", "rollout", descending=[best, False, False])
        .unique("task", keep="first", maintain_order=True)
        .head(EXAMPLES)
        for best in (True, False)
    ]
    rows = pl.concat(ends).unique(maintain_order=True).select("reward", "task", "rollout", "offset", "length").rows()
    return [Pick(reward, task, rollout, shard, offset, length) for reward, task, rollout, offset, length in rows]


def best_and_worst(candidates: Iterable[Pick]) -> list[tuple[str, Pick]]:
    """Up to EXAMPLES of each end, called best and worst, one per task and end; ties go to the lower task and rollout.

    The worst are those with less reward than the best of all, so a run in which all are equal has no worst.
    """
    ordered = sorted(candidates, key=lambda pick: (-pick.reward, pick.task, pick.rollout))
    best = _first_of_tasks(ordered)
    ascending = sorted(ordered, key=lambda pick: (pick.reward, pick.task, pick.rollout))
    worst = [pick for pick in _first_of_tasks(ascending) if pick.reward < ordered[0].reward and pick not in best]
    return [("best", pick) for pick in best] + [("worst", pick) for pick in worst]


def _first_of_tasks(picks: Iterable[Pick]) -> list[Pick]:
    chosen: dict[int, Pick] = {}
    for pick in picks:
        chosen.setdefault(pick.task, pick)
    return list(chosen.values())[:EXAMPLES]
