"""What the rows of a journal say of their rollouts."""

import pytest

from rollmake.core.settlement import failure_facts, is_terminal, max_attempts, success_facts


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


@pytest.mark.parametrize(
    ("rest", "seconds"),
    [
        ("", None),
        (',"elapsed_seconds":3', 3.0),
        (',"elapsed_seconds":"2.5","response":{"metadata":{"elapsed_seconds":9}}', 2.5),
        (',"elapsed_seconds":-1,"response":{"metadata":{"elapsed_seconds":"9"}}', 9.0),
        (',"response":{"metadata":{"elapsed_seconds":4},"output":[1,{"a":"é"}]}', 4.0),
        (',"response":{"metadata":null,"output":"elapsed_seconds"}', None),
        (',"response":"elapsed_seconds"', None),
        (',"response":null,"elapsed_seconds":null', None),
        (',"response":["elapsed_seconds"],"elapsed_seconds":[1]', None),
    ],
)
def test_how_long_a_failed_rollout_took_is_found_where_servers_write_it(rest, seconds):
    assert failure_facts([key(0, 0, rest)])["elapsed_s"].to_list() == [seconds]


def test_whatever_stands_in_a_field_of_a_failure_is_read():
    odd = ',"_ng_failure_class":{"a":[1]},"_ng_failure_terminal":"yes","reuse_cached_deliverable":[]'
    assert failure_facts([key(1, 2, odd), key(2**70, 0), key(-1, 0)]).rows() == [
        (1, 2, "{'a': [1]}", True, False, None),
        (-1, 0, "None", False, False, None),
    ]
    assert success_facts([key(2**70, 0), key(0, -(2**70)), key(1, 1)]).rows() == [(1, 1, None, False)]


@pytest.mark.parametrize("retry", [False, True])
def test_a_class_that_is_no_text_is_no_class_that_is_retried(retry):
    lines = [key(0, 0, ',"_ng_failure_class":["timeout_exceeded"],"_ng_failure_terminal":true')]
    assert failure_facts(lines, retry)["terminal"].to_list() == [True]


def test_skipped_is_terminal_only_by_its_flag_unless_timeouts_are_retried():
    assert not is_terminal({"_ng_failure_class": "skipped"})
    assert is_terminal({"_ng_failure_class": "skipped"}, retry_terminal_timeouts=True)
    assert not is_terminal({"_ng_failure_class": "timeout_exceeded", "_ng_failure_terminal": True}, True)


def test_rewards_and_masks_of_stored_rollouts():
    lines = [key(0, 0, ',"reward":0.5'), key(0, 1, ',"reward":true,"mask_sample":1'), key(0, 2, ',"reward":"high"')]
    assert success_facts(lines).rows() == [(0, 0, 0.5, False), (0, 1, 1.0, True), (0, 2, None, False)]
