"""The columns of a plan: shards, byte ranges, digests, and what changes the digest of the whole."""

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.expand import Copies
from rollmake.core.plan import COLUMNS, row_digest
from rollmake.core.planning import Columns, Planner, digits, numbered, occurrence

QUICK = settings(max_examples=40, deadline=None)
COPIES = st.lists(
    st.builds(
        lambda row, task, count, server, agent: (b'{"r":"%d"}' % row, task, count, server, agent),
        st.integers(0, 3),
        st.integers(0, 5) | st.just(2**62),
        st.integers(1, 12),
        st.sampled_from([None, "s", "t"]),
        st.sampled_from([None, "a"]),
    ),
    max_size=10,
)


def planned(copies, shards=3, environment=""):
    """A planner with these rows, whose rollouts count up for each task, and their lines."""
    planner, following, lines = Planner(shards, environment), Counter(), b""
    for row, task, count, server, agent in copies:
        lines += planner.add(Copies(row, task, following[task], count, server, agent))
        following[task] += count
    return planner, lines


@QUICK
@given(COPIES, st.integers(1, 4), st.booleans())
def test_every_key_is_in_one_shard_and_a_task_in_one(copies, shards, interleave):
    planner, _ = planned(copies, shards)
    columns = planner.columns(planner.interleaved() if interleave else None)
    keys = list(zip(columns.task.tolist(), columns.rollout.tolist(), strict=True))
    assert len(set(keys)) == len(keys) == sum(count for _, _, count, _, _ in copies)
    shard_of = dict(zip(columns.task.tolist(), columns.shard.tolist(), strict=True))
    assert all(
        shard_of[task] == shard for task, shard in zip(columns.task.tolist(), columns.shard.tolist(), strict=True)
    )
    tasks = Counter(shard_of.values())
    assert set(tasks) <= set(range(shards))
    sizes = [tasks[shard] for shard in range(shards)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@QUICK
@given(COPIES)
def test_byte_ranges_are_the_lines(copies):
    planner, content = planned(copies)
    columns = planner.columns(None)
    for place in range(len(columns.task)):
        start, length = int(columns.offset[place]), int(columns.length[place])
        row = msgspec.json.decode(content[start : start + length])
        assert (row["_ng_task_index"], row["_ng_rollout_index"]) == (columns.task[place], columns.rollout[place])
        assert content[start + length : start + length + 1] == b"\n"
    assert planner.plan(columns).materialized_bytes == len(content)


@QUICK
@given(COPIES)
def test_interleaving_is_stable(copies):
    planner, _ = planned(copies)
    plain = planner.columns(None)
    order = planner.interleaved()
    assert order.tolist() == sorted(range(len(order)), key=lambda place: plain.rollout[place])
    assert planner.columns(order).length.tolist() == plain.length[order].tolist()
    assert dict(zip(plain.task.tolist(), plain.shard.tolist(), strict=True)) == dict(
        zip(planner.columns(order).task.tolist(), planner.columns(order).shard.tolist(), strict=True)
    )


@QUICK
@given(COPIES)
def test_repeat_counts_equal_digests(copies):
    planner, _ = planned(copies)
    seen = Counter()
    columns = planner.columns(None)
    for digest, repeat in zip(map(bytes, columns.digest), columns.repeat.tolist(), strict=True):
        assert repeat == seen[digest]
        seen[digest] += 1


def test_digests_are_those_of_the_rows():
    planner, _ = planned([(b'{"r":1}', 0, 2, None, None), (b'{"r":2}', 1, 1, None, None)], environment="e")
    digests = [bytes(digest) for digest in planner.columns(None).digest]
    assert digests == [row_digest(b'{"r":1}', "e"), row_digest(b'{"r":1}', "e"), row_digest(b'{"r":2}', "e")]


def test_a_row_digest_depends_on_row_and_environment():
    digests = {
        row_digest(row, environment) for row in (b'{"a":1}', b'{"a":2}') for environment in ("", "x", "x" * 1000)
    }
    assert len(digests) == 6
    assert {len(digest) for digest in digests} == {16}


BASE = [(b'{"r":1}', 0, 2, "s", "a"), (b'{"r":2}', 1, 1, "t", "a")]


def plan_of(copies, **kwargs):
    planner, _ = planned(copies, **kwargs)
    return planner.plan(planner.columns(None))


def test_the_plan_counts():
    plan = plan_of(BASE)
    assert (plan.version, plan.shards, plan.tasks, plan.rollouts, plan.environment) == (1, 3, 2, 3, "")
    assert len(plan.digest) == 32
    assert plan == plan_of(BASE)


@pytest.mark.parametrize(
    "copies",
    [
        BASE[::-1],
        BASE[:1],
        [(b'{"r":3}', 0, 2, "s", "a"), BASE[1]],
        [(b'{"r":1}', 0, 3, "s", "a"), BASE[1]],
        [(b'{"r":1}', 5, 2, "s", "a"), BASE[1]],
        [(b'{"r":1}', 0, 2, "u", "a"), BASE[1]],
        [(b'{"r":1}', 0, 2, None, "a"), BASE[1]],
    ],
)
def test_what_is_owed_changes_the_digest(copies):
    assert plan_of(copies).digest != plan_of(BASE).digest


def test_shards_change_the_digest():
    assert plan_of(BASE, shards=1).digest != plan_of(BASE).digest


def test_nothing_is_a_plan_too():
    plan = plan_of([])
    assert (plan.tasks, plan.rollouts, plan.materialized_bytes) == (0, 0, 0)


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_digits(values):
    assert digits(np.array(values, dtype=np.int64)).tolist() == [len(str(value)) for value in values]


def test_occurrence_of_nothing():
    assert occurrence(np.empty(0, dtype=np.int64)).tolist() == []


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2))))
def test_digests_are_numbered_as_they_appear(digests):
    known = list(dict.fromkeys(digests))
    array = np.array(digests, dtype=np.uint64).reshape(-1, 2)
    assert numbered(array).tolist() == [known.index(digest) for digest in digests]


@given(st.lists(st.integers(0, 4)))
def test_occurrence(numbers):
    assert occurrence(np.array(numbers, dtype=np.int64)).tolist() == [
        numbers[:place].count(number) for place, number in enumerate(numbers)
    ]


def test_columns_are_those_of_the_plan():
    assert Columns._fields == COLUMNS
