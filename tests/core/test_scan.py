"""The index of one file: places, order, what is taken out."""

from pathlib import PurePath

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.lines import Reason
from rollmake.core.scan import LENGTH, OFFSET, Change, Kind, Scan, files_of, kind_of, sorted_ranges


def row(task=0, rollout=0, **fields):
    return orjson.dumps({"_ng_task_index": task, "_ng_rollout_index": rollout, **fields})


def scan_of(*lines, kind=Kind.ROLLOUTS):
    scan = Scan(kind)
    for line in lines:
        scan.take(line)
    return scan


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rollouts.jsonl", Kind.ROLLOUTS),
        ("a/b.c_failures.jsonl", Kind.FAILURES),
        ("x_materialized_inputs.jsonl", Kind.MATERIALIZED),
        ("failures.jsonl", Kind.ROLLOUTS),
        ("x_failures", Kind.FAILURES),
        ("x_failures_more.jsonl", Kind.ROLLOUTS),
    ],
)
def test_kind_of_a_file_is_in_its_name(name, kind):
    assert kind_of(PurePath(name)) is kind


@pytest.mark.parametrize("name", ["rollouts.jsonl", "b.c.jsonl", "out", "x.jsonl.gz"])
def test_each_file_of_a_shard_has_its_kind(name):
    assert [kind_of(path) for path in files_of(PurePath(name)).values()] == list(Kind)


def test_a_record_is_found_where_it_stands():
    content = [row(1), b"\n", b" ", row(2, text="é"), b"\r\n", row(3)]
    joined = b"".join(content)
    scan = scan_of(*joined.splitlines(keepends=True))
    found = [joined[one[OFFSET] : one[OFFSET] + one[LENGTH]] for one in scan.rows.tolist()]
    assert found == [row(1), row(2, text="é"), row(3)]
    assert scan.changes == {Change.WHITE_SPACE: 1, Change.NO_NEWLINE: 1}
    assert (scan.lines, scan.size) == (3, len(joined))


PLAIN_LINES = st.builds(
    row,
    st.integers(-3, 3),
    st.integers(0, 2),
    x=st.text(max_size=3),
    _ng_failure_class=st.sampled_from([None, "a"]),
    _ng_attempt_index=st.sampled_from([None, 1, "1", -1, 2**40]),
).map(lambda line: line + b"\n")
ODD_LINES = st.sampled_from(
    [
        b"\n",
        b"\0\n",
        b"{\n",
        b"[1]\n",
        b"{}\n",
        b'{"_ng_task_index":0}\n',
        row(1.5) + b"\n",
        row(True) + b"\n",
        row(2**63) + b"\n",
        row() + b" \n",
        row() + b"\r\n",
        b" " + row() + b"\n",
        b"\xef\xbb\xbf" + row() + b"\n",
    ]
)


@given(st.lists(PLAIN_LINES | ODD_LINES, min_size=1, max_size=6), st.sampled_from(list(Kind)), st.booleans())
def test_many_lines_at_once_are_taken_as_one_by_one(content, kind, torn):
    content = [*content[:-1], content[-1][:-1]] if torn and len(content[-1]) > 1 else content
    one, many = scan_of(*content, kind=kind), Scan(kind)
    taken = many.take_many(content[:2]) + (many.take_many(content[2:]) if content[2:] else [])
    alone = Scan(kind)
    assert taken == [record for line in content if (record := alone.take(line)) is not None]
    assert many.rows.tolist() == one.rows.tolist()
    assert many.removed.tolist() == one.removed.tolist()
    assert (many.codes.tolist(), many.lines, many.size) == (one.codes.tolist(), one.lines, one.size)
    assert +many.changes == +one.changes


def test_any_record_can_be_taken_out():
    scan = scan_of(row(0) + b"\n", row(1) + b"\n", row(2) + b"\n")
    scan.take_out(Reason.INVALID_JUDGE, 1)
    assert scan.order().tolist() == [0, 2]


def test_take_gives_the_record_or_nothing():
    scan = Scan(Kind.ROLLOUTS)
    assert scan.take(row(1, x=2) + b"\n") == {"_ng_task_index": 1, "_ng_rollout_index": 0, "x": 2}
    assert scan.take(b"{}\n") is None


def test_what_is_taken_out_is_listed_in_the_order_of_the_file():
    scan = scan_of(b"x\n", row(1) + b"\n", b"\0" + row(2) + b"\n", b"\n", b"{")
    scan.take_out(Reason.DUPLICATE)
    assert scan.removed_by_reason() == {
        Reason.NOT_JSON: 1,
        Reason.DUPLICATE: 1,
        Reason.PADDING: 1,
        Reason.BLANK: 1,
        Reason.TORN: 1,
    }
    size = len(row(1))
    assert scan.removed[:, :3].tolist() == [
        [1, 0, 1],
        [3, 3 + size, 1],
        [3, 4 + size, size],
        [4, 5 + 2 * size, 0],
        [5, 6 + 2 * size, 1],
    ]
    assert scan.order().tolist() == [0]


def test_rank_orders_successes_behind_failures_and_attempts_by_number():
    rollouts = scan_of(row(0) + b"\n", row(0, _ng_failure_class="") + b"\n", row(0, _ng_failure_class=None) + b"\n")
    assert rollouts.order().tolist() == [1, 0, 2]
    attempts = [2, None, 0, "1", True, -1, 1, 2**31]
    failures = scan_of(*(row(0, _ng_attempt_index=one) + b"\n" for one in attempts), kind=Kind.FAILURES)
    assert failures.order().tolist() == [1, 2, 3, 4, 5, 7, 6, 0]
    plan = scan_of(*(row(0, _ng_attempt_index=one) + b"\n" for one in attempts), kind=Kind.MATERIALIZED)
    assert plan.order().tolist() == list(range(len(attempts)))


KEYS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)))


@given(st.lists(KEYS, min_size=1, max_size=3))
def test_several_files_are_sorted_as_one(files):
    scans, expected = [], []
    for source, keys in enumerate(files):
        lines = [row(task, rollout, _ng_attempt_index=attempt) + b"\n" for task, rollout, attempt in keys]
        scans.append(scan_of(*lines, kind=Kind.FAILURES))
        offsets = [sum(map(len, lines[:place])) for place in range(len(lines))]
        expected += [
            (*key, source, offset, len(line) - 1) for key, offset, line in zip(keys, offsets, lines, strict=True)
        ]
    ranges = zip(*(column.tolist() for column in sorted_ranges(scans)), strict=True)
    assert list(ranges) == [one[3:] for one in sorted(expected)]


def test_the_index_takes_no_more_than_it_says():
    scan = scan_of(*[row(1, text="x" * 1000) + b"\n"] * 1000)
    assert scan.rows.nbytes + scan.codes.nbytes == 49 * 1000
