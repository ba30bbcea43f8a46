"""What is started can still end."""

import pytest

from rollmake.core.deadline import Deadline, budget_s


@pytest.mark.parametrize(
    ("option", "runtime_min", "seconds"),
    [(None, 60, None), (90, 60, 90.0), (0, None, 0.0), ("auto", None, None), ("auto", 60, 3520.0), ("auto", 1, 0.0)],
)
def test_auto_takes_the_jobs_own_limit_less_what_it_takes_to_end(option, runtime_min, seconds):
    assert budget_s(option, runtime_min, 20.0) == seconds


def test_without_a_deadline_everything_is_admitted_and_nothing_is_kept():
    deadline = Deadline(None, None)
    deadline.note(5.0)
    assert deadline.admits(1e12)
    assert len(deadline._durations) == 0


def test_the_margin_is_learned_only_once_five_rollouts_finished():
    deadline = Deadline(100.0, None)
    for seconds in (40.0, 40.0, 40.0, 40.0):
        deadline.note(seconds)
        assert deadline.admits(99.9)
    deadline.note(40.0)
    assert deadline.admits(60.0)
    assert not deadline.admits(60.1)


def test_the_margin_follows_the_75th_percentile():
    deadline = Deadline(1000.0, None)
    for seconds in (10.0, 20.0, 30.0, 40.0, 100.0):
        deadline.note(seconds)
    assert deadline.admits(960.0)
    assert not deadline.admits(960.5)
    for _ in range(100):
        deadline.note(200.0)
    assert not deadline.admits(801.0)


def test_a_configured_margin_is_not_learned():
    deadline = Deadline(100.0, 0.0)
    for _ in range(10):
        deadline.note(50.0)
    assert deadline.admits(99.0)
    assert not deadline.admits(100.0)
