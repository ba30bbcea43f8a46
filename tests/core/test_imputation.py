"""What is scored of a run, and what stands for rollouts without a result."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.coverage import State
from rollmake.core.imputation import Scoring, imputed, stripped

OWED = {"server": pl.String, "task": pl.Int64, "rollout": pl.Int64, "agent": pl.String}
CLASSES = st.sampled_from(["a", "b"])


def record(task, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "x"}, **fields}


def failure(task, name, rollout=0, **fields):
    return record(task, rollout, _ng_failure_class=name, _ng_failure_message="m", **fields)


def scored(owed=(), stored=(), failures=(), server="s", **count):
    """The items of one server, and the state of every key."""
    scoring = Scoring(dict, **{"count_classes": (), "count_missing": False} | count)
    for row in stored:
        scoring.add_rollout(server, row)
    for row in failures:
        scoring.outcomes.add_failure(server, row)
    keys = [(server, row["_ng_task_index"], row["_ng_rollout_index"], "x") for row in owed]
    states = scoring.settle(pl.DataFrame(keys, schema=OWED, orient="row"))
    for row in owed:
        scoring.impute(server, row)
    return dict(scoring.items()).get(server, []), states


def test_imputed_repeats_are_sorted_in():
    items, _ = scored([record(0, 0), record(0, 1)], [record(0, 1, reward=1)], count_missing=True)
    assert [(row["_ng_rollout_index"], row["reward"]) for row in items] == [(0, 0.0), (0 + 1, 1)]


def test_only_what_left_no_row_is_imputed():
    owed = [record(task) for task in range(3)]
    items, _ = scored(owed, [record(0, reward=1)], [failure(1, "agent_request_failed")], count_missing=True)
    assert [row["_ng_task_index"] for row in items] == [0, 2]


def test_nothing_is_counted_unless_asked_for():
    items, states = scored([record(0), record(1)], [], [failure(0, "a")])
    assert items == []
    assert sorted(states["state"]) == [State.FAILED, State.MISSING]


def test_the_last_failure_stands_and_a_success_wins():
    failures = [failure(0, "a"), failure(0, "b"), failure(1, "b"), failure(1, "a", note=1), failure(2, "a")]
    items, _ = scored([], [record(2, reward=1)], failures, count_classes=["a"])
    assert [row["_ng_task_index"] for row in items] == [1, 2]
    assert items[0] == record(1, mask_sample=False, reward=0.0, note=1)


@pytest.mark.parametrize("reward", [0.25, -1, None, "high"])
def test_a_failure_keeps_its_reward(reward):
    items, states = scored([], [], [failure(0, "a", reward=reward)], count_classes=["a"])
    assert items[0]["reward"] == reward
    number = isinstance(reward, int | float)
    assert states["state"].to_list() == [State.IMPUTED if number else State.UNSCORED]


def test_details_of_the_failure_are_left_out_and_it_is_not_masked():
    details = {"failure_kind": "judge_failed", "failure_reason": "x", "_ng_failure_terminal": True, "mask_sample": True}
    found = imputed(failure(0, "a", **details, _ng_attempt_index=2), record(0), ())
    assert found == record(0, _ng_attempt_index=2, mask_sample=False, reward=0.0)


def test_fields_come_from_the_materialized_row_if_real_records_carry_them():
    row = record(1, subset="easy", score=5, _ng_rollout_id="r", responses_create_params={}, response={}, other=1)
    real = record(0, reward=1, subset="hard", _ng_rollout_id="q", responses_create_params={}, response={"usage": {}})
    items, _ = scored([record(0), row], [real], count_missing=True)
    assert items[1] == record(1, reward=0.0, subset="easy")


def test_fields_of_another_server_are_not_filled_in_and_what_the_failure_says_stands():
    scoring = Scoring(dict, count_classes=["a"], count_missing=False)
    scoring.add_rollout("t", record(0, score=1, reward=1))
    scoring.add_rollout("s", record(0, subset="hard", reward=1))
    scoring.outcomes.add_failure("s", failure(1, "a", subset="easy"))
    scoring.settle(pl.DataFrame(schema=OWED))
    scoring.impute("s", record(1, subset="other", score=3))
    items = dict(scoring.items())
    assert list(items) == ["t", "s"]
    assert items["s"][1] == record(1, subset="easy", mask_sample=False, reward=0.0)


def test_a_zero_names_agent_and_server_as_its_row_does():
    stamped = {"_ng_task_index": 1, "_ng_rollout_index": 2, "_ng_environment_server": "s"}
    assert imputed(None, stamped, ()) == stamped | {"agent_ref": None, "reward": 0.0}
    assert imputed(None, record(0), ()) == record(0, reward=0.0)


def test_a_counted_failure_without_materialized_row_is_still_scored():
    scoring = Scoring(dict, count_classes=["a"], count_missing=False)
    scoring.outcomes.add_failure("s", failure(4, "a"))
    scoring.settle(pl.DataFrame(schema=OWED))
    assert dict(scoring.items()) == {"s": [record(4, mask_sample=False, reward=0.0)]}


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.integers(0, 5), st.booleans()),
    st.lists(st.tuples(st.integers(0, 5), CLASSES)),
    st.sets(CLASSES),
    st.booleans(),
)
def test_what_is_scored_is_what_the_coverage_says(stored, failed, classes, count_missing):
    owed = [record(task, subset="x") for task in range(6)]
    rows = [record(task, **({"reward": 1} if numeric else {})) for task, numeric in stored.items()]
    failures = [failure(task, name) for task, name in failed]
    items, states = scored(owed, rows, failures, count_classes=classes, count_missing=count_missing)
    left_out = states.filter(pl.col("state").is_in([State.FAILED, State.MISSING]))["task"]
    assert [row["_ng_task_index"] for row in items] == sorted(set(range(6)) - set(left_out))
    assert not any(name.startswith("_ng_failure") for row in items for name in row)


def test_what_is_sent_is_stripped():
    heavy = {name: {"x": 1} for name in ("ng_agent_observations", "ng_model_call_capture", "ng_trajectory")}
    response = {"id": "r", "output": [], "usage": {"input_tokens": 1}, "incomplete_details": None}
    full = {
        "response": response,
        "responses_create_params": {},
        **record(0, reward=1, ng_perf={"num_turns": 1}, _ng_x=1),
    }
    kept = record(0, reward=1, ng_perf={"num_turns": 1}, _ng_x=1)
    kept["response"] = {"usage": {"input_tokens": 1}, "incomplete_details": None}
    found = stripped(full | heavy)
    assert found == kept
    assert list(found)[-1] == "response"


@pytest.mark.parametrize("response", [None, "text", {}, {"id": "r"}, [1]])
def test_a_response_without_what_is_kept_is_not_sent(response):
    assert stripped(record(0, response=response)) == record(0)
