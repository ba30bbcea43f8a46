"""Repair of one shard: nothing is lost, what stays is valid and sorted, the same input gives the same bytes."""

import json
import tempfile
from pathlib import Path

import jsonschema
import orjson
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rollmake.core.columns import frame_of
from rollmake.core.errors import InputError
from rollmake.stages import repair
from stages.shard_files import lines, quarantined, row, what_is_left, write_shard

SCHEMA = yaml.safe_load((Path(repair.__file__).parents[3] / "schemas/repair.schema.yaml").read_text())
OUTPUTS = (
    "rollouts.jsonl", "rollouts_failures.jsonl", "rollouts_materialized_inputs.jsonl",
    "quarantine.jsonl", "repair.json", "scores.parquet",
)  # fmt: skip


def repaired(rollouts, output, **options):
    """Repair into `output` and check what holds for every shard whatever its damage; the content of repair.json."""
    repair.run(
        repair.Files(rollouts=rollouts, output=output / "rollouts.jsonl"),
        repair.Settings(**{"retry_invalid_judge_responses": False, **options}),
    )
    assert sorted(path.name for path in output.iterdir()) == sorted(OUTPUTS)
    facts = json.loads((output / "repair.json").read_bytes())
    jsonschema.validate(facts, SCHEMA)
    rows = [orjson.loads(line) for line in (output / "rollouts.jsonl").read_bytes().split(b"\n")[:-1]]
    scores = pl.read_parquet(output / "scores.parquet")
    content = (output / "rollouts.jsonl").read_bytes()
    places = scores.select("offset", "length").iter_rows()
    assert [orjson.loads(content[offset : offset + length]) for offset, length in places] == rows
    assert scores["reward"].to_list() == frame_of(rows)["reward"].to_list()
    keys = [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in rows]
    assert keys == sorted(set(keys)) == list(scores.select("task", "rollout").iter_rows())
    return facts


def read(output, name="rollouts.jsonl"):
    return (output / name).read_bytes()


def reasons(output):
    return [(file, line, reason) for file, line, _, reason, _ in quarantined(output)]


def test_clean_shard_stays_as_it_is_but_sorted(tmp_path):
    rows = [row(1, 0, reward=1), row(0, 1, reward=0.5), row(0, 0, text="\u2028é")]
    plan = lines(row(0, 0), row(0, 1), row(1, 0), row(2, 0))
    source = write_shard(tmp_path / "in", lines(*rows), lines(row(2, 0, _ng_failure_class="x")), plan)
    facts = repaired(source, tmp_path / "out")
    assert read(tmp_path / "out") == lines(rows[2], rows[1], rows[0])
    assert read(tmp_path / "out", "rollouts_materialized_inputs.jsonl") == plan
    assert quarantined(tmp_path / "out") == []
    assert facts["keys"] == {"owed": 4, "succeeded": 3, "failed": 1, "recovered": 0, "missing": 0}


def test_every_kind_of_damage_is_quarantined_with_its_place(tmp_path):
    good = row(0, 0, reward=1)
    broken = [
        (b"", "blank"), (b" \r", "blank"), (b"\0\0", "nul"), (b'{"a":"\xff"}', "not_utf8"), (b"[1]", "not_object"),
        (b"null", "not_object"), (b'{"reward":1}', "no_identity"), (good[:-1] + b',"x":NaN}', "not_finite"),
        (good[:-3], "not_json"), (good + good, "not_json"), (row(9, 9), "not_owed"),
    ]  # fmt: skip
    content = lines(good, *(line for line, _ in broken)) + good[:-3]
    facts = repaired(write_shard(tmp_path / "in", content, None, lines(row(0, 0))), tmp_path / "out")
    assert read(tmp_path / "out") == good + b"\n"
    expected = [("rollouts.jsonl", number, reason) for number, (_, reason) in enumerate(broken, 2)]
    assert reasons(tmp_path / "out") == [*expected, ("rollouts.jsonl", len(broken) + 2, "torn")]
    assert what_is_left(content, "rollouts.jsonl", quarantined(tmp_path / "out")) == [good]
    assert facts["files"]["rollouts.jsonl"]["removed"]["blank"] == 2


