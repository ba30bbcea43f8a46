"""Paired comparisons against SciPy's exact tests."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rollmake.core.compare import EXACT_TASKS, compare, detectable, mcnemar_p, paired, permutation_p
from rollmake.core.errors import DataError

SCHEMA = {"server": pl.String, "task": pl.Int64, "rollouts": pl.UInt32, "mean": pl.Float64}


def run(means, server="s", rollouts=1, first=0):
    rows = [(server, first + task, rollouts, float(mean)) for task, mean in enumerate(means)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_mcnemar_is_the_binomial_test_of_tasks_that_one_run_alone_solves(pairs):
    first, second = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    better, worse = int((second > first).sum()), int((second < first).sum())
    expected = stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert mcnemar_p(first, second) == pytest.approx(expected)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=9))
def test_with_few_tasks_all_signs_are_tried(values):
    differences = np.round(np.array(values), 3)
    theirs = stats.permutation_test(
        (differences, np.zeros(len(differences))), lambda x, y: np.mean(x - y), permutation_type="samples"
    )
    assert permutation_p(differences) == pytest.approx(theirs.pvalue)


def test_with_many_tasks_signs_are_tried_at_random():
    differences = np.random.default_rng(0).normal(0.1, 1, 200)
    expected = stats.ttest_1samp(differences, 0).pvalue
    assert len(differences) > EXACT_TASKS
    assert permutation_p(differences) == pytest.approx(expected, abs=0.02)
    assert permutation_p(differences) == permutation_p(differences)
    assert permutation_p(np.full(40, 0.5)) == pytest.approx(1e-4, rel=1e-3)


def test_under_the_null_p_is_uniform():
    chance = np.random.default_rng(1)
    found = [permutation_p(chance.normal(size=10)) for _ in range(300)]
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_single_binary_rollouts_are_compared_by_mcnemar():
    first, second = run([0, 0, 0, 0, 0, 0, 1, 1]), run([1, 1, 1, 1, 1, 1, 1, 0])
    found = paired(first, second)
    assert (found["test"], found["better"], found["worse"], found["tasks"]) == ("mcnemar_exact", 6, 1, 8)
    assert found["p"] == pytest.approx(stats.binomtest(1, 7).pvalue)
    assert (found["mean_first"], found["mean_second"]) == (0.25, 0.875)
    assert found["difference"]["estimate"] == pytest.approx(0.625)
    assert -1 <= found["difference"]["low"] < 0.625 < found["difference"]["high"] <= 1


@pytest.mark.parametrize(("first", "second"), [(run([0.5, 1]), run([1, 1])), (run([0, 1], rollouts=2), run([1, 1]))])
def test_everything_else_is_compared_by_permutation(first, second):
    found = paired(first, second)
    assert found["test"] == "permutation"
    assert found["p"] == 1.0


def test_pairs_are_tasks_that_both_have():
    found = paired(run([0, 0, 1, 1]), run([1, 1, 1, 1], first=2))
    assert (found["tasks"], found["only_first"], found["only_second"]) == (2, 2, 2)
    assert found["difference"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert paired(run([0]), run([1], first=9)) == {"tasks": 0, "only_first": 1, "only_second": 1}


def test_pairing_finds_what_task_means_hide():
    """Every task is a little better: paired it is sure, although tasks differ much more."""
    tasks = np.linspace(0, 0.9, 30)
    found = paired(run(tasks, rollouts=4), run(tasks + 0.05, rollouts=4))
    assert found["difference"]["low"] > 0
    assert found["p"] < 0.001


def test_the_detectable_difference_is_found_four_times_in_five():
    chance = np.random.default_rng(2)
    effect = detectable(chance.normal(size=5000)) * np.sqrt(5000 / 100)
    found = [stats.ttest_1samp(chance.normal(effect, 1, 100), 0).pvalue < 0.05 for _ in range(500)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.06)
    assert detectable(np.array([1.0])) is None


def test_servers_of_one_name_are_compared_and_else_the_only_ones():
    both = pl.concat([run([0, 1], "x"), run([1, 1], "y")])
    assert [entry["servers"] for entry in compare(both, both)] == [["x", "x"], ["y", "y"]]
    assert [entry["servers"] for entry in compare(both, run([1, 1], "y"))] == [["y", "y"]]
    assert [entry["servers"] for entry in compare(run([1], "x"), run([1], "z"))] == [["x", "z"]]
    with pytest.raises(DataError, match="no environment server in common, but x, y and z"):
        compare(both, run([1], "z"))
