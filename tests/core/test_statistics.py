"""The numbers of statistics.json against closed forms, brute force and the metrics."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.columns import frame_of
from rollmake.core.coverage import State
from rollmake.core.metrics import aggregate_metrics
from rollmake.core.passk import pass_at_k
from rollmake.core.statistics import measurable_rollouts, rewards_of, statistics, task_rewards


def row(task, rollout, reward, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **fields}


def rewards(rows, imputed=()):
    frame = frame_of(rows).with_columns(imputed=pl.Series([index in imputed for index in range(len(rows))]))
    return rewards_of(frame)


def of(rows, unknown=0, imputed=()):
    known = rewards(rows, imputed)
    return statistics(known, unknown + int((~known.imputed).sum()))


TASKS = st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(TASKS)
def test_pass_at_k_and_pass_hat_k_are_the_shares_of_all_ways_to_draw(tasks):
    found = of([row(t, r, float(ok)) for t, some in enumerate(tasks) for r, ok in enumerate(some)])
    for entries, solved in ((found["pass_at_k"], any), (found["pass_hat_k"], all)):
        assert [entry["k"] for entry in entries] == list(range(1, 1 + max(map(len, tasks))))
        for entry in entries:
            ways = [list(combinations(some, entry["k"])) for some in tasks if len(some) >= entry["k"]]
            shares = [np.mean([solved(way) for way in each]) for each in ways]
            assert entry["tasks"] == len(shares)
            assert entry["estimate"] == pytest.approx(np.mean(shares))
            if len(tasks) > 1:
                assert entry["low"] is None or 0 <= entry["low"] <= entry["high"] <= 1


def test_the_estimates_are_those_of_the_metrics():
    chance = np.random.default_rng(0)
    rows = [row(t, r, float(chance.random() < 0.4)) for t in range(20) for r in range(1 + t % 4)]
    rows += [row(20, 0, None), row(21, 0, 1.0, mask_sample=True)]
    found, metrics = of(rows), aggregate_metrics(rows)
    assert found["mean"]["estimate"] == pytest.approx(metrics["agent_metrics"]["mean/reward"])
    groups = [group["mean/reward"] for group in metrics["group_level_metrics"] if "mean/reward" in group]
    assert found["mean_of_task_means"]["estimate"] == pytest.approx(np.mean(groups))
    assert found["mean"]["estimate"] != pytest.approx(found["mean_of_task_means"]["estimate"])
    assert (found["rollouts"], found["tasks"]) == (sum(1 + t % 4 for t in range(20)), 20)
    tasks = [[one for one in rows if one["_ng_task_index"] == t] for t in range(20)]
    theirs = pass_at_k(tasks)
    for entry in found["pass_at_k"]:
        assert 100 * entry["estimate"] == pytest.approx(theirs[f"pass@{entry['k']}/accuracy"])


def test_of_fractions_the_best_and_the_worst_of_the_first_k_count():
    found = of([row(0, 0, 0.3), row(0, 1, 0.9), row(1, 0, 0.5), row(1, 1, 0.1)])
    assert [entry["estimate"] for entry in found["pass_at_k"]] == pytest.approx([0.4, 0.7])
    assert [entry["estimate"] for entry in found["pass_hat_k"]] == pytest.approx([0.4, 0.2])


def test_what_is_unknown_could_be_anything_between_failed_and_passed():
    found = of([row(0, 0, 1.0), row(1, 0, 0.0), row(2, 0, 0.0)], unknown=2, imputed={2})
    assert (found["imputed"], found["unknown"]) == (1, 2)
    assert found["mean"]["estimate"] == pytest.approx(1 / 3)
    assert (found["if_unknown_failed"], found["if_unknown_passed"]) == (0.25, 0.75)


def test_rewards_outside_of_0_and_1_widen_what_unknown_ones_could_be():
    found = of([row(0, 0, -2.0), row(1, 0, 3.0)], unknown=2)
    assert (found["if_unknown_failed"], found["if_unknown_passed"]) == (-0.75, 1.75)


def test_rewards_are_told_apart_by_attempt():
    rows = [row(0, 0, 1.0), row(1, 0, 0.0), row(2, 0, 1.0, _ng_attempt_index=2), row(3, 0, 0.0)]
    assert of(rows, imputed={3})["by_attempt"] == [
        {"attempt": 0, "rollouts": 2, "mean": 0.5},
        {"attempt": 2, "rollouts": 1, "mean": 1.0},
    ]


def test_one_task_has_no_interval():
    assert of([row(0, 0, 1.0), row(0, 1, 0.0)])["mean"] == {"estimate": 0.5, "low": None, "high": None}


def test_nothing_scored_is_nothing_known():
    found = of([row(0, 0, None)], unknown=1)
    assert found["mean"] == {"estimate": None, "low": None, "high": None}
    assert (found["tasks"], found["pass_at_k"], found["by_attempt"]) == (0, [], [])
    assert (found["if_unknown_failed"], found["if_unknown_passed"]) == (0.0, 1.0)


def test_masked_rollouts_are_not_unknown_and_rollouts_without_a_server_are_nobodys():
    states = [*State, State.MISSING, State.FAILED]
    frame = pl.DataFrame({"server": ["s"] * len(State) + [None, "t"], "state": [one.value for one in states]})
    assert measurable_rollouts(frame) == {"s": 5, "t": 1}


def test_the_mean_of_each_task_is_kept_for_comparisons():
    frame = task_rewards("s", rewards([row(3, 1, 0.0), row(3, 0, 1.0), row(1, 0, 0.25), row(2, 0, None)]))
    assert frame.rows() == [("s", 1, 1, 0.25), ("s", 3, 2, 0.5)]
