"""Duplicates and rows that nobody asked for."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.lines import Reason
from rollmake.core.repair import contained, file_facts, key_facts, owed_keys, settle_duplicates, take_out_not_owed
from rollmake.core.scan import REASONS, Kind, Scan


def scan_of(*rows, kind=Kind.ROLLOUTS, broken=()):
    scan = Scan(kind)
    for task, rollout, fields in rows:
        scan.take(orjson.dumps({"_ng_task_index": task, "_ng_rollout_index": rollout, **fields}) + b"\n")
    for line in broken:
        scan.take(line)
    return scan


def pairs(*keys):
    return np.array(keys, dtype=np.int64).reshape(-1, 2)


def verdicts(scan):
    return [REASONS[code - 1] if code else None for code in scan.codes.tolist()]


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 2), st.booleans()), max_size=12)


@given(RECORDS)
def test_of_each_key_the_last_success_stays_and_copies_of_it_are_duplicates(records):
    rows = [
        (task, rollout, {"n": n, **({"_ng_failure_class": "x"} if failed else {})})
        for task, rollout, n, failed in records
    ]
    scan = scan_of(*rows)
    settle_duplicates(scan, lambda one, other: rows[one] == rows[other])
    expected: list[Reason | None] = []
    for task, rollout, fields in rows:
        group = [row for row in rows if row[:2] == (task, rollout)]
        stays = ([row for row in group if "_ng_failure_class" not in row[2]] or group)[-1]
        expected.append(Reason.DUPLICATE if (task, rollout, fields) == stays else Reason.SUPERSEDED)
    for key in {row[:2] for row in rows}:
        last = max(i for i, row in enumerate(rows) if row[:2] == key and expected[i] is Reason.DUPLICATE)
        expected[last] = None
    assert verdicts(scan) == expected


def test_what_is_out_already_is_no_duplicate():
    scan = scan_of((0, 0, {}), (0, 0, {}))
    scan.take_out(Reason.INVALID_JUDGE)
    settle_duplicates(scan, lambda one, other: True)
    assert verdicts(scan) == [None, Reason.INVALID_JUDGE]


INDEX = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)
PAIRS = st.lists(st.tuples(INDEX, INDEX), max_size=12)


@given(PAIRS, PAIRS, st.lists(st.integers(0, 11)))
def test_contained_agrees_with_sets(keys, among, shared):
    keys = keys + [among[place] for place in shared if place < len(among)]
    assert contained(pairs(*keys), pairs(*among)).tolist() == [key in set(among) for key in keys]


@pytest.mark.parametrize(
    ("rows", "broken", "others", "owed"),
    [
        ([(0, 0, {}), (1, 0, {})], [], 5, [[0, 0], [1, 0]]),
        ([(0, 0, {})], [b"\n", b" \n"], 5, [[0, 0]]),
        ([(0, 0, {})], [b"{\n"], 5, None),
        ([(0, 0, {})], [b"\0\n"], 5, None),
        ([(0, 0, {})], [b"{"], 5, None),
        ([], [], 1, None),
        ([], [], 0, []),
    ],
)
def test_what_a_materialized_file_says_is_owed(rows, broken, others, owed):
    found = owed_keys(scan_of(*rows, kind=Kind.MATERIALIZED, broken=broken), others)
    assert (None if found is None else found.tolist()) == owed


def test_only_rows_that_are_still_in_can_be_not_owed():
    scan = scan_of((0, 0, {}), (1, 0, {}), (2, 0, {}))
    scan.take_out(Reason.INVALID_JUDGE)
    take_out_not_owed(scan, pairs((1, 0), (0, 1)))
    assert verdicts(scan) == [Reason.NOT_OWED, None, Reason.INVALID_JUDGE]


def test_facts_of_a_file_name_only_what_happened():
    scan = scan_of((0, 0, {}), (1, 0, {}), broken=[b"x\n", b"\n", b"\n", b"{"])
    assert file_facts(scan, gained=3) == {
        "lines": 6,
        "kept": 2,
        "gained": 3,
        "removed": {"blank": 2, "not_json": 1, "torn": 1},
        "changed": {},
    }


def test_facts_of_keys_add_up_to_what_is_owed():
    successes, failures = pairs((0, 0), (1, 0)), pairs((1, 0), (2, 0), (2, 0))
    owed = pairs((0, 0), (1, 0), (2, 0), (3, 0), (3, 1))
    counted = {"succeeded": 2, "failed": 1, "recovered": 1}
    assert key_facts(successes, failures, owed) == {"owed": 5, **counted, "missing": 2}
    assert key_facts(successes, failures, None) == {"owed": None, **counted, "missing": None}
    assert key_facts(pairs(), pairs(), pairs()) == {
        "owed": 0,
        "succeeded": 0,
        "failed": 0,
        "recovered": 0,
        "missing": 0,
    }
