"""fsck says what repair would take out, and changes nothing."""

import json

import pytest

from rollmake.core.errors import DataError, InputError
from rollmake.stages import fsck, repair
from stages.shard_files import lines, row, write_shard


def check(*paths):
    fsck.run(fsck.Files(files=list(paths)), fsck.Settings())


def three_files(rollouts):
    return [
        rollouts,
        rollouts.with_name("rollouts_failures.jsonl"),
        rollouts.with_name("rollouts_materialized_inputs.jsonl"),
    ]


def test_clean_files_are_clean_in_any_order_of_rows(tmp_path, capsys):
    rollouts = write_shard(tmp_path, lines(row(1), row(0)), lines(row(2), row(2)), lines(row(0), row(1), row(2)))
    check(*three_files(rollouts))
    assert capsys.readouterr().out.splitlines() == [
        f"{rollouts}: rollouts, 2 lines, 2 good records",
        f"{rollouts.with_name('rollouts_failures.jsonl')}: failures, 2 lines, 2 good records",
        f"{rollouts.with_name('rollouts_materialized_inputs.jsonl')}: materialized_inputs, 3 lines, 3 good records",
    ]


def test_an_empty_file_is_clean(tmp_path):
    check(write_shard(tmp_path, b""))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lines(row(0)) + b'{"_ng_ta', "torn: 1, at line 2 (byte 43, 8 bytes)"),
        (lines(row(0), b'{"reward":1}'), "no_identity: 1, at line 2 (byte 43, 12 bytes)"),
        (lines(row(0), b""), "blank: 1, at line 2 (byte 43, 0 bytes)"),
        (lines(row(0), row(0)), "duplicate: 1, at line 1 (byte 0, 42 bytes)"),
        (lines(row(0), row(0, x=1)), "superseded: 1, at line 1 (byte 0, 42 bytes)"),
        (row(0), "no_newline: 1, which repair puts right"),
        (row(0) + b"\r\n", "white_space: 1, which repair puts right"),
        (b"\xef\xbb\xbf" + lines(row(0)), "padding: 1, at line 1 (byte 0, 3 bytes)"),
    ],
)
def test_damage_is_named_with_its_place_and_left_alone(tmp_path, capsys, content, said):
    path = write_shard(tmp_path, content)
    with pytest.raises(DataError, match=f"1 of 1 files are not clean: {path}"):
        check(path)
    assert said in [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_first_places_of_a_reason_are_told(tmp_path, capsys):
    path = write_shard(tmp_path, lines(*[b"x"] * 10))
    with pytest.raises(DataError):
        check(path)
    assert (
        capsys.readouterr()
        .out.splitlines()[1]
        .endswith("line 1 (byte 0, 1 bytes); line 2 (byte 2, 1 bytes); line 3 (byte 4, 1 bytes) and 7 more")
    )


def test_a_damaged_materialized_file_is_named_and_damns_no_rollout(tmp_path, capsys):
    rollouts, _, plan = three_files(write_shard(tmp_path, lines(row(0), row(5)), None, lines(row(0), row(1), b'{"tru')))
    check(rollouts)
    with pytest.raises(DataError, match="materialized_inputs"):
        check(rollouts, plan)
    assert "not_json: 1, at line 3 (byte 86, 5 bytes)" in capsys.readouterr().out


def test_rows_that_are_not_owed_are_told_for_rollouts_and_sidecar(tmp_path, capsys):
    rollouts, failures, _ = three_files(write_shard(tmp_path, lines(row(0), row(5)), lines(row(6)), lines(row(0))))
    with pytest.raises(DataError, match="2 of 2"):
        check(rollouts, failures)
    assert capsys.readouterr().out.count("not_owed: 1") == 2


def test_a_missing_file_is_refused_before_any_is_read(tmp_path, capsys):
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        check(write_shard(tmp_path, lines(row(0))), tmp_path / "nothing.jsonl")
    assert capsys.readouterr().out == ""


def test_fsck_counts_what_repair_counts(tmp_path, capsys):
    content = lines(row(0), b"", b"[1]", row(0), row(9), b"\0", b"\xff") + b"{"
    source = write_shard(tmp_path / "in", content, content, lines(row(0), row(1)) + b"\n")
    repair.run(
        repair.Files(rollouts=source, output=tmp_path / "out" / "rollouts.jsonl"),
        repair.Settings(retry_invalid_judge_responses=False),
    )
    facts = json.loads((tmp_path / "out" / "repair.json").read_bytes())["files"]
    for path in three_files(source):
        with pytest.raises(DataError):
            check(path)
        said = [line.strip().split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]]
        assert said == [f"{reason}: {count}" for reason, count in facts[path.name]["removed"].items()]