def test_line_ends_and_white_space_are_put_right_and_nothing_else(tmp_path):
    odd = b'{ "_ng_rollout_index" : 0,\t"_ng_task_index":0, "x":1.0e0 , "u":"\\u00e9"}'
    facts = repaired(write_shard(tmp_path / "in", odd + b" \r\n\t" + row(1) + b"\r"), tmp_path / "out")
    assert read(tmp_path / "out") == lines(odd, row(1))
    assert facts["files"]["rollouts.jsonl"]["changed"] == {"no_newline": 1, "white_space": 2}


def test_a_record_between_nul_bytes_or_behind_a_byte_order_mark_is_saved(tmp_path):
    content = b"\xef\xbb\xbf" + row(0) + b"\n" + b"\0" * 300 + row(1) + b"\0\n"
    repaired(write_shard(tmp_path / "in", content), tmp_path / "out")
    assert read(tmp_path / "out") == lines(row(0), row(1))
    parts = [(line, reason, part) for _, line, _, reason, part in quarantined(tmp_path / "out")]
    assert parts == [(1, "padding", b"\xef\xbb\xbf"), (2, "padding", b"\0" * 300), (2, "padding", b"\0")]
    assert what_is_left(content, "rollouts.jsonl", quarantined(tmp_path / "out")) == [row(0), row(1)]


def test_duplicates_fold_and_of_different_rows_the_last_success_stands(tmp_path):
    first, last, failed = row(0, 0, reward=0), row(0, 0, reward=1), row(0, 0, _ng_failure_class="x")
    content = lines(last, first, last, first, last, failed, row(1), row(1))
    facts = repaired(write_shard(tmp_path / "in", content), tmp_path / "out")
    assert read(tmp_path / "out") == lines(last, row(1))
    assert [(line, reason) for _, line, reason in reasons(tmp_path / "out")] == [
        (1, "duplicate"), (2, "superseded"), (3, "duplicate"), (4, "superseded"), (6, "superseded"), (7, "duplicate"),
    ]  # fmt: skip
    assert facts["files"]["rollouts.jsonl"]["kept"] == 2


def test_rows_that_differ_in_one_byte_far_in_are_no_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr("rollmake.edge.ranges.PIECE", 100)
    same, other = row(0, text="x" * 1000 + "y"), row(0, text="x" * 1000 + "z")
    repaired(write_shard(tmp_path / "in", lines(same, other, other)), tmp_path / "out")
    assert read(tmp_path / "out") == other + b"\n"
    assert [reason for _, _, reason in reasons(tmp_path / "out")] == ["superseded", "duplicate"]


def test_a_success_beside_failures_counts_and_both_stay(tmp_path):
    failures = lines(
        row(0, _ng_attempt_index=1, n=2), row(0, n=1), row(1, n=1), row(0, _ng_attempt_index=1, n=3), row(0, n=1)
    )
    source = write_shard(tmp_path / "in", lines(row(0, reward=1)), failures, lines(row(0), row(1), row(2)))
    facts = repaired(source, tmp_path / "out")
    kept = [orjson.loads(line) for line in read(tmp_path / "out", "rollouts_failures.jsonl").splitlines()]
    assert [(one["_ng_task_index"], one.get("_ng_attempt_index"), one["n"]) for one in kept] == [
        (0, None, 1), (0, None, 1), (0, 1, 2), (0, 1, 3), (1, None, 1),
    ]  # fmt: skip
    assert facts["keys"] == {"owed": 3, "succeeded": 1, "failed": 1, "recovered": 1, "missing": 1}


def test_more_than_one_copy_of_an_owed_row_folds_and_the_check_goes_on(tmp_path):
    source = write_shard(tmp_path / "in", lines(row(0), row(5)), None, lines(row(0), row(0), row(0, x=1)) + b"\n")
    facts = repaired(source, tmp_path / "out")
    assert read(tmp_path / "out") == row(0) + b"\n"
    assert (facts["keys"]["owed"], reasons(tmp_path / "out")[0]) == (1, ("rollouts.jsonl", 2, "not_owed"))


