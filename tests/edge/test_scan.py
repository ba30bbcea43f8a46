"""Reading a file into its index."""

import pytest
from polars.testing import assert_frame_equal

from rollmake.core.blocks import ScoreBlocks
from rollmake.core.lines import Reason
from rollmake.core.scan import Kind, Scan
from rollmake.edge import scan as edge_scan
from rollmake.edge.ranges import reader
from rollmake.edge.scan import same_record, scan_file, scan_rollouts

LINE = b'{"_ng_task_index":%d,"_ng_rollout_index":0,"x":"%s"}'


def test_no_file_is_as_good_as_an_empty_one(tmp_path):
    assert scan_file(tmp_path / "nothing", Kind.FAILURES).lines == 0


def test_lines_end_at_newlines_only(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(LINE % (0, "\u2028\u0085".encode()) + b"\n" + LINE % (1, b"a") + b"\r" + LINE % (2, b"b") + b"\n")
    scan = scan_file(path, Kind.ROLLOUTS)
    assert (scan.lines, scan.removed_by_reason()) == (2, {Reason.NOT_JSON: 1})


def test_look_sees_records_only_and_may_take_them_out(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"\n".join([LINE % (0, b""), b"[1]", LINE % (1, b""), b"", LINE % (2, b"")]))
    seen = []

    def look(rows):
        seen.extend(row["_ng_task_index"] for row in rows)
        return {place: Reason.INVALID_JUDGE for place, row in enumerate(rows) if row["_ng_task_index"] == 1}

    scan = scan_file(path, Kind.ROLLOUTS, look)
    assert seen == [0, 1, 2]
    assert [int(code) > 0 for code in scan.codes] == [False, True, False]


@pytest.mark.parametrize(
    "damage", [b"", b"[1]\n", b"\n", b'{"_ng_task_index":7,"_ng_rollout_index":1,"_ng_failure_class":"x"}']
)
def test_rollouts_are_indexed_and_scored_whether_read_lightly_or_in_full(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(edge_scan, "BATCH", 100)
    path = tmp_path / "file"
    rows = [
        b'{"_ng_task_index":%d,"_ng_rollout_index":0,"reward":%d,"a":"b"}\n' % (task, task % 2) for task in range(9)
    ]
    path.write_bytes(b"".join([*rows[:5], damage, *rows[5:]]))
    light, full = ScoreBlocks(["a"]), ScoreBlocks(["a"])
    one = scan_rollouts(path, light)
    other = scan_file(path, Kind.ROLLOUTS, lambda found: full.add(found) or {})
    assert (one.rows.tolist(), one.removed.tolist(), one.lines) == (
        other.rows.tolist(),
        other.removed.tolist(),
        other.lines,
    )
    assert_frame_equal(light.frame(), full.frame(), check_column_order=False)


@pytest.mark.parametrize(("second", "same"), [(b"aa", True), (b"ab", False), (b"aaa", False)])
def test_records_are_compared_byte_by_byte(tmp_path, second, same):
    path = tmp_path / "file"
    path.write_bytes(LINE % (0, b"aa") + b"\n" + LINE % (0, second) + b"\n")
    scan: Scan = scan_file(path, Kind.ROLLOUTS)
    with path.open("rb") as file:
        assert same_record(scan, reader(file))(0, 1) is same
