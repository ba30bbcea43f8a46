"""The figures of a shard say what is done, what it scores so far and at least, and what is left out."""

import polars as pl
import pytest

from rollmake.core.ledger import Ledger
from rollmake.core.outcome import Destination, Outcome
from rollmake.core.progress import duration, progress, progress_line
from rollmake.core.settlement import KEY, failure_facts, success_facts
from rollmake.core.tally import Tally


def shard(count, successes=()):
    owed = pl.DataFrame([(i, 0) for i in range(count)], schema=KEY, orient="row")
    facts = success_facts(successes)
    tally = Tally()
    tally.begin(facts)
    return Ledger(owed, facts, failure_facts([]), 2), tally


def put(ledger, tally, position, outcome, latency_s=1.0):
    ledger.record(position, outcome)
    tally.add(outcome, latency_s)


def stored(reward, masked=False):
    return Outcome(Destination.ROLLOUTS, b"", reward=reward, masked=masked)


def test_a_fresh_shard_claims_nothing():
    figures = progress("s", *shard(4), elapsed_s=0.0, state="running")
    assert (figures["owed"], figures["done"], figures["unsettled"]) == (4, 0, 4)
    assert [figures[name] for name in ("reward", "reward_unmasked", "rate_per_s", "eta_s", "masked_share")] == [
        None
    ] * 5
    assert figures["reward_lower_bound"] == 0.0
    assert progress_line(figures) == "s: 0 of 4 done, 0 in flight"


def test_rewards_of_earlier_jobs_count():
    lines = [
        b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1.0}',
        b'{"_ng_task_index":1,"_ng_rollout_index":0,"reward":0.0}',
    ]
    ledger, tally = shard(4, lines)
    put(ledger, tally, 2, stored(0.5))
    figures = progress("s", ledger, tally, elapsed_s=2.0, state="running")
    assert (figures["done"], figures["reward"], figures["reward_lower_bound"]) == (3, 0.5, 0.375)
    assert (figures["rate_per_s"], figures["eta_s"]) == (0.5, 2.0)
    line = progress_line(figures)
    assert "reward 0.5000, at least 0.3750 in the end" in line
    assert "masked" not in line, "said only once something is masked or left out"


def test_masked_and_omitted_rollouts_are_said_beside_the_reward_over_the_others():
    ledger, tally = shard(4)
    put(ledger, tally, 0, stored(0.0, masked=True))
    put(ledger, tally, 1, stored(1.0))
    put(ledger, tally, 2, Outcome(Destination.NOWHERE))
    figures = progress("s", ledger, tally, elapsed_s=1.0, state="running")
    assert (figures["reward"], figures["reward_unmasked"], figures["masked_share"]) == (0.5, 1.0, 0.5)
    assert figures["omitted"] == 1
    assert "1 omitted" in progress_line(figures)
    assert "50.0% masked, reward over the others 1.0000" in progress_line(figures)


def test_failures_are_named_by_class_and_given_up_after_the_limit():
    ledger, tally = shard(2)
    for _ in range(2):
        put(ledger, tally, 0, Outcome(Destination.SIDECAR, b"", "agent_run_error"))
    put(ledger, tally, 1, Outcome(Destination.SIDECAR, b"", ""))
    line = progress_line(progress("s", ledger, tally, elapsed_s=1.0, state="running"))
    assert "1 unnamed failure, 1 agent_run_error, 1 given up" in line


def test_a_line_names_the_most_frequent_classes_and_nothing_that_breaks_it():
    ledger, tally = shard(20)
    for position in range(20):
        name = "often" if position < 8 else f"rare {position}\n\x1b[2J" + "x" * 500
        put(ledger, tally, position, Outcome(Destination.SIDECAR, b"", name))
    line = progress_line(progress("s", ledger, tally, elapsed_s=1.0, state="running"))
    assert "0 of 20 done, 8 often, 1 rare 10" in line
    assert "8 of other classes" in line
    assert line.isprintable()
    assert len(line) < 800


def test_unscored_rollouts_do_not_move_the_reward():
    ledger, tally = shard(2)
    put(ledger, tally, 0, stored(None))
    assert progress("s", ledger, tally, elapsed_s=1.0, state="running")["reward"] is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min")]
)
def test_spans_of_time_are_for_people(seconds, text):
    assert duration(seconds) == text
