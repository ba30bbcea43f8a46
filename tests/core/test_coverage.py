"""Coverage adds up, whatever happened."""

from pathlib import Path

import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rollmake.core.coverage import LISTED_KEYS, State, coverage, incomplete, states
from rollmake.core.lost import Lost

SCHEMA = Path(__file__).parents[2] / "schemas" / "coverage.schema.yaml"
VALIDATOR = Draft202012Validator(yaml.safe_load(SCHEMA.read_text(encoding="utf-8")))
KEY = {"server": pl.String, "task": pl.Int64, "rollout": pl.Int64}
OWED = KEY | {"agent": pl.String}
STORED = KEY | {"masked": pl.Boolean, "numeric": pl.Boolean}
FAILED = KEY | {"failure_class": pl.String, "numeric": pl.Boolean, "attempts": pl.Int64, "terminal": pl.Boolean}
LIMIT = 2
KEYS = st.tuples(st.sampled_from(["s", "t", None]), st.integers(0, 3), st.integers(0, 2))
PARTS = ("scored", "unscored", "masked", "unrouted", "imputed", "missing")


def frame(rows, schema):
    return pl.DataFrame([(*key, *rest) for key, *rest in rows], schema=schema, orient="row")


def states_of(owed=(), stored=(), failures=(), **count):
    """`failures` are rows of the sidecar, in order: key, class, numeric and, if it is, terminal."""
    owed = [(key, "agent of " + str(key[0])) for key in owed]
    rows = {}
    for key, name, numeric, *terminal in failures:
        *_, attempts, before = rows.get(key, (0, False))
        rows[key] = (key, name, numeric, attempts + 1, before or terminal == [True])
    return states(frame(owed, OWED), frame(stored, STORED), frame(rows.values(), FAILED), **count)


def covered(*arguments, **count):
    return coverage(states_of(*arguments, **count), LIMIT)


def state_of(stored=(), failures=(), **count):
    key = ("s", 0, 0)
    found = states_of([key], [(key, *s) for s in stored], [(key, *f) for f in failures], **count)
    assert len(found) == 1
    return found["state"][0]


@settings(deadline=None, max_examples=60)
@given(
    st.sets(KEYS),
    st.dictionaries(KEYS, st.tuples(st.booleans(), st.booleans())),
    st.lists(st.tuples(KEYS, st.sampled_from(["a", "b", None]), st.booleans(), st.booleans())),
    st.sets(st.sampled_from(["a", "b", "c"])),
    st.booleans(),
)
def test_it_adds_up(owed, stored, failures, classes, count_missing):
    rows = [(key, *facts) for key, facts in stored.items()]
    numbers = covered(sorted(owed, key=str), rows, failures, count_classes=classes, count_missing=count_missing)
    everything = owed | set(stored) | {key for key, *_ in failures}
    assert numbers["expected"] == len(everything)
    for part in (numbers, *numbers["servers"].values(), *numbers["agents"].values()):
        assert part["expected"] == sum(part[name] for name in PARTS) + sum(part["failed_by_class"].values())
        assert part["recorded"] == part["expected"] - part["missing"] - part["unrouted"] - sum(
            part["failed_by_class"].values()
        )
        assert len(part["missing_keys"]) == part["missing"]
        assert len(part["unrouted_keys"]) == part["unrouted"]
        assert len(part["imputed_keys"]) == part["imputed"]
    for by in ("servers", "agents"):
        for name in ("expected", "recorded", "answered", "gated", "imputed_missing", *PARTS):
            assert sum(part[name] for part in numbers[by].values()) == numbers[name]
    no_row = owed - set(stored) - {key for key, *_ in failures}
    imputable = {key for key in no_row if key[0] is not None} if count_missing else set()
    assert numbers["imputed_missing"] == len(imputable)
    assert numbers["missing"] == len(no_row - imputable)
    assert numbers["answered"] == len(stored)
    tries = [key for key, *_ in failures if key not in stored]
    ended = {key for key, *_, terminal in failures if terminal and key not in stored}
    assert numbers["gated"] == len(ended | {key for key in tries if tries.count(key) >= LIMIT})
    assert numbers["gated"] <= numbers["expected"] - numbers["answered"] - len(no_row)
    assert (incomplete(numbers) is None) == (bool(everything) and everything <= set(stored))
    assert not classes & numbers["failed_by_class"].keys()
    VALIDATOR.validate(numbers)


@pytest.mark.parametrize(
    ("masked", "numeric", "state"),
    [(False, True, State.SCORED), (False, False, State.UNSCORED), (True, True, State.MASKED)],
)
def test_a_stored_rollout_is_what_its_record_says_whatever_failed_before(masked, numeric, state):
    assert state_of([(masked, numeric)], [("a", True)], count_classes=["a"]) == state


@pytest.mark.parametrize(
    ("classes", "state"),
    [([], State.FAILED), (["a"], State.FAILED), (["b"], State.IMPUTED), (["a", "b"], State.IMPUTED)],
)
def test_the_last_attempt_decides_whether_a_failure_counts(classes, state):
    assert state_of([], [("a", True), ("b", True)], count_classes=classes, count_missing=True) == state


