"""The status never says more than is on disk, and never calls an unfinished run complete."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.status import (
    HEADERS,
    SILENCE_S,
    Found,
    ShardStatus,
    cells,
    covered,
    screen,
    shard_status,
    table,
    total,
)

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def ago(seconds):
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def progress(**changes):
    content = {"done": 6, "gated": 1, "failed_by_class": {"a": 2}, "state": "running", "rate_per_s": 0.5, "eta_s": 90.0}
    return content | {"updated": ago(5), "last_row": ago(42)} | changes


def status(**facts):
    return shard_status(Found(name="0000-of-0001", planned=10, **facts), NOW)


def test_a_running_shard():
    shard = status(progress=progress())
    assert (shard.state, shard.planned, shard.done, shard.gated, shard.owed) == ("running", 10, 6, 1, 3)
    assert (shard.rate_per_s, shard.eta_s, shard.age_s) == (0.5, 90.0, 42.0)
    assert shard.failed_by_class == {"a": 2}


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "not started"),
        ({"counted": 0}, "started"),
        ({"counted": 10, "sealed": True}, "sealed"),
        ({"progress": progress(state="owed")}, "owed"),
        ({"progress": progress(state="waiting")}, "waiting"),
        ({"progress": progress(state="sealed"), "sealed": True}, "sealed"),
        ({"progress": progress(state="accepted partial"), "sealed": True}, "accepted partial"),
        ({"progress": progress(state="sealed")}, "to be sealed"),
        ({"progress": progress(), "sealed": True}, "sealed"),
        ({"progress": progress(updated=ago(SILENCE_S + 20))}, "running? silent 5 min 20 s"),
        ({"progress": progress(updated=ago(SILENCE_S))}, "running"),
    ],
)
def test_states(facts, state):
    assert status(**facts).state == state


def test_a_shard_without_progress_is_counted():
    shard = status(counted=4, last_row=NOW - timedelta(seconds=7))
    assert (shard.done, shard.owed, shard.gated, shard.age_s, shard.rate_per_s) == (4, 6, 0, 7.0, None)


def test_what_stands_still_has_no_rate():
    shard = status(progress=progress(state="owed"))
    assert (shard.rate_per_s, shard.eta_s) == (None, None)


def test_a_row_from_the_future_is_new():
    assert status(progress=progress(last_row=ago(-30))).age_s == 0
    assert status(progress=progress(last_row=None)).age_s is None


@pytest.mark.parametrize("damage", [{"done": "x"}, {"updated": "yesterday"}, {"failed_by_class": 3}])
def test_a_damaged_progress_is_not_taken_for_one(damage):
    with pytest.raises((TypeError, ValueError)):
        status(progress=progress(**damage))


SHARDS = st.builds(
    lambda planned, done, gated: ShardStatus(
        name="s",
        state="owed",
        planned=planned + done + gated,
        done=done,
        gated=gated,
        owed=planned,
        failed_by_class={"a": gated},
    ),
    *[st.integers(0, 1000)] * 3,
)


@given(st.lists(SHARDS, max_size=8))
def test_the_total_adds_up_and_claims_no_more_than_is_there(shards):
    line = total(shards)
    assert line.planned == line.done + line.gated + line.owed
    assert (line.state == "100 % done") == (line.done == line.planned)


def test_the_total_takes_the_newest_row_and_the_slowest_shard():
    one = status(progress=progress())
    two = status(progress=progress(rate_per_s=1.0, eta_s=10.0, last_row=ago(3), failed_by_class={"b": 5}))
    line = total([one, two, status()])
    assert (line.name, line.rate_per_s, line.eta_s, line.age_s) == ("all 3", 1.5, 90.0, 3.0)
    assert line.failed_by_class == {"b": 5, "a": 2}


def test_percentages_are_rounded_down():
    assert [covered(999_999, 1_000_000), covered(1, 3), covered(0, 0), covered(5, 5)] == [
        "99.9 %",
        "33.3 %",
        "100 %",
        "100 %",
    ]


def test_the_columns_stand_in_line_and_nothing_is_cut():
    name = "an_unusually_long_failure_class_with_\u202e_in_it"
    shards = [
        status(progress=progress(failed_by_class={name: 12345})),
        shard_status(Found(name="0001-of-0002", planned=123456), NOW),
    ]
    lines = table(shards)
    assert lines[0].split() == " ".join(HEADERS).split()
    assert lines[1].endswith("an_unusually_long_failure_class_with_\\u202e_in_it 12,345")
    ends = {
        line.index(cell) + len(cell) for line, cell in zip(lines[:3], ("rollouts", " 10 ", "123,456 "), strict=True)
    }
    assert ends == {lines[0].index("rollouts") + 8, lines[0].index("rollouts") + 9}
    assert not any(line.endswith(" ") for line in lines)


def many(count, sealed):
    """So many shards, the first of them sealed."""
    names = [f"{number:04d}-of-{count:04d}" for number in range(count)]
    return [shard_status(Found(name=name, planned=10, sealed=name in names[:sealed]), NOW) for name in names]


@pytest.mark.parametrize("columns", [200, 80, 60, 40, 20, 1])
@pytest.mark.parametrize("count", [1, 5, 500])
def test_on_a_terminal_nothing_is_wider_or_longer_than_it(columns, count):
    shards = [*many(count, count // 2), status(progress=progress(failed_by_class={"agent_run_error": 12345}))]
    lines = screen(shards, columns, 24)
    assert len(lines) <= 23
    assert max(map(len, lines)) <= columns


def test_a_narrow_terminal_keeps_what_matters_most():
    shards = [status(progress=progress(failed_by_class={"agent_run_error": 12345}))]
    assert screen(shards, 300, 24) == table(shards)
    assert " ".join(screen(shards, 80, 24)[0].split()) == "shard state done owed given up left failed, by class"
    assert screen(shards, 80, 24)[1].endswith("agent_run_error 12,3…")
    assert screen(shards, 40, 24)[0].split() == ["shard", "state", "done", "owed"]


def test_a_short_terminal_keeps_the_shards_that_are_not_sealed_and_says_how_many_are_left_out():
    lines = screen(many(50, 45), 80, 10)
    assert [line.split()[0] for line in lines[1:6]] == [f"{number:04d}-of-0050" for number in range(45, 50)]
    assert lines[-2] == "… 44 more shards"
    assert lines[-1].startswith("all 50")
    assert len(lines) == 9


def test_cells_follow_the_headers():
    shown = dict(zip(HEADERS, cells(status(progress=progress())), strict=True))
    assert shown["owed"] == "3"
    assert shown["given up"] == "1"
    assert (shown["per s"], shown["left"], shown["last row"], shown["failed, by class"]) == (
        "0.5",
        "1 min 30 s",
        "42 s",
        "a 2",
    )
