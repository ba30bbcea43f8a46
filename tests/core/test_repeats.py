"""Repeats against numpy and scipy."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rollmake.core.repeats import repeat_metrics

KEYS = st.tuples(st.integers(0, 5), st.integers(0, 4))
VALUES = st.dictionaries(KEYS, st.one_of(st.none(), st.floats(-1e3, 1e3), st.sampled_from([0.0, 1.0])), min_size=1)


def frame(values, name="x"):
    keys = sorted(values)
    columns = {"task": [task for task, _ in keys], "rollout": [rollout for _, rollout in keys]}
    return pl.DataFrame(columns | {name: [values[key] for key in keys]}, schema_overrides={name: pl.Float64})


def interval(values):
    if len(values) < 2:
        return {}
    sem = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), sem) if sem else (np.mean(values),) * 2
    return {"ci_low_95": low, "ci_high_95": high}


def by_hand(values):
    if not values:
        return {}
    std = np.std(values, ddof=1) if len(values) > 1 else 0.0
    quartiles = np.quantile(values, [0.25, 0.75])
    found = {"mean": np.mean(values), "median": np.median(values), "std": std, "sem": std / math.sqrt(len(values))}
    return found | {"min": min(values), "max": max(values), "p25": quartiles[0], "p75": quartiles[1]} | interval(values)


def close(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_statistics_of_each_repeat_and_across_them(values):
    entries, across = repeat_metrics(frame(values))
    repeats = sorted({rollout for _, rollout in values})
    if len(repeats) < 2:
        assert (entries, across) == ([], {})
        return
    tasks, means = len({task for task, _ in values}), []
    assert [entry["_ng_rollout_index"] for entry in entries] == repeats
    for entry, repeat in zip(entries, repeats, strict=True):
        mine = [value for (_, rollout), value in values.items() if rollout == repeat]
        assert (entry["sample_count"], entry["missing_count"]) == (len(mine), tasks - len(mine))
        known = [value for value in mine if value is not None]
        close({k: v for k, v in entry.items() if k.endswith("/x")}, {f"{k}/x": v for k, v in by_hand(known).items()})
        means += [np.mean(known)] if known else []
    expected = by_hand(means)
    expected = {"se" if name == "sem" else name: v for name, v in expected.items() if name not in ("p25", "p75")}
    close(across, {f"{name}_across_repeats/mean/x": value for name, value in expected.items()})


def test_equal_values_have_an_interval_without_width():
    entries, across = repeat_metrics(frame({(0, 0): 0.1, (1, 0): 0.1, (0, 1): 0.1, (1, 1): 0.1}))
    assert entries[0]["ci_low_95/x"] == entries[0]["ci_high_95/x"] == 0.1
    assert across["ci_low_95_across_repeats/mean/x"] == 0.1


@pytest.mark.parametrize("name", ["x/max", "x/p95", "x/std_err_across_runs", "x/avg_sample_std_dev"])
def test_statistics_are_not_averaged_across_repeats(name):
    entries, across = repeat_metrics(frame({(0, 0): 1.0, (0, 1): 2.0}, name))
    assert across == {}
    assert entries[1][f"mean/{name}"] == 2.0


@pytest.mark.parametrize("name", ["max", "x_max", "x/p90", "x/no_answer", "tasks"])
def test_other_names_are(name):
    _, across = repeat_metrics(frame({(0, 0): 1.0, (0, 1): 2.0}, name))
    assert across[f"mean_across_repeats/mean/{name}"] == 1.5