@pytest.mark.parametrize(
    "plan", [None, b"", lines(row(0)) + b'{"_ng_ta', lines(row(0)) + b"\0\0\n", lines(row(0), b"{}")]
)
def test_without_a_whole_materialized_file_no_row_counts_as_not_owed(tmp_path, plan):
    facts = repaired(write_shard(tmp_path / "in", lines(row(0), row(5)), lines(row(7)), plan), tmp_path / "out")
    assert read(tmp_path / "out") == lines(row(0), row(5))
    assert read(tmp_path / "out", "rollouts_failures.jsonl") == lines(row(7))
    assert (facts["keys"]["owed"], facts["keys"]["missing"]) == (None, None)


def test_an_empty_shard_is_a_clean_one(tmp_path):
    facts = repaired(write_shard(tmp_path / "in", b"", b"", b""), tmp_path / "out")
    assert facts["keys"] == {"owed": 0, "succeeded": 0, "failed": 0, "recovered": 0, "missing": 0}


def test_repairing_what_was_repaired_changes_nothing(tmp_path):
    content = lines(row(1), b"x", row(0)) + row(2)[:-4]
    repaired(write_shard(tmp_path / "in", content, lines(row(3)), lines(*map(row, range(5)))), tmp_path / "out")
    repaired(tmp_path / "out" / "rollouts.jsonl", tmp_path / "again")
    for name in set(OUTPUTS) - {"quarantine.jsonl", "repair.json"}:
        assert read(tmp_path / "out", name) == read(tmp_path / "again", name)
    assert read(tmp_path / "again", "quarantine.jsonl") == b""


def test_the_same_input_gives_the_same_bytes(tmp_path):
    content = lines(*(row(i % 7, i % 3, reward=i, **{f"f{i % 5}": i / 3}) for i in range(200)), b"\xff")
    for folder in ("a", "b"):
        repaired(write_shard(tmp_path / "in", content), tmp_path / folder)
    assert [read(tmp_path / "a", name) for name in OUTPUTS] == [read(tmp_path / "b", name) for name in OUTPUTS]


def test_a_line_of_many_megabytes(tmp_path):
    big = row(0, text="é" * (6 << 20), reward=1)
    content = lines(row(1), big, big[:-1] + b"x")
    repaired(write_shard(tmp_path / "in", content), tmp_path / "out")
    assert read(tmp_path / "out") == lines(big, row(1))
    assert what_is_left(content, "rollouts.jsonl", quarantined(tmp_path / "out")) == sorted([row(1), big])


def test_files_of_another_name_are_found_by_the_rules(tmp_path):
    source = write_shard(tmp_path / "in", lines(row(0), b"x"), lines(row(1)), lines(row(0), row(1)), stem="b.c")
    facts = repaired(source, tmp_path / "out")
    assert list(facts["files"]) == ["b.c.jsonl", "b.c_failures.jsonl", "b.c_materialized_inputs.jsonl"]
    assert reasons(tmp_path / "out") == [("b.c.jsonl", 2, "not_json")]


def test_no_rollouts_file_and_output_beside_the_input_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.jsonl"):
        repaired(tmp_path / "nothing.jsonl", tmp_path / "out")
    source = write_shard(tmp_path, lines(row(0), b"x"))
    with pytest.raises(InputError, match="one folder"):
        repaired(source, tmp_path)
    assert source.read_bytes() == lines(row(0), b"x")


