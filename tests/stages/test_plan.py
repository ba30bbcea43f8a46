"""`rollmake plan` reads a config and what its runs left on disk."""

import json
from datetime import datetime, timedelta

import polars as pl
import pytest
import yaml

from helpers.run_folder import make_run
from helpers.runs import rollmake
from rollmake.core.latency import LatencySummary


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A config with two runs of 4 slots; `first` is planned, with 12 tasks of 5 repeats in 3 shards."""
    monkeypatch.chdir(tmp_path)
    run = {"input": "tasks.jsonl", "num_samples_in_parallel": 4}
    config = {"environment": {"embedded": {"policy": "scripted"}}, "runs": {"first": run, "second": run}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    make_run(tmp_path / "results" / "first", tasks=12, repeats=5, shards=3)
    for path in (tmp_path / "results" / "first").glob("shards/*"):
        (path / "collection.json").unlink()
    return tmp_path


@pytest.fixture
def said(capsys):
    """Run the stage; returns its exit code and all that it said."""

    def run(*words):
        code = rollmake("plan", "config.yaml", *words)
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


def progress(study, shard, durations, done=0, run="first", rate=None):
    folder = study / "results" / run / "journal" / shard
    folder.mkdir(parents=True)
    figures = {"done": done, "gated": 0, "failed_by_class": {}, "state": "owed", "rate_per_s": rate, "eta_s": None}
    latency = LatencySummary.of(durations).to_dict()
    (folder / "progress.json").write_text(json.dumps(figures | {"latency": latency, "last_row": None}))
    (folder / "rollouts.jsonl").write_text("{}\n" * done)


def test_a_run_that_is_not_planned_says_how_to_plan_it(study, said):
    command = "snakemake --cores 1 results/second/plan.json --configfile config.yaml"
    assert f"run second: it is not planned yet; `{command}` plans it" in said()[1]


def test_a_run_that_something_else_collected_owes_nothing(study, said):
    config = yaml.safe_load((study / "config.yaml").read_text())
    config["runs"]["second"] = {"input_glob": "elsewhere/*.jsonl"}
    (study / "config.yaml").write_text(yaml.safe_dump(config))
    text = said()[1]
    assert "run second: something else collected it" in text
    assert "run first: 60 rollouts owed" in text


def test_without_evidence_it_says_nothing_about_time(study, said):
    code, text = said("--runtime-min", "60")
    assert code == 0
    assert "run first: 60 rollouts owed, in 3 of 3 shards" in text
    assert "evidence: none" in text
    assert "allocations" not in text


def test_evidence_is_pooled_over_the_shards(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    progress(study, "0001-of-0003", [20.0] * 8, done=8)
    text = said("--runtime-min", "60")[1]
    assert "44 rollouts owed" in text
    assert "16 answered rollouts took 15 s on average" in text
    assert "the longest 20 s; with fewer than 30 take it as a guess" in text


def test_the_observed_rate_stands_beside_what_is_reckoned_with(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8, rate=0.3)
    progress(study, "0001-of-0003", [10.0] * 8, done=8, rate=0.2)
    text = said("--runtime-min", "60")[1]
    assert (
        "observed rate: 0.25 rollouts/s a job, over the latest jobs of 2 shards; 4 slots always busy would give 0.4/s"
        in text
    )


def test_without_a_rate_it_says_nothing_of_it(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    assert "rate" not in said("--runtime-min", "60")[1]


def test_the_end_by_hand(study, said):
    # 12, 20 and 20 rollouts of 10 s in 4 slots: 30, 50 and 50 s; on two jobs 30 + 50 s.
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    text = said("--runtime-min", "60", "--jobs", "2")[1]
    assert "with 2 jobs at once: 1 min 20 s" in text
    assert "the number of jobs: 2 at once, for 3 shards" in text
    assert "allocations: 3, up to 1 a shard" in text
    assert "`retries` must be 0 or more" in text


def test_the_time_limit_comes_from_the_config(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    assert "--runtime-min" in said()[1]
    config = yaml.safe_load((study / "config.yaml").read_text())
    (study / "config.yaml").write_text(yaml.safe_dump(config | {"job": {"runtime": 2}}))
    # 120 s less 80 s and a margin of 10 s.
    assert "each starting rollouts for 30 s" in said()[1]
    assert "each starting rollouts for 58 min 30 s" in said("--runtime-min", "60")[1]


def test_small_allocations_make_chains(study, said):
    # 100 s less a grace of 20 s and 60 s for the end leave 20 s, less a margin of 10 s: each slot starts one.
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    text = said("--runtime-min", str(100 / 60))[1]
    assert "allocations: 13, up to 5 a shard" in text
    assert "`retries` must be 4 or more" in text


def test_an_allocation_that_is_too_short(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    assert "an allocation of 1.5 min starts no rollout" in said("--runtime-min", "1.5")[1]


def test_in_flight_and_servers_bind(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    assert "in_flight: 7 requests at once, for 3 shards" in said("--jobs", "9", "--in-flight", "7")[1]
    assert "the servers: 0.25 rollouts per second" in said("--jobs", "9", "--max-per-s", "0.25")[1]


def test_the_fewest_jobs_that_end_by_an_hour(study, said):
    progress(study, "0000-of-0003", [10.0] * 8, done=8)
    late = (datetime.now() + timedelta(hours=3)).isoformat(timespec="minutes")
    assert "to end in time: 1 at once, 3 in all, 2 min 10 s" in said("--by", late)[1]
    early = (datetime.now() - timedelta(minutes=2)).isoformat(timespec="minutes")
    assert "it does not end in time with any number of jobs" in said("--by", early)[1]


def test_a_run_without_evidence_borrows_that_of_the_others(study, said):
    make_run(study / "results" / "second", tasks=12, repeats=5, shards=3)
    text = said()[1]
    assert "of the config's other runs, since this one has none yet" in text.split("run second")[0]


def test_the_tail_of_a_run(study, said):
    folder = study / "results" / "first"
    for number, longest in enumerate((100.0, 3000.0, 200.0)):
        shard = f"000{number}-of-0003"
        durations = [60.0] * 19 + [longest]
        jobs = [{"started": "2026-01-02T03:00:00Z", "ended": "2026-01-02T04:00:00Z"}, {"started": "x", "ended": None}]
        content = {"latency": LatencySummary.of(durations).to_dict(), "jobs": jobs}
        (folder / "shards" / shard / "collection.json").write_text(json.dumps(content))
    scores = folder / "repaired" / "0000-of-0003" / "scores.parquet"
    frame = pl.read_parquet(scores)
    slow = pl.Series("perf/total_latency_ms", [None, *[90_000] * (len(frame) - 1)], dtype=pl.Int64)
    slow[2] = 100_000
    frame.with_columns(slow).write_parquet(scores)
    task, rollout = frame.row(2)[:2]
    lines = [line.strip() for line in said()[1].splitlines() if "of-0003:" in line]
    # An hour each; 19 * 60 s and the longest, over 4 slots, were busy: 310, 1035 and 335 s.
    assert [line[:12] for line in lines] == ["0000-of-0003", "0002-of-0003", "0001-of-0003"]
    assert "1 h 00 min in 2 jobs, 54 min 50 s of it with idle slots" in lines[0]
    assert lines[0].endswith(f"its slowest rollout is task {task}, rollout {rollout}: 1 min 40 s")
    assert "42 min 45 s of it with idle slots; half took at most 60" in lines[2]
    assert "the longest 50 min 00 s" in lines[2]


def test_no_config(tmp_path, monkeypatch, said):
    monkeypatch.chdir(tmp_path)
    code, text = said()
    assert code == 1
    assert "config.yaml: there is no such config" in text


@pytest.mark.parametrize("words", [("--by", "soon")])
def test_no_time(study, said, words):
    code, text = said(*words)
    assert code == 1
    assert "--by: 'soon' is no time. Give it as HH:MM" in text
