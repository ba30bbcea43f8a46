"""The frame of scalars, built block by block, is the one that all records together give."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rollmake.core.blocks import BLOCK, ScoreBlocks, loose_table, scalars, stack
from rollmake.core.columns import frame_from, frame_of, joined


def row(task=0, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def blocks_of(rows, at_once=7, texts=()):
    blocks = ScoreBlocks(texts)
    for start in range(0, len(rows), at_once):
        blocks.add(rows[start : start + at_once])
    return blocks.frame()


def test_no_records_still_have_every_fixed_column():
    assert_frame_equal(blocks_of([]), frame_of([]))


def test_replies_are_not_held():
    text = "x" * 10_000
    response = {"output": text, "usage": {"tokens": 3, "text": text}}
    fixed, numbers = scalars(
        loose_table([row(reward=1, text=text, many=[text], response=response, ng_perf={"s": 1.5}, ok=True)])
    )
    assert {name: list(values) for name, values in numbers.items()} == {
        "field/ok": [True],
        "usage/tokens": [3],
        "perf/s": [1.5],
    }
    assert text not in str(fixed)


def test_texts_are_taken_in_whatever_they_hold():
    values = ["four", 4, 4.0, True, None, ["a"], {"b": "é"}, ""]
    rows = [row(index, said=value) for index, value in enumerate(values)] + [row(99)]
    frame = blocks_of(rows, texts=["said", "said", "other"])
    assert frame["json/said"].to_list() == ['"four"', "4", "4.0", "true", None, '["a"]', '{"b":"é"}', '""', None]
    assert frame["json/other"].to_list() == [None] * len(rows)
    assert blocks_of([], texts=["said"]).schema["json/said"] == pl.String


@pytest.mark.parametrize("response", [None, "text", [], {"usage": None}, {"usage": [1]}, {"usage": "x"}])
def test_a_response_that_scoring_refuses_counts_as_none(response):
    frame = blocks_of([row(response=response, ng_perf=response, agent_ref=response, _ng_environment_server=5)])
    assert frame.drop("observed").equals(frame_of([row()]).drop("observed"))


@pytest.mark.parametrize("attempt", [None, "1", -1, 2**31, True, 1.0])
def test_what_is_no_attempt_counts_as_the_first(attempt):
    assert blocks_of([row(_ng_attempt_index=attempt)])["attempt"].to_list() == [0]


def test_blocks_of_different_types_and_columns_become_one_frame():
    kinds = [{"a": True, "reward": True}, {"a": 2, "b": 1, "reward": 1}, {"a": 0.5, "c": 1, "reward": 0.5}]
    rows = [row(i, **kinds[i // BLOCK]) for i in range(2 * BLOCK + 1)]
    frame = blocks_of(rows)
    assert_frame_equal(frame, frame_of(rows), check_column_order=False)
    assert frame["field/a"].dtype == pl.Float64
    assert frame["exact/field/a"].to_list() == ["1"] * BLOCK + ["2"] * BLOCK + [None]
    assert frame["exact/field/reward"].unique().sort().to_list() == [None, "1", "true"]


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.just("text")
ROWS = st.lists(
    st.fixed_dictionaries(
        {"_ng_task_index": st.integers(0, 3), "_ng_rollout_index": st.integers(0, 3)},
        optional={
            "reward": VALUES,
            "a": VALUES,
            "mask_sample": st.booleans(),
            "response": st.fixed_dictionaries({"usage": st.fixed_dictionaries({}, optional={"tokens": VALUES})}),
            "ng_perf": st.fixed_dictionaries({}, optional={"seconds": VALUES}),
        },
    ),
    min_size=1,
    max_size=8,
)


@given(ROWS, st.integers(0, 8))
def test_any_split_gives_the_frame_of_the_whole(rows, cut):
    parts = [scalars(loose_table(part)) for part in (rows[:cut], rows[cut:]) if part]
    whole = frame_from(scalars(loose_table(rows)))
    assert_frame_equal(stack([frame_from(part) for part in parts]), whole, check_column_order=False)
    assert_frame_equal(frame_from(joined(parts)), whole, check_column_order=False)
    assert_frame_equal(frame_of(rows), whole, check_column_order=False)
