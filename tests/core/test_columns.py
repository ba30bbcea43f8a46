"""Records -> frame: types, and what the types cannot hold."""

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.columns import field_names, frame_of, usage_names
from rollmake.core.errors import DataError


def record(task=0, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def test_fixed_columns():
    full = record(2, 1, _ng_attempt_index=3, _ng_environment_server="env", agent_ref={"name": "a"}, mask_sample=1)
    frame = frame_of([full, {}]).select("task", "rollout", "attempt", "server", "agent", "masked", "reward")
    assert frame.rows() == [(2, 1, 3, "env", "a", True, None), (0, 0, 0, None, None, False, None)]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2], pl.Int64, [1, 2]),
        ([1, None], pl.Int64, [1, None]),
        ([True, False], pl.Boolean, [True, False]),
        ([True, 2], pl.Int64, [1, 2]),
        ([1.5, 2], pl.Float64, [1.5, 2.0]),
        ([1.5, float("nan")], pl.Float64, [1.5, None]),
        ([2**63, 1], pl.Float64, [2.0**63, 1.0]),
        ([-(2**63), 2**63 - 1], pl.Int64, [-(2**63), 2**63 - 1]),
        (["text", 1], pl.Int64, [None, 1]),
    ],
)
def test_a_column_has_the_narrowest_type(values, dtype, expected):
    column = frame_of([record(task, x=value) for task, value in enumerate(values)])["field/x"]
    assert column.dtype == dtype
    assert column.to_list() == expected


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.one_of(st.integers(-(2**70), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False)), min_size=1)
)
def test_every_number_can_be_given_back_as_it_was(values):
    frame = frame_of([record(task, x=value) for task, value in enumerate(values)])
    exact = frame["exact/field/x"].to_list() if "exact/field/x" in frame.columns else [None] * len(values)
    known = [value if text is None else int(text) for value, text in zip(frame["field/x"], exact, strict=True)]
    assert known == values
    assert list(map(type, known)) == list(map(type, values))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.floats(0, 1), st.text(max_size=2))))
def test_rewards_can_be_given_back_whatever_they_are(values):
    frame = frame_of([record(task, reward=value) for task, value in enumerate(values)])
    assert frame["reward"].to_list() == [float(v) if isinstance(v, bool | int | float) else None for v in values]
    if not values:
        return
    exact = frame["exact/field/reward"] if "exact/field/reward" in frame.columns else [None] * len(values)
    known = [v if text is None else orjson.loads(text) for v, text in zip(frame["field/reward"], exact, strict=True)]
    assert known == values
    assert list(map(type, known)) == list(map(type, values))


def test_columns_without_a_number_are_none_and_reserved_names_are_no_fields():
    row = record(a="x", b=None, c=[1], _d=5, mask_sample=True, n=1, response={"usage": {"_u": 1, "s": "x"}})
    frame = frame_of([row | {"ng_perf": {"num_turns": 2, "note": "x"}}])
    assert field_names(frame) == ["n"]
    assert usage_names(frame) == ["_u"]
    assert [name for name in frame.columns if name.startswith("perf/")] == ["perf/num_turns"]
    assert frame["observed"].to_list() == [True]


@pytest.mark.parametrize("value", ["1", None, 1.0, True, 2**63, [1]])
@pytest.mark.parametrize("key", ["_ng_task_index", "_ng_rollout_index"])
def test_an_index_that_is_no_whole_number_is_refused(key, value):
    with pytest.raises(DataError, match=key):
        frame_of([record(), record(1, 1) | {key: value}])


@pytest.mark.parametrize("response", ["text", {"usage": "text"}, {"usage": [1]}, [1]])
def test_a_response_that_cannot_be_read_is_refused(response):
    with pytest.raises(DataError, match=r"task 4, rollout 0: response\.usage"):
        frame_of([record(4, response=response)])


@pytest.mark.parametrize("response", [None, {}, [], "", {"usage": None}, {"usage": {}}])
def test_an_empty_response_is_no_error(response):
    assert usage_names(frame_of([record(response=response)])) == []