def test_a_counted_failure_whose_reward_is_no_number_is_unscored():
    assert state_of([], [("a", False)], count_classes=["a"]) == State.UNSCORED


def test_a_rollout_without_row_is_missing_unless_it_is_imputed():
    assert state_of() == State.MISSING
    assert state_of(count_missing=True) == State.IMPUTED


def test_failures_that_counting_leaves_out_are_never_imputed_as_missing():
    owed = [("s", task, 0) for task in range(3)]
    found = states_of(owed, [(owed[0], False, True)], [(owed[1], "agent_request_failed", True)], count_missing=True)
    assert found.sort("task")["state"].to_list() == [State.SCORED, State.FAILED, State.IMPUTED]


def test_a_failure_without_class_is_counted_as_unclassified():
    assert covered([], [], [(("s", 0, 0), None, True)])["failed_by_class"] == {"unclassified": 1}


def test_missing_keys_are_listed_in_order_up_to_a_limit():
    numbers = covered([("s", task, 0) for task in range(LISTED_KEYS + 5, 0, -1)])
    assert numbers["missing"] == LISTED_KEYS + 5
    assert numbers["missing_keys"] == [[task, 0] for task in range(1, LISTED_KEYS + 1)]


def test_rollouts_without_server_or_agent_have_an_empty_name():
    numbers = covered([(None, 0, 0), ("s", 1, 0)], [(("t", 2, 0), False, True)])
    assert list(numbers["servers"]) == ["", "s", "t"]
    assert list(numbers["agents"]) == ["", "agent of None", "agent of s"]


def test_what_names_nobody_is_answered_and_unrouted_whatever_it_says():
    numbers = covered([(None, 0, 0)], [((None, 0, 0), False, True)], [])
    assert (numbers["answered"], numbers["unrouted"], numbers["recorded"], numbers["scored"]) == (1, 1, 0, 0)
    assert numbers["unrouted_keys"] == [[0, 0]]
    assert numbers["servers"][""]["unrouted"] == 1


def test_subsets_are_counted_if_they_are_known():
    found = states_of([("s", 0, 0), ("s", 1, 0)], [(("s", 0, 0), False, True)], [])
    numbers = coverage(found.with_columns(subset=pl.Series(["easy", None])), LIMIT)
    assert {name: part["missing"] for name, part in numbers["subsets"].items()} == {"": 1, "easy": 0}
    VALIDATOR.validate(numbers)
    assert "subsets" not in coverage(found, LIMIT)


@pytest.mark.parametrize(
    ("failures", "gated"),
    [
        ([("a", True)], 0),
        ([("a", True), ("b", True)], 1),
        ([("a", True, True)], 1),
        ([("a", True, True), ("b", True)], 1),
        ([], 0),
    ],
)
def test_gated_is_what_a_collector_would_not_ask_for_again(failures, gated):
    key, other = ("s", 0, 0), ("s", 1, 0)
    rows = [(key, *one) for one in failures]
    assert covered([key, other], [], rows)["gated"] == gated
    assert covered([key, other], [], rows, count_classes=["a", "b"])["servers"]["s"]["gated"] == gated
    assert covered([key, other], [(key, False, True)], rows)["gated"] == 0


def test_what_a_run_lacks_is_said_in_words():
    owed = [("s", task, 0) for task in range(4)]
    failures = [(("s", 1, 0), "broken", True), (("s", 2, 0), "slow", True)]
    found = covered(owed, [(("s", 0, 0), False, True)], failures, count_classes=["slow"])
    assert incomplete(found) == (
        "3 of 4 rollouts have no result (1 left no row; failed: broken 1; 1 only count as zero); "
        "the first that left none: task 3 rollout 0"
    )


def test_lines_that_may_be_owed_make_a_run_incomplete_and_are_in_no_other_number():
    answered = states_of([("s", 0, 0)], [(("s", 0, 0), False, True)])
    found = coverage(answered, LIMIT, Lost(by_reason={"torn": 2}, unreadable={f"shard{i}": 1 for i in range(7)}))
    VALIDATOR.validate(found)
    assert (found["expected"], found["lost_lines"], found["servers"]) == (
        1,
        {"torn": 2},
        coverage(answered, 2)["servers"],
    )
    assert incomplete(found) == (
        "damaged lines may each be a rollout that nothing else says to be owed (7 in all), see "
        "repaired/SHARD/quarantine.jsonl of shard0 1, shard1 1, shard2 1, shard3 1, shard4 1 and 2 more"
    )
    assert incomplete(coverage(answered, LIMIT, Lost(by_reason={"torn": 2}))) is None


def test_where_nothing_is_owed_nothing_is_complete():
    assert incomplete(covered()) == "no rollout is owed"
    damaged = incomplete(coverage(states_of(), LIMIT, Lost(unreadable={"a": 3})))
    assert damaged.startswith("damaged lines may each be a rollout")


@pytest.mark.parametrize("damage", [{"blank": 1}, {"duplicate": 1}, {"torn": 0}])
def test_the_schema_knows_which_lines_may_have_been_a_result(damage):
    assert VALIDATOR.is_valid(coverage(states_of(), LIMIT))
    assert not VALIDATOR.is_valid(coverage(states_of(), LIMIT, Lost(by_reason=damage)))
