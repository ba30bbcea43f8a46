"""What is owed follows from what is on disk."""

import polars as pl
import pytest

from rollmake.core.ledger import Ledger
from rollmake.core.outcome import Destination, Outcome
from rollmake.core.settlement import (
    KEY,
    failure_facts,
    is_terminal,
    max_attempts,
    settlement,
    still_owed,
    success_facts,
)

OWED = pl.DataFrame([(0, 0), (0, 1), (1, 0), (1, 1)], schema=KEY, orient="row")


def key(task, rollout, rest=""):
    return f'{{"_ng_task_index":{task},"_ng_rollout_index":{rollout}{rest}}}'.encode()


@pytest.mark.parametrize(
    ("configured", "variable", "limit"),
    [(5, "2", 5), (None, "2", 2), (None, "", 3), (None, "x", 3), (None, "0", 3), (None, "-1", 3), (None, None, 3)],
)
def test_the_option_wins_over_the_variable_and_nonsense_means_three(configured, variable, limit):
    variables = {} if variable is None else {"NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": variable}
    assert max_attempts(configured, variables) == limit


def test_lines_without_identity_or_unreadable_say_nothing():
    lines = [
        key(0, 0),
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"reward":1}',
        b'{"_ng_task_index":1}',
        b'{"_ng_task_index":"x","_ng_rollout_index":0}',
    ]
    assert success_facts(lines).rows() == [(0, 0, None, False)]
    assert failure_facts(lines).rows() == [(0, 0, "None", False, False, None)]


def test_attempts_terminal_rows_and_reuse_are_taken_from_the_sidecar():
    failures = failure_facts(
        [
            key(0, 1, ',"_ng_failure_class":"a"'),
            key(0, 1, ',"_ng_failure_class":"b","reuse_cached_deliverable":true'),
            key(1, 0, ',"_ng_failure_class":"c","_ng_failure_terminal":true'),
            key(9, 9, ',"_ng_failure_class":"foreign"'),
        ]
    )
    settled = settlement(OWED, success_facts([key(0, 0), key(0, 0)]), failures)
    assert settled["done"].to_list() == [True, False, False, False]
    assert settled["attempts"].to_list() == [0, 2, 1, 0]
    assert settled["terminal"].to_list() == [False, False, True, False]
    assert settled["reuse"].to_list() == [False, True, False, False]
    assert settled["failure_class"].to_list() == [None, "b", "c", None]
    assert still_owed(settled, 3).to_list() == [1, 3]
    assert still_owed(settled, 2).to_list() == [3]


def test_a_success_wins_over_failures_of_the_same_rollout():
    settled = settlement(OWED, success_facts([key(0, 0)]), failure_facts([key(0, 0)] * 3))
    assert still_owed(settled, 1).to_list() == [1, 2, 3]


def test_the_longest_known_come_first_and_the_rest_keeps_its_order():
    failures = failure_facts([key(0, 1, ',"elapsed_seconds":5'), key(1, 1, ',"elapsed_seconds":50')])
    assert still_owed(settlement(OWED, success_facts([]), failures), 3, longest_first=True).to_list() == [3, 1, 0, 2]


def test_skipped_is_terminal_only_by_its_flag_unless_timeouts_are_retried():
    assert not is_terminal({"_ng_failure_class": "skipped"})
    assert is_terminal({"_ng_failure_class": "skipped"}, retry_terminal_timeouts=True)
    assert not is_terminal({"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": True}, True)


@pytest.fixture
def ledger():
    failures = failure_facts([key(0, 1, ',"_ng_failure_class":"a"')])
    return Ledger(settlement(OWED, success_facts([key(0, 0)]), failures), 2)


def test_the_ledger_follows_what_happens(ledger):
    assert ledger.to_dispatch().tolist() == [1, 2, 3]
    ledger.record(1, Outcome(Destination.SIDECAR, failure_class="b"))
    ledger.record(2, Outcome(Destination.ROLLOUTS))
    ledger.record(3, Outcome(Destination.NOWHERE))
    assert ledger.to_dispatch().tolist() == []
    assert ledger.owed == 1
    assert ledger.gated.tolist() == [False, True, False, False]
    assert ledger.failed_by_class() == {"b": 1}


def test_a_failure_below_the_limit_is_asked_again_and_a_terminal_one_is_not(ledger):
    ledger.record(2, Outcome(Destination.SIDECAR, failure_class="x"))
    ledger.record(3, Outcome(Destination.SIDECAR, failure_class="x", terminal=True))
    assert ledger.to_dispatch().tolist() == [1, 2]
    ledger.record(2, Outcome(Destination.ROLLOUTS))
    assert ledger.failed_by_class() == {"a": 1, "x": 1}
