"""The outlook against cases worked out by hand."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.latency import LatencySummary
from rollmake.core.outlook import (
    Evidence,
    Site,
    at_once,
    capacity,
    evidence,
    fewest_jobs,
    makespan,
    next_time,
    outlook,
    window_s,
)

# Rollouts of 10 s, none longer than 60 s.
SEEN = Evidence(rollouts=100, mean_s=10.0, p50_s=9.0, margin_s=12.0, longest_s=60.0)


def site(**changes):
    return Site(**({"jobs": 2, "parallel": 4, "window_s": 100.0} | changes))


def test_evidence_of_nothing_is_none():
    assert evidence(LatencySummary()) is None


def test_evidence_of_a_summary():
    seen = evidence(LatencySummary.of([1.0, 2.0, 3.0, 4.0, 100.0]))
    assert (seen.rollouts, seen.mean_s, seen.longest_s) == (5, 22.0, 100.0)
    assert seen.p50_s == pytest.approx(3.0, rel=0.02)
    assert seen.margin_s == pytest.approx(4.0, rel=0.02)


def test_four_rollouts_make_no_margin():
    assert evidence(LatencySummary.of([1.0, 2.0, 3.0, 4.0])).margin_s == 0.0


@pytest.mark.parametrize(
    ("budget_s", "margin_s", "expected"),
    [(None, 12.0, None), (3520.0, 12.0, 3508.0), (10.0, 12.0, 0.0), (12.0, 12.0, 0.0)],
)
def test_window(budget_s, margin_s, expected):
    assert window_s(budget_s, margin_s) == expected


@pytest.mark.parametrize(
    ("window", "mean", "expected"),
    [
        (100.0, 10.0, 40),  # each of 4 slots starts at 0, 10, ..., 90
        (95.0, 10.0, 40),  # the last one at 90
        (5.0, 10.0, 4),  # one each
        (0.0, 10.0, 0),
        (None, 10.0, float("inf")),
    ],
)
def test_capacity(window, mean, expected):
    assert capacity(site(window_s=window), mean) == expected


@pytest.mark.parametrize(
    ("changes", "shards", "expected"),
    [
        ({"jobs": 2}, 8, 2),
        ({"jobs": 20}, 8, 8),
        ({"jobs": 20, "in_flight": 12}, 8, 3),  # three times 4 requests
        ({"jobs": 20, "in_flight": 3}, 8, 1),  # one job runs all the same
        ({"jobs": 2}, 0, 0),
    ],
)
def test_at_once(changes, shards, expected):
    assert at_once(site(**changes), shards) == expected


def test_shards_take_the_first_free_job():
    # Job one: 5, then 1 and 4; job two: 3, then 4.
    assert makespan([5, 3, 4, 1], 2) == 7
    assert makespan([5, 3, 4, 1], 1) == 13
    assert makespan([5, 3, 4, 1], 4) == 5
    assert makespan([], 0) == 0


def test_four_shards_on_two_jobs():
    # 80 rollouts in 4 slots of 10 s: 200 s a shard; 40 in an allocation: 2 links; two rounds of shards.
    found = outlook([80, 80, 0, 80, 80], site(), SEEN)
    assert (found.rollouts, found.jobs, found.links, found.allocations, found.seconds) == (320, 2, 2, 8, 400.0)
    assert found.bound == "the number of jobs: 2 at once, for 4 shards"


def test_enough_jobs_are_bound_by_the_shards_own_concurrency():
    found = outlook([80, 40], site(jobs=9), SEEN)
    assert (found.jobs, found.seconds, found.allocations) == (2, 200.0, 3)
    assert found.bound.startswith("concurrency: num_samples_in_parallel 4")
    assert "owes 80" in found.bound


def test_a_small_rest_is_bound_by_the_longest_rollout():
    found = outlook([8, 4], site(jobs=9), SEEN)
    assert found.seconds == 60.0
    assert found.bound == "the longest rollout: 1 min 00 s"


def test_in_flight_binds():
    found = outlook([80, 80, 80], site(jobs=9, in_flight=5), SEEN)
    assert (found.jobs, found.seconds) == (1, 600.0)
    assert found.bound == "in_flight: 5 requests at once, for 3 shards"


def test_servers_bind():
    found = outlook([80, 80], site(max_per_s=0.5), SEEN)
    assert found.seconds == 320.0
    assert found.bound == "the servers: 0.5 rollouts per second"


def test_servers_that_are_fast_enough_do_not_bind():
    assert outlook([80, 80], site(max_per_s=100.0), SEEN).seconds == 200.0


def test_an_allocation_that_is_too_short_gives_no_outlook():
    assert outlook([1], site(window_s=0.0), SEEN) is None


def test_nothing_owed_ends_at_once():
    found = outlook([0, 0], site(window_s=0.0), SEEN)
    assert (found.seconds, found.allocations, found.bound) == (0.0, 0, "nothing is owed")


def test_without_a_time_limit_each_shard_is_one_allocation():
    found = outlook([800, 80], site(window_s=None), SEEN)
    assert (found.links, found.allocations) == (1, 2)


@pytest.mark.parametrize(("within_s", "jobs"), [(800, 1), (799, 2), (400, 2), (399, 4), (200, 4)])
def test_fewest_jobs(within_s, jobs):
    # Four shards of 200 s: one job takes 800 s, two take 400 s, three as well, four take 200 s.
    found = fewest_jobs([80, 80, 80, 80], site(jobs=1), SEEN, within_s)
    assert found.jobs == jobs
    assert found.seconds <= within_s


def test_no_number_of_jobs_is_enough():
    assert fewest_jobs([80, 80], site(), SEEN, 199) is None
    assert fewest_jobs([80, 80], site(in_flight=4), SEEN, 399) is None


@given(st.lists(st.integers(0, 500), max_size=30), st.integers(1, 5000), st.integers(1, 8))
def test_fewest_is_the_smallest_of_all_that_end_in_time(owed, within_s, parallel):
    where = site(parallel=parallel)
    found = fewest_jobs(owed, where, SEEN, within_s)
    every = [
        outlook(owed, site(parallel=parallel, jobs=jobs), SEEN) for jobs in range(1, max(sum(map(bool, owed)), 1) + 1)
    ]
    ending = [each for each in every if each.seconds <= within_s]
    assert (found and found.jobs) == (ending[0].jobs if ending else None)


NOW = datetime(2026, 1, 31, 20, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21:00", datetime(2026, 1, 31, 20, 0, tzinfo=UTC)),
        ("07:30", datetime(2026, 2, 1, 6, 30, tzinfo=UTC)),
        ("20:30", datetime(2026, 2, 1, 19, 30, tzinfo=UTC)),
        ("2026-02-03T08:00", datetime(2026, 2, 3, 7, 0, tzinfo=UTC)),
        ("2026-02-03T08:00+00:00", datetime(2026, 2, 3, 8, 0, tzinfo=UTC)),
    ],
)
def test_next_time(text, expected):
    assert next_time(text, NOW) == expected


@pytest.mark.parametrize("text", ["25:00", "soon", "", "2026-02-31T08:00"])
def test_no_time(text):
    with pytest.raises(ValueError, match=r".+"):
        next_time(text, NOW)
