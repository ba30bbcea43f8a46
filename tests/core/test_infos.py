"""Frames as plain objects."""

import math

import polars as pl
import pytest

from rollmake.core.columns import frame_of
from rollmake.core.infos import as_dicts, rollout_infos


def infos(*rows):
    keys = [{"_ng_task_index": task, "_ng_rollout_index": 0} for task in range(len(rows))]
    found = rollout_infos(frame_of([key | row for key, row in zip(keys, rows, strict=True)]))
    for task, info in enumerate(found):
        assert (info.pop("rollout_id"), info.pop("_ng_task_index"), info.pop("_ng_rollout_index")) == (
            f"{task}:0",
            task,
            0,
        )
    return found


@pytest.mark.parametrize("reward", [None, "high", [1], {"a": [None]}, True, 1, 1.0])
def test_the_reward_is_repeated_whatever_it_is(reward):
    (plain,) = infos({"reward": reward})
    assert plain == {"reward": reward}
    first, other = infos({"reward": reward}, {"reward": 0.5})
    assert (first, other) == ({"reward": reward}, {"reward": 0.5})
    assert type(first["reward"]) is type(reward)


def test_other_truth_values_are_0_and_1():
    found = infos({"ok": True, "response": {"usage": {"cached": False}}})
    assert found == [{"ok": 1, "cached": 0}]
    assert {type(value) for value in found[0].values()} == {int}


def test_a_reward_in_usage_stands_and_is_not_replaced_by_null():
    assert infos({"reward": 1.0, "response": {"usage": {"reward": 9}}}) == [{"reward": 9}]
    assert infos({"reward": None, "response": {"usage": {"reward": 9}}}) == [{"reward": 9}]


def test_a_field_stands_and_usage_fills_the_gaps():
    usage = {"response": {"usage": {"tokens": 7}}}
    assert infos({"tokens": 1} | usage, usage, {"tokens": 2}) == [{"tokens": 1}, {"tokens": 7}, {"tokens": 2}]


def test_what_is_absent_is_left_out():
    assert infos({"a": 1}, {"b": 0.5, "text": "x"}, {}) == [{"a": 1}, {"b": 0.5}, {}]


def test_dicts_have_no_value_that_is_null_or_not_finite():
    frame = pl.DataFrame({"a": [1.0, math.inf, None], "b": [1, None, 3], "c": ["x", "y", None]})
    assert as_dicts(frame) == [{"a": 1.0, "b": 1, "c": "x"}, {"c": "y"}, {"b": 3}]
    assert as_dicts(frame.head(1)) == [{"a": 1.0, "b": 1, "c": "x"}]
