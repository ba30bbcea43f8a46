"""What is owed follows from what is on disk, and from what happens."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.ledger import MOST_CLASSES, OTHERS, Ledger, positions
from rollmake.core.outcome import Destination, Outcome
from rollmake.core.settlement import KEY, failure_facts, success_facts

OWED = pl.DataFrame([(0, 0), (0, 1), (1, 0), (1, 1)], schema=KEY, orient="row")


def key(task, rollout, rest=""):
    return f'{{"_ng_task_index":{task},"_ng_rollout_index":{rollout}{rest}}}'.encode()


def of(successes, failures, limit=3, **options):
    return Ledger(OWED, success_facts(successes), failure_facts(failures), limit, **options)


def test_attempts_terminal_rows_and_reuse_are_taken_from_the_sidecar():
    failures = [
        key(0, 1, ',"_ng_failure_class":"a"'),
        key(0, 1, ',"_ng_failure_class":"b","reuse_cached_deliverable":true'),
        key(1, 0, ',"_ng_failure_class":"c","_ng_failure_terminal":true'),
        key(9, 9, ',"_ng_failure_class":"foreign"'),
    ]
    ledger = of([key(0, 0), key(0, 0), key(7, 0)], failures)
    assert ledger.done.tolist() == [True, False, False, False]
    assert ledger.attempts.tolist() == [0, 2, 1, 0]
    assert ledger.terminal.tolist() == [False, False, True, False]
    assert ledger.reuse.tolist() == [False, True, False, False]
    assert ledger.failed_by_class() == {"b": 1, "c": 1}
    assert ledger.to_dispatch().tolist() == [1, 3]
    assert of([key(0, 0)], failures, limit=2).to_dispatch().tolist() == [3]


def test_ever_new_classes_are_counted_together_after_a_thousand():
    count = MOST_CLASSES + 50
    owed = pl.DataFrame([(task, 0) for task in range(count)], schema=KEY, orient="row")
    failures = failure_facts([key(task, 0, f',"_ng_failure_class":"c{task}"') for task in range(40_000)])
    read = Ledger(owed, success_facts([]), failures, 1)
    told = Ledger(owed, success_facts([]), failure_facts([]), 1)
    for task in range(count):
        told.record(task, Outcome(Destination.SIDECAR, b"", f"c{task}"))
    for ledger in (read, told):
        classes = ledger.failed_by_class()
        assert len(classes) == MOST_CLASSES + 1
        assert (classes["c0"], classes[OTHERS]) == (1, 50)


@pytest.mark.parametrize("index", [2**63 - 1, -1, -(2**63), 4])
def test_keys_that_nobody_owes_are_passed_over_however_large(index):
    ledger = of([key(0, index), key(index, 0), key(0, 2**70)], [key(1, index), key(2**70, 1)])
    assert not ledger.done.any()
    assert not ledger.attempts.any()


def test_a_success_wins_over_failures_of_the_same_rollout():
    assert of([key(0, 0)], [key(0, 0)] * 3, limit=1).to_dispatch().tolist() == [1, 2, 3]


def test_the_longest_known_come_first_and_the_rest_keeps_its_order():
    failures = [
        key(0, 1, ',"elapsed_seconds":5'),
        key(1, 1, ',"elapsed_seconds":50'),
        key(1, 1, ',"elapsed_seconds":1'),
    ]
    assert of([], failures, longest_first=True).to_dispatch().tolist() == [3, 1, 0, 2]
    assert of([], failures).to_dispatch().tolist() == [0, 1, 2, 3]


indices = st.integers(0, 5) | st.integers(2**62, 2**63 - 1)
keys = st.lists(st.tuples(indices, st.integers(0, 3)), max_size=12)


@given(keys, keys)
def test_every_key_is_found_where_it_stands_and_no_other(owed, wanted):
    owed = list(dict.fromkeys(owed))
    frames = [pl.DataFrame(rows, schema=KEY, orient="row") for rows in (owed, wanted)]
    assert positions(*frames).tolist() == [owed.index(key) if key in owed else -1 for key in wanted]


@pytest.fixture
def ledger():
    failures = [key(0, 1, ',"_ng_failure_class":"a"')]
    return of([key(0, 0)], failures, limit=2)


def test_the_ledger_follows_what_happens(ledger):
    assert ledger.to_dispatch().tolist() == [1, 2, 3]
    ledger.record(1, Outcome(Destination.SIDECAR, failure_class="b"))
    ledger.record(2, Outcome(Destination.ROLLOUTS))
    ledger.record(3, Outcome(Destination.NOWHERE))
    assert ledger.to_dispatch().tolist() == []
    assert ledger.owed == 1
    assert ledger.gated.tolist() == [False, True, False, False]
    assert ledger.failed_by_class() == {"b": 1}


@pytest.mark.parametrize("retries", [False, True])
@pytest.mark.parametrize("name", ["timeout_exceeded", "skipped", "given_up", "", "[1]"])
@pytest.mark.parametrize("flag", [False, True])
def test_what_ends_the_tries_is_the_same_in_a_job_and_for_the_next_one(retries, name, flag):
    told = Ledger(OWED, success_facts([]), failure_facts([]), 3, retry_terminal_timeouts=retries)
    told.record(0, Outcome(Destination.SIDECAR, b"", name, flag))
    line = key(0, 0, f',"_ng_failure_class":"{name}","_ng_failure_terminal":{str(flag).lower()}')
    read = Ledger(OWED, success_facts([]), failure_facts([line], retries), 3, retry_terminal_timeouts=retries)
    assert told.terminal.tolist() == read.terminal.tolist()
    assert told.to_dispatch().tolist() == read.to_dispatch().tolist()


def test_a_failure_below_the_limit_is_asked_again_and_a_terminal_one_is_not(ledger):
    ledger.record(2, Outcome(Destination.SIDECAR, failure_class="x"))
    ledger.record(3, Outcome(Destination.SIDECAR, failure_class="x", terminal=True))
    assert ledger.to_dispatch().tolist() == [1, 2]
    ledger.record(2, Outcome(Destination.ROLLOUTS))
    assert ledger.failed_by_class() == {"a": 1, "x": 1}


def test_a_rollout_takes_a_few_bytes_whatever_happened_to_it():
    count = 10_000
    owed = pl.DataFrame({"task": range(count), "rollout": [0] * count}, schema=KEY)
    failures = failure_facts([key(task, 0, ',"_ng_failure_class":"x","elapsed_seconds":1') for task in range(count)])
    ledger = Ledger(owed, success_facts([key(task, 0) for task in range(count)]), failures, 3, longest_first=True)
    arrays = [value for value in vars(ledger).values() if isinstance(value, np.ndarray)]
    assert len(arrays) >= 7
    assert sum(array.nbytes for array in arrays) < 40 * count
    assert not [value for value in vars(ledger).values() if isinstance(value, (list, dict)) and len(value) > 10]
