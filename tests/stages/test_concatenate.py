"""Merging shards: sorted, complete, and nothing written unless every row belongs."""

import resource

import msgspec
import polars as pl
import pytest

from rollmake.core.errors import DataError
from rollmake.core.plan import PLAN_VERSION, Plan
from rollmake.core.shards import shard_name
from rollmake.stages import concatenate, repair
from stages.shard_files import lines, row, write_shard


def write_plan(folder, keys, count, **changes):
    """plan.json and plan.parquet that owe `keys`, a task's rollouts in shard task modulo `count`."""
    tasks, rollouts = [task for task, _ in keys], [rollout for _, rollout in keys]
    frame = pl.DataFrame(
        {"task": tasks, "rollout": rollouts, "shard": [task % count for task in tasks], "server": "s"},
        schema={"task": pl.Int64, "rollout": pl.Int64, "shard": pl.Int32, "server": pl.String},
    )
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / "plan.parquet")
    facts = {"version": PLAN_VERSION, "shards": count, "tasks": len(set(tasks)), "rollouts": len(keys)}
    plan = Plan(**facts | {"materialized_bytes": 0, "digest": "0" * 32, "environment": "x"} | changes)
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))


def write_repaired(folder, index, count, rollouts, failures=b""):
    """One shard, repaired from these contents."""
    name = shard_name(index, count)
    source = write_shard(folder / "shards" / name, rollouts, failures)
    repair.run(
        repair.Files(rollouts=source, output=folder / "repaired" / name / "rollouts.jsonl"),
        repair.Settings(retry_invalid_judge_responses=False),
    )


def concatenated(folder):
    files = {"plan": folder / "plan.json", "repaired": folder / "repaired", "output": folder / "rollouts.jsonl"}
    concatenate.run(concatenate.Files(**files), concatenate.Settings())
    return (folder / "rollouts.jsonl").read_bytes(), (folder / "rollouts_failures.jsonl").read_bytes()


def refused(folder, *words):
    """Concatenating is refused with a message that holds all of `words`, and nothing is written."""
    with pytest.raises(DataError) as refusal:
        concatenated(folder)
    assert [word for word in words if word not in str(refusal.value)] == [], str(refusal.value)
    assert list(folder.glob("*.jsonl")) == []
    return str(refusal.value)


def test_shards_are_merged_in_order_and_counted(tmp_path, capsys):
    write_plan(tmp_path, [(task, rollout) for task in range(4) for rollout in range(2)], 2)
    failures = lines(row(2, 1, n=1), row(2, 1, _ng_attempt_index=1, n=2), row(0, 0))
    write_repaired(tmp_path, 0, 2, lines(row(2, 0), row(0, 1, x="é\u2028"), row(0, 0)), failures)
    write_repaired(tmp_path, 1, 2, lines(row(3, 1), row(1, 0)), lines(row(1, 1)))
    rollouts, sidecar = concatenated(tmp_path)
    assert rollouts == lines(row(0, 0), row(0, 1, x="é\u2028"), row(1, 0), row(2, 0), row(3, 1))
    assert sidecar == lines(row(0, 0), row(1, 1), row(2, 1, n=1), row(2, 1, _ng_attempt_index=1, n=2))
    assert capsys.readouterr().out == "owed 8: present 5, failed 2, missing 1\n"


def test_a_run_with_nothing_collected_has_empty_files(tmp_path, capsys):
    write_plan(tmp_path, [(0, 0)], 2)
    write_repaired(tmp_path, 0, 2, b"")
    write_repaired(tmp_path, 1, 2, b"")
    assert concatenated(tmp_path) == (b"", b"")
    assert capsys.readouterr().out == "owed 1: present 0, failed 0, missing 1\n"


def test_the_same_rollout_in_two_shards_is_refused_with_both_named(tmp_path):
    write_plan(tmp_path, [(0, 0), (1, 0)], 2)
    write_repaired(tmp_path, 0, 2, lines(row(0), row(1)))
    write_repaired(tmp_path, 1, 2, lines(row(1)))
    refused(tmp_path, "task 1, rollout 0", "0000-of-0002/rollouts.jsonl", "0001-of-0002/rollouts.jsonl")


