"""The proof that shards hold what the plan owes."""

import polars as pl
import pytest

from rollmake.core.errors import DataError
from rollmake.core.proof import Presence, prove

NAMES = [("a/rollouts", "a/failures"), ("b/rollouts", "b/failures")]


def frame(*rows):
    return pl.DataFrame(rows, schema={"task": pl.Int64, "rollout": pl.Int64, "shard": pl.Int32}, orient="row")


OWED = frame((0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1))


def proof(rollouts, failures, owed=OWED, servers="s"):
    owed = owed.with_columns(server=pl.Series([*servers] * (len(owed) // len(servers)), dtype=pl.String))
    return prove(owed, rollouts, failures, plan="plan", names=NAMES)


def test_what_is_there_is_counted():
    failures = frame((0, 0, 0), (0, 1, 0), (0, 1, 0))
    assert proof(frame((1, 0, 1), (0, 0, 0)), failures) == Presence(owed=4, present=2, failed=1, missing=1)
    assert proof(frame(), frame()) == Presence(owed=4, present=0, failed=0, missing=4)
    assert proof(OWED, OWED) == Presence(owed=4, present=4, failed=0, missing=0)


@pytest.mark.parametrize(
    ("rollouts", "failures", "message"),
    [
        (frame((0, 1, 1), (0, 1, 0)), frame(), "b/rollouts holds task 0, rollout 1, which plan deals to a/rollouts"),
        (frame((1, 0, 1), (1, 0, 1)), frame(), "task 1, rollout 0 is twice in b/rollouts"),
        (frame((2, 0, 0)), frame(), "a/rollouts holds task 2, rollout 0, which plan does not owe"),
        (frame(), frame((0, 2, 1)), "b/failures holds task 0, rollout 2, which plan does not owe"),
        (frame((1, 0, 0)), frame(), "a/rollouts holds task 1, rollout 0, which plan deals to b/rollouts"),
        (frame(), frame((0, 0, 1)), "b/failures holds task 0, rollout 0, which plan deals to a/failures"),
    ],
)
def test_the_first_row_that_does_not_belong_is_named(rollouts, failures, message):
    with pytest.raises(DataError, match=message):
        proof(rollouts, failures)


SHARED = frame((0, 0, 0), (0, 0, 1))


def test_the_same_key_in_two_shards_is_two_rollouts_only_under_two_servers():
    assert proof(SHARED, frame(), owed=SHARED, servers="st") == Presence(owed=2, present=2, failed=0, missing=0)
    with pytest.raises(DataError, match="task 0, rollout 0 is in a/rollouts and again in b/rollouts"):
        proof(SHARED, frame(), owed=SHARED)


def test_a_success_in_one_shard_stands_for_a_failure_in_another():
    found = proof(frame((0, 0, 1)), frame((0, 0, 0)), owed=SHARED)
    assert found == Presence(owed=1, present=1, failed=0, missing=0)


def test_rollouts_without_a_server_are_counted_too():
    owed = frame((0, 0, 0), (0, 1, 0))
    assert proof(frame((0, 0, 0)), frame((0, 1, 0)), owed=owed, servers=[None]) == Presence(2, 1, 1, 0)