def test_no_file_appears_half_written(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(repair, "copy_lines", fail)
    with pytest.raises(OSError, match="disk full"):
        repaired(write_shard(tmp_path / "in", lines(row(0))), tmp_path / "out")
    assert not [path.name for path in (tmp_path / "out").iterdir() if path.suffix == ".tmp" or "rollouts" in path.name]


@pytest.mark.parametrize("move", [False, True])
def test_invalid_judge_rows_move_only_if_asked(tmp_path, move):
    (tmp_path / "delivered").mkdir()
    (tmp_path / "delivered" / "result.txt").write_text("x")
    invalid = {"invalid_judge_response": True, "deliverables_dir": str(tmp_path / "delivered")}
    marked = row(1, _ng_migrated_invalid_judge_response=True)
    content = lines(row(1, **invalid), row(0, **invalid), row(0, reward=1), row(2, reward=1))
    source = write_shard(tmp_path / "in", content, lines(marked))
    facts = repaired(source, tmp_path / "out", retry_invalid_judge_responses=move)
    if not move:
        assert read(tmp_path / "out") == lines(row(0, reward=1), row(1, **invalid), row(2, reward=1))
        assert reasons(tmp_path / "out") == [("rollouts.jsonl", 2, "superseded")]
        return
    assert read(tmp_path / "out") == lines(row(0, reward=1), row(2, reward=1))
    markers = {
        "_ng_failure_class": "judge_invalid",
        "reuse_cached_deliverable": True,
        "_ng_migrated_invalid_judge_response": True,
    }
    assert read(tmp_path / "out", "rollouts_failures.jsonl") == lines(row(0, **invalid, **markers), marked)
    assert reasons(tmp_path / "out") == [("rollouts.jsonl", number, "invalid_judge") for number in (1, 2)]
    assert facts["files"]["rollouts_failures.jsonl"]["gained"] == 1


MAIN, SIDE = lines(row(0, reward=1), row(1, text='é"}{')), lines(row(2, _ng_failure_class="x\u2028"))


@pytest.mark.parametrize("cut", range(1, 24))
def test_files_cut_inside_their_last_row_lose_that_row_alone(tmp_path, cut):
    main, side = MAIN[: -1 - cut], SIDE[: -1 - cut]
    repaired(write_shard(tmp_path / "in", main, side, lines(row(0), row(1), row(2))), tmp_path / "out")
    assert read(tmp_path / "out") == lines(row(0, reward=1))
    assert read(tmp_path / "out", "rollouts_failures.jsonl") == b""
    torn = [(file, reason, part) for file, _, _, reason, part in quarantined(tmp_path / "out")]
    assert torn == [
        ("rollouts.jsonl", "torn", main.split(b"\n")[1]),
        ("rollouts_failures.jsonl", "torn", side),
    ]  # fmt: skip


def test_files_cut_before_their_last_newline_lose_nothing(tmp_path):
    facts = repaired(
        write_shard(tmp_path / "in", MAIN[:-1], SIDE[:-1], lines(row(0), row(1), row(2))[:-1]), tmp_path / "out"
    )
    assert read(tmp_path / "out") == MAIN
    assert [file["changed"] for file in facts["files"].values()] == [{"no_newline": 1}] * 3


BASE = [
    lines(*(row(t, r, reward=t, text='é\\"{}') for t in range(3) for r in range(2))),
    lines(row(0), row(4)),
    lines(row(0), row(1)),
]
DAMAGE = st.tuples(
    st.sampled_from(["insert", "delete", "flip", "cut", "copy"]),
    st.integers(0, 2),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=6) | st.sampled_from([b"\n", b"\r\n", b"\0\0", b"\xef\xbb\xbf", b" ", row(1, 1)]),
)


def damaged(contents, kind, file, where, content):
    before = contents[file]
    place = int(where * len(before))
    if kind == "insert":
        after = before[:place] + content + before[place:]
    elif kind == "delete":
        after = before[:place] + before[place + len(content) :]
    elif kind == "flip":
        after = before[:place] + bytes(one ^ content[0] for one in before[place : place + 1]) + before[place + 1 :]
    elif kind == "cut":
        after = before[:place]
    else:
        after = before + before[place:]
    contents[file] = after


@settings(max_examples=60, deadline=None)
@given(st.lists(DAMAGE, min_size=1, max_size=6))
def test_whatever_the_damage_every_byte_is_kept_or_quarantined(damages):
    contents = list(BASE)
    for damage in damages:
        damaged(contents, *damage)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        repaired(write_shard(Path(folder) / "in", *contents), output)
        parts = quarantined(output)
        for name, before in zip(OUTPUTS[:3], contents, strict=True):
            kept = read(output, name).split(b"\n")
            assert kept.pop() == b""
            assert sorted(kept) == what_is_left(before, name, parts)
            assert all(isinstance(orjson.loads(line)["_ng_task_index"], int) for line in kept)