@pytest.mark.parametrize(("rollouts", "failures"), [(lines(row(7)), b""), (b"", lines(row(7)))])
def test_a_row_that_nobody_owes_is_refused_with_file_and_plan(tmp_path, rollouts, failures):
    write_plan(tmp_path, [(0, 0)], 1)
    write_repaired(tmp_path, 0, 1, rollouts, failures)
    name = "rollouts.jsonl" if rollouts else "rollouts_failures.jsonl"
    refused(tmp_path, "task 7, rollout 0", f"0000-of-0001/{name}", "plan.parquet", "does not owe")


@pytest.mark.parametrize(("rollouts", "failures"), [(lines(row(1)), b""), (b"", lines(row(1)))])
def test_a_row_of_another_shard_is_refused_with_both_named(tmp_path, rollouts, failures):
    write_plan(tmp_path, [(0, 0), (1, 0)], 2)
    write_repaired(tmp_path, 0, 2, rollouts, failures)
    write_repaired(tmp_path, 1, 2, b"")
    refused(tmp_path, "task 1, rollout 0", "0000-of-0002", "0001-of-0002", "plan.parquet")


def test_shards_that_are_not_there_are_named(tmp_path):
    write_plan(tmp_path, [(0, 0)], 20)
    write_repaired(tmp_path, 3, 20, b"")
    refused(tmp_path, "19 planned shards", "0000-of-0020", "0002-of-0020, 0004-of-0020", "11 more")


def test_leftovers_of_another_number_of_shards_are_not_read(tmp_path):
    write_plan(tmp_path, [(0, 0)], 1)
    write_repaired(tmp_path, 0, 1, lines(row(0)))
    write_repaired(tmp_path, 1, 2, lines(row(5)))
    assert concatenated(tmp_path)[0] == lines(row(0))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rollouts.jsonl", lambda content: content[:-1]),
        ("rollouts.jsonl", lambda content: content + row(0) + b"\n"),
        ("rollouts.jsonl", lambda content: b""),
        ("scores.parquet", lambda content: content[:-9]),
        ("scores.parquet", lambda content: b""),
        ("rollouts_failures.jsonl", lambda content: content + b"{"),
    ],
)
def test_files_that_changed_after_repair_are_refused(tmp_path, name, change):
    write_plan(tmp_path, [(0, 0), (0, 1)], 1)
    write_repaired(tmp_path, 0, 1, lines(row(0), row(0, 1)), lines(row(0)))
    path = tmp_path / "repaired" / "0000-of-0001" / name
    path.write_bytes(change(path.read_bytes()))
    refused(tmp_path, str(path), "Repair that shard again")


def test_scores_that_overlap_are_refused(tmp_path):
    write_plan(tmp_path, [(0, 0), (0, 1)], 1)
    write_repaired(tmp_path, 0, 1, lines(row(0), row(0, 1)))
    scores = tmp_path / "repaired" / "0000-of-0001" / "scores.parquet"
    pl.read_parquet(scores).with_columns(pl.col("offset") - pl.Series([0, 1])).with_columns(
        pl.col("length") + pl.Series([0, 1])
    ).write_parquet(scores)
    refused(tmp_path, "rollouts.jsonl", "scores.parquet", "Repair that shard again")


def test_a_plan_of_another_version_or_no_plan_is_refused(tmp_path):
    write_plan(tmp_path, [(0, 0)], 1, version=PLAN_VERSION + 1)
    refused(tmp_path, "plan.json", "version", "materialize")
    (tmp_path / "plan.json").unlink()
    refused(tmp_path, "plan.json", "materialize")


def test_more_shards_than_file_descriptors_and_lines_longer_than_a_buffer(tmp_path):
    count, used = 80, 3
    keys = [(task, rollout) for task in range(count) for rollout in range(used)]
    write_plan(tmp_path, keys, count)
    texts = {key: "x" * (200_000 if key[0] % 9 == 0 else key[0]) for key in keys}
    for index in range(count):
        own = [row(index, rollout, text=texts[index, rollout]) for rollout in reversed(range(used))]
        write_repaired(tmp_path, index, count, lines(*own))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        rollouts, _ = concatenated(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rollouts == lines(*(row(*key, text=texts[key]) for key in keys))
