"""`rollmake status` reads a plan and journals, and refuses what is no run."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from helpers.run_folder import make_run
from rollmake.core.errors import DataError, InputError
from rollmake.stages import repair, status
from stages.shard_files import lines, row, write_shard

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path / "run", tasks=4, repeats=5, shards=3)


def journal(folder, shard, rows, **progress):
    path = folder / "journal" / shard
    path.mkdir(parents=True)
    (path / "rollouts.jsonl").write_text("{}\n" * rows + "{torn")
    seconds = (NOW - timedelta(seconds=60)).timestamp()
    os.utime(path / "rollouts.jsonl", (seconds, seconds))
    if progress:
        (path / "progress.json").write_text(json.dumps(progress))


PROGRESS = {
    "version": 1,
    "done": 3,
    "gated": 1,
    "failed_by_class": {"judge_failed": 2},
    "in_flight": 4,
    "rate_per_s": 2.0,
    "eta_s": 1.0,
    "updated": "2026-01-02T11:59:58.000000Z",
    "last_row": "2026-01-02T11:59:50.000000Z",
    "state": "running",
}


def test_shards_are_told_from_progress_journal_or_plan(folder):
    journal(folder, "0000-of-0003", 9, **PROGRESS)
    journal(folder, "0001-of-0003", 2)
    first, second, third = status.statuses(folder, NOW)
    assert (first.state, first.planned, first.done, first.gated, first.owed) == ("running", 10, 3, 1, 6)
    assert (first.failed_by_class, first.age_s) == ({"judge_failed": 2}, 10.0)
    assert (second.state, second.planned, second.done, second.owed, second.age_s) == ("started", 5, 2, 3, 60.0)
    assert (third.state, third.planned, third.done, third.owed, third.age_s) == ("not started", 5, 0, 5, None)


def test_a_shard_that_something_else_collected_is_as_far_as_its_repaired_files_say(folder):
    failed = [row(0, 0, _ng_failure_class="a"), row(2, 0, _ng_failure_class="a"), row(2, 0, _ng_failure_class="b")]
    shutil.rmtree(folder / "shards" / "0002-of-0003")
    source = write_shard(folder / "in", lines(row(0, 0), row(0, 1)), lines(*failed))
    repaired = folder / "repaired" / "0002-of-0003"
    files = repair.Files(rollouts=source, output=repaired / "rollouts.jsonl")
    repair.run(files, repair.Settings(retry_invalid_judge_responses=False))
    shard = status.statuses(folder, NOW)[2]
    assert (shard.state, shard.planned, shard.done, shard.gated, shard.owed) == ("repaired", 5, 2, 1, 2)
    assert shard.failed_by_class == {"b": 1}
    (repaired / "rollouts_failures.jsonl").unlink()
    with pytest.raises(
        DataError, match=r"0002-of-0003/rollouts_failures.jsonl: there is no such file. Repair that shard"
    ):
        status.statuses(folder, NOW)
    (repaired / "scores.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"0002-of-0003/scores.parquet: cannot be read.*Repair that shard again"):
        status.statuses(folder, NOW)


def test_a_sealed_shard_without_a_journal_is_counted(folder):
    path = folder / "shards" / "0002-of-0003" / "rollouts.jsonl"
    path.write_text("{}\n" * 5)
    shard = status.statuses(folder, NOW)[2]
    assert (shard.state, shard.done, shard.owed) == ("sealed", 5, 0)


def test_an_empty_shard_is_planned_with_nothing(tmp_path):
    folder = make_run(tmp_path / "run", tasks=1, shards=2)
    assert [shard.planned for shard in status.statuses(folder, NOW)] == [4, 0]


def test_the_table_is_printed_with_a_total(folder, capsys):
    journal(folder, "0000-of-0003", 9, **PROGRESS)
    status.run(status.Files(run=folder), status.Settings())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shard ")
    assert [line.split()[0] for line in lines[1:4]] == ["0000-of-0003", "0001-of-0003", "0002-of-0003"]
    assert lines[4].startswith("all 3 ")
    assert "15 % done" in lines[4]
    assert lines[4].endswith("judge_failed 2")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"there is no plan\.json\. Name the folder of a run"):
        status.run(status.Files(run=tmp_path), status.Settings())
    with pytest.raises(InputError, match="nowhere: there is no such folder"):
        status.run(status.Files(run=tmp_path / "nowhere"), status.Settings())


@pytest.mark.parametrize("content", ["[]", "{", '{"done": 1}', json.dumps(PROGRESS | {"done": None})])
def test_a_damaged_progress_is_named(folder, content):
    journal(folder, "0001-of-0003", 2)
    (folder / "journal" / "0001-of-0003" / "progress.json").write_text(content)
    with pytest.raises(DataError, match=r"0001-of-0003.progress\.json"):
        status.statuses(folder, NOW)


def test_the_run_is_a_positional_argument():
    assert status.POSITIONAL == ("run",)
    assert "run" in status.Files.__struct_fields__
