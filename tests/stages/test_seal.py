"""Sealing publishes what there is and asks for nothing; discarding moves it aside and starts over."""

import json

import pytest

from helpers.chaos import row
from helpers.runs import Run, json_lines, rollmake
from helpers.servers import chaos_server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with chaos_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def partly(tmp_path, server):
    """Two shards: the first collected, of the second one rollout."""
    run = Run(tmp_path / "run", server.address, [row(number=i, salt=str(tmp_path)) for i in range(4)], shards=2)
    assert run.collect("0000-of-0002") == 0
    run.journal("0001-of-0002").mkdir()
    (run.journal("0001-of-0002") / "rollouts.jsonl").write_bytes(
        b'{"reward":1,"_ng_task_index":1,"_ng_rollout_index":0}\n'
    )
    return run


def test_sealing_publishes_every_shard_as_it_is_and_asks_for_nothing(partly, server):
    before = sum(server.arrived().values())
    assert rollmake("seal", partly.folder) == 0
    assert sum(server.arrived().values()) == before
    assert [len(partly.rollouts(shard)) for shard in ("0000-of-0002", "0001-of-0002")] == [2, 1]
    collection = partly.collection("0001-of-0002")
    assert (collection["owed"], collection["succeeded"], collection["missing"]) == (2, 1, 1)
    assert collection["jobs"][-1]["end"] == "accepted partial"
    assert json.loads((partly.journal("0001-of-0002") / "progress.json").read_text())["state"] == "accepted partial"


def repaired(run, shard):
    return run.folder / "repaired" / shard / "rollouts.jsonl"


def test_the_job_of_the_workflow_takes_a_sealed_shard_as_it_is_once_and_then_goes_on(partly, server):
    shard = "0001-of-0002"
    assert rollmake("seal", partly.folder, "--shard", shard) == 0
    partly.output(shard).unlink()  # As Snakemake does before a job.
    before = sum(server.arrived().values())
    assert partly.collect(shard, repaired=repaired(partly, shard)) == 0
    assert sum(server.arrived().values()) == before
    assert len(json_lines(repaired(partly, shard))) == len(partly.rollouts(shard)) == 1
    assert partly.collection(shard)["missing"] == 1
    assert partly.collect(shard, repaired=repaired(partly, shard)) == 0
    assert len(json_lines(repaired(partly, shard))) == len(partly.rollouts(shard)) == 2


def test_a_shard_that_was_sealed_under_another_plan_is_collected(partly):
    shard = "0001-of-0002"
    (partly.journal(shard) / "sealed_by_hand").write_text("another digest")
    assert partly.collect(shard, repaired=repaired(partly, shard)) == 0
    assert len(partly.rollouts(shard)) == 2


def test_collecting_goes_on_after_sealing(partly):
    assert rollmake("seal", partly.folder, "--shard", "0001-of-0002") == 0
    assert partly.collect("0001-of-0002") == 0
    assert sorted(r["_ng_task_index"] for r in partly.rollouts("0001-of-0002")) == [1, 3]


def test_a_shard_that_is_published_is_sealed_again_only_if_it_is_named(partly):
    path = partly.output("0000-of-0002")
    path.unlink()
    path.touch()
    assert rollmake("seal", partly.folder) == 0
    assert path.read_bytes() == b""
    assert rollmake("seal", partly.folder, "--shard", "0000-of-0002") == 0
    assert len(json_lines(path)) == 2


@pytest.mark.parametrize("command", ["seal", "discard"])
def test_an_unknown_shard_is_refused_with_the_known_ones(partly, command, capfd):
    assert rollmake(command, partly.folder, "--shard", "0007-of-0002") == 1
    said = capfd.readouterr().err
    assert "the run has no shard 0007-of-0002" in said
    assert "0000-of-0002 to 0001-of-0002" in said


@pytest.mark.parametrize("command", ["seal", "discard"])
def test_a_folder_without_a_plan_is_refused(tmp_path, command, capfd):
    assert rollmake(command, tmp_path) == 1
    assert "there is no plan" in capfd.readouterr().err


def test_discarding_moves_everything_aside_and_the_next_job_starts_over(partly, server):
    (partly.folder / "rollouts.jsonl").write_text("old")
    (partly.folder / "coverage.json").write_text("old")
    before = sum(server.arrived().values())
    assert rollmake("discard", partly.folder) == 0
    [aside] = (partly.folder / "discarded").iterdir()
    assert len(json_lines(aside / "journal" / "0000-of-0002" / "rollouts.jsonl")) == 2
    assert (aside / "rollouts.jsonl").read_text() == (aside / "coverage.json").read_text() == "old"
    assert (aside / "shards" / "0000-of-0002" / "rollouts.jsonl").exists()
    assert (partly.folder / "plan.json").exists()
    assert not (partly.folder / "rollouts.jsonl").exists()
    assert partly.collect("0000-of-0002") == 0
    assert sum(server.arrived().values()) - before == 2
    assert all("_ng_attempt_index" not in r for r in partly.rollouts("0000-of-0002"))


def test_discarding_one_shard_leaves_the_others(partly):
    assert rollmake("discard", partly.folder, "--shard", "0001-of-0002") == 0
    assert not partly.journal("0001-of-0002").exists()
    assert partly.output("0000-of-0002").exists()
    assert len(json_lines(partly.journal("0000-of-0002") / "rollouts.jsonl")) == 2


def test_old_failures_do_not_count_as_attempts_after_a_discard(tmp_path, server):
    run = Run(tmp_path / "run", server.address, [row(["500"], 1, salt="discarded")])
    run.journal().mkdir(parents=True)
    failure = b'{"_ng_task_index":0,"_ng_rollout_index":0,"_ng_failure_class":"x"}\n'
    (run.journal() / "rollouts_failures.jsonl").write_bytes(failure * 3)
    assert run.collect() == 0
    assert run.rollouts() == []
    assert rollmake("discard", run.folder) == 0
    assert run.collect() == 0
    assert [r["_ng_attempt_index"] for r in run.rollouts()] == [1]


def test_watching_a_finished_run_shows_it_once(partly, capsys):
    assert rollmake("seal", partly.folder) == 0
    assert partly.collect("0001-of-0002") == 0
    assert rollmake("watch", partly.folder) == 0
    assert capsys.readouterr().out.count("all 2") == 1
