"""The best and the worst rollouts, whatever the shards they lie in."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.picks import EXAMPLES, Pick, best_and_worst, extremes


def frame(rows):
    schema = {"task": pl.Int64, "rollout": pl.Int64, "masked": pl.Boolean, "reward": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        offset=pl.col("task").cast(pl.Int64) * 100, length=pl.lit(5, pl.Int64)
    )


def keys(picks, kind):
    return [(pick.task, pick.rollout) for name, pick in picks if name == kind]


def test_one_rollout_a_task_at_each_end():
    rows = [(0, 0, False, 1.0), (0, 1, False, 1.0), (1, 0, False, 0.5), (2, 0, False, 0.0), (2, 1, False, 0.0)]
    picks = best_and_worst(extremes(frame(rows), "s"))
    assert keys(picks, "best") == [(0, 0), (1, 0), (2, 0)]
    assert keys(picks, "worst") == []
    more = [*rows, (3, 0, False, 1.0), (4, 0, False, 1.0)]
    picks = best_and_worst(extremes(frame(more), "s"))
    assert keys(picks, "best") == [(0, 0), (3, 0), (4, 0)]
    assert keys(picks, "worst") == [(2, 0), (1, 0)]


def test_masked_and_unscored_rollouts_are_no_examples():
    rows = [(0, 0, True, 1.0), (1, 0, False, None), (2, 0, False, float("inf")), (3, 0, None, 0.5)]
    assert keys(best_and_worst(extremes(frame(rows), "s")), "best") == [(3, 0)]
    assert best_and_worst(extremes(frame(rows[:3]), "s")) == []


def test_where_all_are_equal_nothing_is_worst():
    picks = best_and_worst(extremes(frame([(task, 0, False, 1.0) for task in range(9)]), "s"))
    assert keys(picks, "best") == [(0, 0), (1, 0), (2, 0)]
    assert keys(picks, "worst") == []


def test_a_pick_knows_its_place():
    assert extremes(frame([(7, 2, False, 0.5)]), "0001-of-0002") == [Pick(0.5, 7, 2, "0001-of-0002", 700, 5)]


ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans(), st.sampled_from([0.0, 0.5, 1.0])),
    unique_by=lambda row: row[:2],
    max_size=30,
)


@given(ROWS)
def test_shards_do_not_matter(rows):
    whole = best_and_worst(extremes(frame(rows), "s"))
    parts = [row for index in range(3) for row in extremes(frame([r for r in rows if r[0] % 3 == index]), "s")]
    assert best_and_worst(parts) == whole
    assert len(whole) <= 2 * EXAMPLES
    assert len({pick for _, pick in whole}) == len(whole)
