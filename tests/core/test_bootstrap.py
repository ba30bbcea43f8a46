"""Intervals that take tasks as clusters, against SciPy, closed forms and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rollmake.core.bootstrap import RESAMPLES, draws, expanded_tail, ratio_intervals


def mean_interval(values, **options):
    values = np.asarray(values, dtype=float)
    (found,) = ratio_intervals(values[:, None], np.ones((len(values), 1)), **options)
    return found


def test_of_many_tasks_it_is_the_percentile_interval_of_scipy():
    values = np.random.default_rng(1).gamma(2.0, size=400)
    found = mean_interval(values)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=5000, method="percentile", rng=np.random.default_rng(2))
    error = values.std(ddof=1) / 20
    assert found.estimate == pytest.approx(values.mean())
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.15 * error)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.15 * error)


@pytest.mark.parametrize("tasks", [4, 8, 30])
def test_of_few_tasks_it_is_about_as_wide_as_students(tasks):
    values = np.random.default_rng(3).normal(size=tasks)
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, tasks - 1, values.mean(), stats.sem(values))
    assert 0.7 < (found.high - found.low) / (high - low) < 1.15


def test_the_tail_is_that_of_students_t():
    for tasks in (2, 5, 1000):
        expected = stats.norm.cdf(-np.sqrt(tasks / (tasks - 1)) * stats.t.ppf(0.975, tasks - 1))
        assert expanded_tail(tasks) == pytest.approx(expected)
    assert expanded_tail(10**6) == pytest.approx(0.025, abs=1e-5)


def test_it_covers_the_truth_where_repeats_of_a_task_are_alike():
    """An interval over rollouts would be four times too narrow here: a task's 16 rollouts all say the same."""
    chance, covered = np.random.default_rng(4), 0
    for _ in range(200):
        right = chance.random(30) < 0.6
        above = np.repeat(right, 16).reshape(30, 16).sum(axis=1).astype(float)
        (found,) = ratio_intervals(above[:, None], np.full((30, 1), 16.0))
        covered += found.low <= 0.6 <= found.high
    assert covered >= 0.9 * 200


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=12))
def test_it_stays_between_the_lowest_and_highest_task(tasks):
    means, counts = (np.array(column, dtype=float) for column in zip(*tasks, strict=True))
    (found,) = ratio_intervals((means * counts)[:, None], counts[:, None])
    assert found.estimate == pytest.approx(np.average(means, weights=counts))
    if len(tasks) == 1:
        assert np.isnan([found.low, found.high]).all()
    else:
        assert means.min() - 1e-12 <= found.low <= found.high <= means.max() + 1e-12


def test_equal_tasks_are_drawn_as_often_as_different_ones():
    """Drawing kinds of tasks with their number is drawing tasks: the spread is that of the mean."""
    values = np.repeat([0.0, 1.0], [30, 70])
    found = draws(values[:, None], np.ones((100, 1)), seed=5)[:, 0]
    assert len(found) == RESAMPLES
    assert found.mean() == pytest.approx(0.7, abs=0.005)
    assert found.std() == pytest.approx(np.sqrt(0.7 * 0.3 / 100), rel=0.08)


def test_it_is_the_same_every_time_and_another_with_another_seed():
    values = np.random.default_rng(6).random(50)
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval(values, seed=1) != mean_interval(values)


@pytest.mark.parametrize("tasks", [2, 7, 100])
def test_where_all_tasks_agree_it_is_the_exact_binomial_interval(tasks):
    exact = stats.binomtest(tasks, tasks).proportion_ci(0.95, method="exact")
    right, wrong = mean_interval(np.ones(tasks), binary=True), mean_interval(np.zeros(tasks), binary=True)
    assert (right.low, right.high) == (pytest.approx(exact.low), 1.0)
    assert (wrong.low, wrong.high) == (0.0, pytest.approx(1 - exact.low))
    assert mean_interval(np.ones(tasks))[1:] == (1.0, 1.0)


def test_an_estimate_over_no_task_is_not_known():
    nothing = np.zeros((3, 1))
    (found,) = ratio_intervals(nothing, nothing, binary=True)
    assert np.isnan(found).all()
