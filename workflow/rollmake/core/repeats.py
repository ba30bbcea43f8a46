"""Statistics of each repeat over its tasks, and across the repeats (NeMo Gym contract 5.2)."""

from typing import Any

import polars as pl
from scipy.special import stdtrit

from rollmake.core.contract import ROLLOUT

CONFIDENCE_QUANTILE = 0.975
STATISTICS = ("mean", "median", "std", "sem", "min", "max", "p25", "p75", "ci_low_95", "ci_high_95")
ACROSS = ("mean", "median", "std", "min", "max", "se", "ci_low_95", "ci_high_95")
# A column whose last part says that it is a statistic already is not averaged across repeats.
NO_POINT_ESTIMATE = {"max", "min", "median", "p25", "p75", "p95", "ci_low_95", "ci_high_95"} | {
    "avg_sample_std_dev",
    "std_dev_across_runs",
    "std_err_across_runs",
}


def repeat_metrics(values: pl.DataFrame) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The entries of `repeat_level_metrics`, by repeat, and the `*_across_repeats/` members of `agent_metrics`.

    `values` has the columns `task` and `rollout` and one Float64 column a name, one line a measured rollout. Fewer than
    two different repeats have neither.
    """
    if values["rollout"].n_unique() < 2:
        return [], {}
    names = [name for name in values.columns if name not in ("task", "rollout")]
    tasks = values["task"].n_unique()
    repeats = values.group_by("rollout").agg(pl.len().alias("sample_count"), *map(statistics, names)).sort("rollout")
    entries = [
        {ROLLOUT: index, "sample_count": count, "missing_count": tasks - count}
        for index, count in repeats.select("rollout", "sample_count").iter_rows()
    ]
    for name in names:
        for entry, found in zip(entries, repeats[name].to_list(), strict=True):
            entry.update(summary(found, name, STATISTICS))
    return entries, across_repeats(repeats, names)


def across_repeats(repeats: pl.DataFrame, names: list[str]) -> dict[str, float]:
    """Statistics over the means of the repeats, for each column that is a point estimate."""
    found: dict[str, float] = {}
    for name in names:
        if "/" in name and name.rpartition("/")[2] in NO_POINT_ESTIMATE:
            continue
        means = repeats.select(pl.col(name).struct.field("mean").alias(name))
        one = means.select(statistics(name)).to_series().to_list()[0] if means[name].count() else {"count": 0}
        one["se"] = one.get("sem")
        found |= summary(one, f"mean/{name}", ACROSS, infix="_across_repeats")
    return found


def statistics(name: str) -> pl.Expr:
    """A struct with the count and all plain statistics of the column `name`, nulls left out; a spread of one is 0."""
    column = pl.col(name)
    count = column.count()
    std = pl.when(count == 1).then(0.0).otherwise(deviation(name))
    return pl.struct(
        count=count,
        mean=column.mean(),
        median=column.median(),
        std=std,
        sem=std / count.cast(pl.Float64).sqrt(),
        min=column.min(),
        max=column.max(),
        p25=column.quantile(0.25, interpolation="linear"),
        p75=column.quantile(0.75, interpolation="linear"),
    ).alias(name)


def deviation(name: str) -> pl.Expr:
    """The sample standard deviation of the column `name`, null for fewer than two values.

    It is taken around the mean: of large numbers that are close together, such as times, polars' own has few digits.
    """
    column = pl.col(name).cast(pl.Float64)
    return (column - column.mean()).std(ddof=1)


def summary(found: dict[str, Any], name: str, wanted: tuple[str, ...], *, infix: str = "") -> dict[str, float]:
    """The statistics `wanted` as `{statistic}{infix}/{name}`: with a Student t interval, nothing for a count of 0."""
    if not found["count"]:
        return {}
    if found["count"] > 1:
        half = float(stdtrit(found["count"] - 1, CONFIDENCE_QUANTILE)) * found["sem"]
        found = found | {"ci_low_95": found["mean"] - half, "ci_high_95": found["mean"] + half}
    return {f"{one}{infix}/{name}": found[one] for one in wanted if one in found}
