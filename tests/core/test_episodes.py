"""The request for a typed row."""

import pytest

from helpers.materialize import typed
from rollmake.core.episodes import episode_request, taskset_of
from rollmake.core.errors import InputError


def row(**fields):
    return typed(_ng_task_index=3, _ng_rollout_index=1, extra=1, **fields)


def test_request_holds_the_ids_and_the_task_only():
    assert episode_request(row()) == {
        "episode_id": {"rollout_id": "3-1", "attempt": 0},
        "task": {"task_id": {"taskset": "env:math", "task_id": "t1"}, "task_input": {"question": "1+1"}},
    }


@pytest.mark.parametrize("rollout_id", ["a", "A-1.b_c", "x-a0", "x-a", "x-a1b", "x-a-1", "x-a01", "0"])
def test_rollout_ids(rollout_id):
    request = episode_request(row(_ng_rollout_id=rollout_id, _ng_attempt_index=4))
    assert request["episode_id"] == {"rollout_id": rollout_id, "attempt": 4}


@pytest.mark.parametrize("rollout_id", ["", "-a", ".a", "a/b", "a b", "a\n", "é", "x-a1", "x-a10", 5, True])
def test_ids_that_cannot_name_an_episode(rollout_id):
    with pytest.raises(InputError, match="_ng_rollout_id"):
        episode_request(row(_ng_rollout_id=rollout_id))


@pytest.mark.parametrize("attempt", [True, False, -1, 1.0, "1", None])
def test_attempts_are_counted(attempt):
    with pytest.raises(InputError, match="_ng_attempt_index is "):
        episode_request(row(_ng_attempt_index=attempt))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (typed(), "env:math"),
        (typed(taskset=""), None),
        (typed(taskset=5), None),
        ({"task_id": "t", "task_input": {}}, None),
        ({"task_id": {"taskset": "t"}}, None),
        ({"task_id": {"taskset": "t"}, "task_input": None}, "t"),
        ({}, None),
    ],
)
def test_taskset(fields, expected):
    assert taskset_of(fields) == expected
