"""Two runs over the same tasks: how much better the second is, task by task."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import bdtr, ndtri

from rollmake.core.bootstrap import SEED, ratio_intervals
from rollmake.core.errors import DataError
from rollmake.core.statistics import as_dict, is_binary

Floats = NDArray[np.float64]
# Up to so many tasks all signs are tried, beyond that so many at random.
EXACT_TASKS, PERMUTATIONS, HELD = 16, 10_000, 1 << 22
ALPHA, POWER = 0.05, 0.8


def compare(first: pl.DataFrame, second: pl.DataFrame) -> list[dict[str, Any]]:
    """One entry for each environment server that both runs have; if both have one only, they are compared.

    Both frames have server, task, rollouts and mean, one line a task. Raises DataError if no server is in both.
    """
    names = [sorted(frame["server"].unique()) for frame in (first, second)]
    pairs = [(name, name) for name in names[0] if name in names[1]]
    if not pairs and len(names[0]) == len(names[1]) == 1:
        pairs = [(names[0][0], names[1][0])]
    if not pairs:
        listed = " and ".join(", ".join(some) or "none" for some in names)
        raise DataError(
            f"the runs have no environment server in common, but {listed}", remedy="Compare runs of one kind"
        )
    return [
        {
            "servers": list(pair),
            **paired(*(frame.filter(server=name) for frame, name in zip((first, second), pair, strict=True))),
        }
        for pair in pairs
    ]


def paired(first: pl.DataFrame, second: pl.DataFrame) -> dict[str, Any]:
    """The difference of two runs over the tasks that both have scored, second less first, and what it is worth."""
    both = first.join(second, on="task", how="inner", suffix="_second").sort("task")
    means = both["mean"].to_numpy(), both["mean_second"].to_numpy()
    found: dict[str, Any] = {
        "tasks": len(both),
        "only_first": len(first) - len(both),
        "only_second": len(second) - len(both),
    }
    if not len(both):
        return found
    differences = means[1] - means[0]
    (interval,) = ratio_intervals(differences[:, None], np.ones((len(both), 1)))
    single = bool((both["rollouts"] == 1).all() and (both["rollouts_second"] == 1).all())
    mcnemar = single and is_binary(means[0]) and is_binary(means[1])
    p = mcnemar_p(*means) if mcnemar else permutation_p(differences)
    return found | {
        "mean_first": float(means[0].mean()),
        "mean_second": float(means[1].mean()),
        "difference": as_dict(interval),
        "better": int((differences > 0).sum()),
        "worse": int((differences < 0).sum()),
        "test": "mcnemar_exact" if mcnemar else "permutation",
        "p": p,
        "minimum_detectable_effect": detectable(differences),
    }


def mcnemar_p(first: Floats, second: Floats) -> float:
    """The exact two-sided p of McNemar's test: of tasks that one run alone solves, half should be the second's."""
    better, worse = int((second > first).sum()), int((second < first).sum())
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5))) if better + worse else 1.0


def permutation_p(differences: Floats) -> float:
    """The two-sided p that the mean difference is 0, by changing the signs of tasks: all ways if there are few tasks."""
    moved = differences[differences != 0]
    if not len(moved):
        return 1.0
    observed = abs(moved.sum()) * (1 - 1e-12)
    if len(moved) <= EXACT_TASKS:
        ways = np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved)) & 1
        return float((np.abs((1 - 2 * ways) @ moved) >= observed).mean())
    chance, beyond, left = np.random.default_rng(SEED), 0, PERMUTATIONS
    while left:
        some = min(left, max(1, HELD // len(moved)))
        signs = 1 - 2 * chance.integers(0, 2, size=(some, len(moved)), dtype=np.int8)
        beyond += int((np.abs(signs @ moved) >= observed).sum())
        left -= some
    return (beyond + 1) / (PERMUTATIONS + 1)


def detectable(differences: Floats) -> float | None:
    """The difference that so many tasks would show in four of five repetitions, at a level of 5 %; null for one task."""
    if len(differences) < 2:
        return None
    error = float(differences.std(ddof=1)) / len(differences) ** 0.5
    return float(ndtri(1 - ALPHA / 2) + ndtri(POWER)) * error
