"""The default metrics against plain statistics, and the rules that plain statistics do not know."""

import math
import statistics

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.columns import frame_of
from rollmake.core.errors import DataError
from rollmake.core.metrics import aggregate_metrics, metrics_of

NUMBERS = st.one_of(
    st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6, allow_nan=False), st.sampled_from([0, 1, 0.5])
)
VALUES = st.one_of(NUMBERS, st.none(), st.sampled_from(["text", [1], {"a": 1}]))
RECORDS = st.dictionaries(
    st.tuples(st.integers(0, 4), st.integers(0, 3)),
    st.fixed_dictionaries(
        {},
        optional={
            "reward": VALUES,
            "score": VALUES,
            "_hidden": NUMBERS,
            "mask_sample": st.sampled_from([True, False, None, 1]),
            "response": st.fixed_dictionaries({"usage": st.dictionaries(st.sampled_from(["tokens", "more"]), VALUES)}),
        },
    ),
    max_size=12,
)


def record(task, rollout, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}


def numbers_of(row):
    """The columns of one record, by the words of the contract."""
    members = {**row, **(row.get("response") or {}).get("usage", {})}
    members.pop("mask_sample", None)
    return {k: v for k, v in members.items() if isinstance(v, bool | int | float) and not k.startswith("_")}


def by_hand(rows):
    """The five statistics of some measured records."""
    numbers = [numbers_of(row) for row in rows]
    found = {}
    for name in {name for one in numbers for name in one}:
        values = [one[name] for one in numbers if name in one]
        found |= {f"mean/{name}": statistics.fmean(values), f"median/{name}": statistics.median(values)}
        found |= {f"max/{name}": max(values), f"min/{name}": min(values)}
        if len(values) > 1:
            found[f"std/{name}"] = statistics.stdev(map(float, values))
        elif len(rows) == 1:
            found[f"std/{name}"] = 0.0
    return found


def close(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert math.isclose(actual[name], value, rel_tol=1e-9, abs_tol=1e-9), name


STATISTICS = ("mean/", "median/", "max/", "min/", "std/")


@settings(deadline=None, max_examples=60)
@given(RECORDS)
def test_statistics_are_those_of_the_values(records):
    rows = [record(*key, **fields) for key, fields in sorted(records.items())]
    measured = [row for row in rows if not row.get("mask_sample")]
    found = aggregate_metrics(rows[::-1])
    overall = {k: v for k, v in found["agent_metrics"].items() if k.startswith(STATISTICS)}
    close(overall, by_hand(measured))
    groups = {entry["_ng_task_index"]: entry for entry in found["group_level_metrics"]}
    assert list(groups) == sorted({row["_ng_task_index"] for row in measured})
    for task, entry in groups.items():
        mine = [row for row in measured if row["_ng_task_index"] == task]
        close({k: v for k, v in entry.items() if k.startswith(STATISTICS)}, by_hand(mine))
        assert entry["num_rollouts"] == entry["expected_num_rollouts"] == len(mine) == len(entry["rollout_infos"])
    assert found["key_metrics"].keys() >= {name for name in overall if name.startswith("mean/")}


@settings(deadline=None, max_examples=60)
@given(RECORDS)
def test_the_reply_is_strict_json_and_needs_no_rows(records):
    rows = [record(*key, **fields) for key, fields in records.items()]
    found = aggregate_metrics(rows)
    assert orjson.loads(orjson.dumps(found)) == found
    assert metrics_of(frame_of(rows)) == found


@settings(deadline=None, max_examples=60)
@given(RECORDS)
def test_infos_repeat_every_number_as_it_was(records):
    rows = {key: record(*key, **fields) for key, fields in records.items()}
    for group in aggregate_metrics(list(rows.values()))["group_level_metrics"]:
        for info in group["rollout_infos"]:
            task, rollout = info["_ng_task_index"], info["_ng_rollout_index"]
            row = rows[task, rollout]
            expected = {k: int(v) if isinstance(v, bool) else v for k, v in numbers_of(row).items()}
            expected |= {"reward": row["reward"]} if "reward" in row else {}
            expected |= {"rollout_id": f"{task}:{rollout}", "_ng_task_index": task, "_ng_rollout_index": rollout}
            assert info == expected
            assert {k: type(v) for k, v in info.items()} == {k: type(v) for k, v in expected.items()}


def test_empty_input_has_an_empty_reply():
    empty = {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}, "repeat_level_metrics": []}
    assert aggregate_metrics([]) == empty | {"perf_summary": None}


def test_extremes_are_whole_numbers_only_if_every_column_is_whole_and_without_gaps():
    whole = aggregate_metrics([record(0, 0, a=1, b=True), record(0, 1, a=2, b=False)])["agent_metrics"]
    assert type(whole["max/a"]) is int
    assert type(whole["min/b"]) is int
    gap = aggregate_metrics([record(0, 0, a=1, b=True), record(0, 1, a=2)])["agent_metrics"]
    assert type(gap["max/a"]) is float
    fraction = aggregate_metrics([record(0, 0, a=1, b=0.5), record(0, 1, a=2, b=1)])["agent_metrics"]
    assert type(fraction["max/a"]) is float


@pytest.mark.parametrize("name", ["reward", "a"])
def test_a_fraction_that_is_masked_does_not_make_a_column_fractional(name):
    values = [record(0, 0, **{name: 1}), record(0, 1, **{name: True}), record(0, 2, **{name: False})]
    found = aggregate_metrics([*values, record(0, 3, mask_sample=True, **{name: 0.5})])["agent_metrics"]
    assert (found[f"max/{name}"], found[f"min/{name}"]) == (1, 0)
    assert type(found[f"max/{name}"]) is type(found[f"min/{name}"]) is int


