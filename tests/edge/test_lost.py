"""What repaired shards lost, read from what repair wrote."""

import pytest

from rollmake.core.errors import DataError, InputError
from rollmake.core.lost import Lost
from rollmake.edge.lost import lost_lines, lost_rows
from rollmake.stages import repair
from stages.shard_files import lines, row, write_shard

NAN = b'{"_ng_task_index":3,"_ng_rollout_index":0,"reward":NaN}'


@pytest.fixture
def repaired(tmp_path):
    """Repairs a shard, given the content of its files, as number `index`; its repaired rollouts."""

    def write(*contents, index=0):
        source = write_shard(tmp_path / "raw", *contents, stem=f"shard{index}")
        output = tmp_path / "repaired" / f"{index:04d}-of-0002" / "rollouts.jsonl"
        repair.run(repair.Files(rollouts=source, output=output), repair.Settings(retry_invalid_judge_responses=False))
        return output

    return write


def test_without_materialized_inputs_lost_lines_are_read_from_each_file(repaired):
    path = repaired(lines(row(0, reward=1), NAN, b"\xff", b"", row(0, reward=1)) + b'{"torn', lines(b"[]", NAN))
    assert list(lost_rows(path)) == [(3, 0, None, None), None, None, None, (3, 0, None, None)]
    by_reason = {"not_finite": 1, "not_utf8": 1, "torn": 1}
    assert lost_lines([path], adopted=True) == Lost(by_reason=by_reason, unreadable={"0000-of-0002": 3})
    assert lost_lines([path], adopted=False) == Lost(by_reason=by_reason)


def test_with_materialized_inputs_the_owed_are_known(repaired):
    path = repaired(lines(row(0, reward=1), NAN), None, lines(row(0), row(3)))
    assert list(lost_rows(path)) == []
    assert lost_lines([path], adopted=True) == Lost(by_reason={"not_finite": 1})


def test_materialized_inputs_that_lost_lines_say_less_than_all(repaired):
    path = repaired(lines(row(0, reward=1)), None, lines(row(0), NAN) + b"{")
    assert list(lost_rows(path)) == [(3, 0, None, None), None]
    assert lost_lines([path], adopted=True) == Lost(unreadable={"0000-of-0002": 1})


def test_a_shard_of_nothing_but_damage_counts_and_shards_in_order_do_not(repaired):
    shards = [repaired(lines(row(0))), repaired(b"{", index=1)]
    assert lost_lines(shards, adopted=True) == Lost(by_reason={"torn": 1}, unreadable={"0001-of-0002": 1})


@pytest.mark.parametrize("line", [b"{", b"[]", b"3", b'{"reason":"torn"}', b'{"reason":"torn","base64":"*"}'])
def test_a_quarantine_that_is_none_is_named(repaired, line):
    path = repaired(lines(row(0)))
    path.with_name("quarantine.jsonl").write_bytes(line + b"\n")
    with pytest.raises(DataError, match=r"quarantine.jsonl:1: .*Repair that shard again"):
        list(lost_rows(path))


def test_files_that_a_repaired_shard_lacks_are_named(repaired):
    path = repaired(lines(row(0)))
    path.with_name("quarantine.jsonl").unlink()
    with pytest.raises(DataError, match=r"quarantine.jsonl: there is no such file"):
        list(lost_rows(path))
    path.with_name("repair.json").unlink()
    with pytest.raises(InputError, match=r"repair.json is missing"):
        lost_lines([path], adopted=False)