@pytest.mark.parametrize(
    ("member", "mean"), [(None, 7.0), ("s", 7.0), ({}, 7.0), ([1], 7.0), (2, 4.5), (True, 4.0), (2.5, 4.75)]
)
@pytest.mark.parametrize("name", ["x", "reward"])
def test_a_member_of_usage_takes_the_place_of_a_field_whatever_it_is(name, member, mean):
    """As the reference does; the infos of rollouts keep the field, unless it is the reward and a number takes its place."""
    rows = [record(0, 0, **{name: 5, "response": {"usage": {name: member}}}), record(0, 1, **{name: 7})]
    found = aggregate_metrics(rows)
    assert found["agent_metrics"][f"mean/{name}"] == mean
    kept = 5 if name == "x" or not isinstance(member, int | float) else member
    assert found["group_level_metrics"][0]["rollout_infos"][0][name] == kept


def test_an_undefined_spread_is_left_out_but_of_a_single_rollout_it_is_0():
    found = aggregate_metrics([record(0, 0, reward=1.0, a=2), record(1, 0, reward=1.0)])
    assert found["agent_metrics"]["std/reward"] == 0.0
    assert "std/a" not in found["agent_metrics"]
    assert found["group_level_metrics"][0]["std/a"] == 0.0


def test_unscored_rollouts_are_not_zero():
    found = aggregate_metrics(
        [record(0, 0, reward=None), record(0, 1, reward=1.0), record(0, 2), record(0, 3, reward="high")]
    )
    assert found["agent_metrics"]["mean/reward"] == 1.0
    infos = found["group_level_metrics"][0]["rollout_infos"]
    assert [info.get("reward", "absent") for info in infos] == [None, 1.0, "absent", "high"]


def test_usage_wins_in_statistics_and_the_field_in_infos():
    found = aggregate_metrics([record(0, 0, tokens=1, response={"usage": {"tokens": 7}})])
    assert found["agent_metrics"]["mean/tokens"] == 7.0
    assert found["group_level_metrics"][0]["rollout_infos"][0]["tokens"] == 1


def test_masked_rollouts_are_counted_and_left_out():
    rows = [record(0, 2, reward=0, mask_sample=True), record(1, 0, reward=1), record(1, 1, reward=0.5)]
    found = aggregate_metrics(rows)
    coverage = {"measured_rollouts": 2, "masked_rollouts": 1, "measured_tasks": 1, "fully_masked_tasks": 1}
    coverage = {f"coverage/{name}": count for name, count in coverage.items()}
    assert found["agent_metrics"]["mean/reward"] == 0.75
    assert found["agent_metrics"]["num_repeats"] == 3
    assert found["key_metrics"] == {"mean/reward": 0.75} | coverage
    everything = aggregate_metrics([record(0, 0, reward=1, mask_sample=True)])
    assert everything["agent_metrics"].keys() == coverage.keys()
    assert everything["group_level_metrics"] == []


@pytest.mark.parametrize("value", [2**47, 1_700_000_000_000_000_000, 2**63 + 5, 1.7e308, -(2**62)])
def test_numbers_that_break_histograms_are_scored(value):
    found = aggregate_metrics([record(0, 0, reward=1.0, t_ns=value), record(0, 1, reward=0.0, t_ns=value)])
    assert found["agent_metrics"]["max/t_ns"] == pytest.approx(value)
    assert found["agent_metrics"]["mean/reward"] == 0.5
    assert found["group_level_metrics"][0]["rollout_infos"][0]["t_ns"] == value


def test_statistics_that_are_not_finite_are_left_out():
    found = aggregate_metrics([record(0, 0, a=math.inf, b=1.0), record(0, 1, a=2.0, b=math.nan)])
    assert found["agent_metrics"]["min/a"] == 2.0
    assert found["agent_metrics"]["mean/b"] == 1.0
    assert not {"max/a", "mean/a", "std/a"} & found["agent_metrics"].keys()
    assert not {"max/a", "mean/a", "std/a"} & found["group_level_metrics"][0].keys()


def test_a_rollout_that_is_there_twice_is_refused_even_if_masked():
    with pytest.raises(DataError, match="task 3, rollout 1"):
        aggregate_metrics([record(3, 1, reward=1), record(3, 1, reward=1, mask_sample=True), record(3, 0)])


def test_a_field_may_be_called_like_what_a_task_carries():
    rows = [record(0, 0, num_rollouts=9, rollout_id=7, sample=3), record(0, 1, num_rollouts=9)]
    entry = aggregate_metrics(rows)["group_level_metrics"][0]
    assert entry["num_rollouts"] == 2
    assert entry["mean/num_rollouts"] == 9.0
    assert entry["sample"] == {"agent_ref": {"name": "agent"}}
    assert [info["rollout_id"] for info in entry["rollout_infos"]] == [7, "0:1"]


@pytest.mark.parametrize("base", [1e9, 1.7e12, 1e15])
def test_large_numbers_that_are_close_together_keep_their_spread(base):
    values = [base + step * step for step in range(40)]
    found = aggregate_metrics([record(step // 4, step % 4, at=value) for step, value in enumerate(values)])
    assert found["agent_metrics"]["std/at"] == pytest.approx(statistics.stdev(values), rel=1e-9)
    for entry in found["group_level_metrics"]:
        first = 4 * entry["_ng_task_index"]
        assert entry["std/at"] == pytest.approx(statistics.stdev(values[first : first + 4]), rel=1e-9)
    for entry in found["repeat_level_metrics"]:
        mine = values[entry["_ng_rollout_index"] :: 4]
        assert entry["std/at"] == pytest.approx(statistics.stdev(mine), rel=1e-9)
