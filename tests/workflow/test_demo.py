"""The demo and its like, by real Snakemake."""

import json
import shutil

import pytest

from helpers.runs import json_lines
from helpers.workflow import ROOT, Workflow

EMBEDDED = {"embedded": {"policy": "scripted", "latency_s": 0.01}}
TASKS = str(ROOT / "config/demo/tasks.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two runs that share an environment, finished."""
    workflow = Workflow(
        tmp_path_factory.mktemp("demo"),
        environment=EMBEDDED,
        defaults={"input": TASKS, "num_repeats": 2},
        runs={"one": {"shards": 3}, "two": {"num_repeats": 1}},
    )
    assert workflow.planned() == {
        "environment": 2, "materialize": 2, "collect": 4, "concatenate": 2, "aggregate": 2, "coverage": 2, "statistics": 2,
        "report": 2,
    }  # fmt: skip
    done = workflow.run()
    assert done.returncode == 0, done.stderr
    return workflow


@pytest.fixture
def copy(finished, tmp_path):
    """The finished runs, to change."""
    shutil.copytree(finished.folder, tmp_path / "copy", symlinks=True)
    workflow = Workflow(tmp_path / "copy")
    shutil.copy(finished.folder / "config.yaml", workflow.folder / "config.yaml")
    return workflow


def test_every_stage_left_its_files(finished):
    run = finished.results / "one"
    rows = json_lines(run / "rollouts.jsonl")
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in rows] == [
        (t, r) for t in range(24) for r in range(2)
    ]
    [entry] = json.loads((run / "rollouts_aggregate_metrics.json").read_text())
    rewards = [r["reward"] for r in rows]
    assert 0 < sum(rewards) < len(rewards)
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))
    coverage = json.loads((run / "coverage.json").read_text())
    assert (coverage["expected"], coverage["scored"], coverage["missing"]) == (48, 48, 0)
    assert "<script" not in (run / "report.html").read_text()
    assert len(json_lines(finished.results / "two" / "rollouts.jsonl")) == 24


def test_after_a_finished_run_nothing_is_to_be_done(finished):
    assert finished.planned() == {}


def test_the_scripted_policy_answers_the_same_whatever_the_shards(finished):
    one = {
        (r["_ng_task_index"], r["_ng_rollout_index"]): r["reward"]
        for r in json_lines(finished.results / "one" / "rollouts.jsonl")
    }
    two = {
        (r["_ng_task_index"], r["_ng_rollout_index"]): r["reward"]
        for r in json_lines(finished.results / "two" / "rollouts.jsonl")
    }
    assert two == {key: one[key] for key in two}


def test_a_named_shard_is_planned_and_built_alone_and_not_again(tmp_path):
    workflow = Workflow(tmp_path, environment=EMBEDDED, runs={"demo": {"input": TASKS, "shards": 3}})
    target = "results/demo/shards/0002-of-0003/rollouts.jsonl"
    assert workflow.planned(target) == {"environment": 1, "materialize": 1, "collect": 1}
    assert workflow.run(target).returncode == 0
    assert sorted(path.name for path in (workflow.results / "demo" / "shards").iterdir()) == ["0002-of-0003"]
    assert workflow.planned(target) == {}


def change(workflow, **options):
    workflow.configure(
        environment=EMBEDDED,
        defaults={"input": TASKS, "num_repeats": 2, **options},
        runs={"one": {"shards": 3}, "two": {"num_repeats": 1}},
    )


@pytest.mark.parametrize(
    "options",
    [
        {"num_samples_in_parallel": 3},
        {"rollout_timeout_s": 60, "grace_s": 1, "gateway_retries": 1},
        {"route_failures_to_sidecar": False, "progress_interval_s": 1},
    ],
)
def test_options_that_change_no_result_rerun_nothing(copy, options):
    change(copy, **options)
    assert copy.planned() == {}


def test_options_that_change_a_result_rerun_their_stage_and_what_follows(copy):
    change(copy, count_missing_rollouts_as_zero=True)
    assert copy.planned() == {"aggregate": 2, "coverage": 2, "statistics": 2, "report": 2}
    change(copy, max_attempts=7)
    assert copy.planned() == {
        "collect": 4, "concatenate": 2, "aggregate": 2, "coverage": 2, "statistics": 2, "report": 2,
    }  # fmt: skip


def test_another_number_of_shards_asks_for_nothing_again(copy):
    before = (copy.results / "one" / "rollouts.jsonl").read_bytes()
    copy.configure(
        environment=EMBEDDED,
        defaults={"input": TASKS, "num_repeats": 2},
        runs={"one": {"shards": 5}, "two": {"num_repeats": 1}},
    )
    done = copy.run()
    assert done.returncode == 0, done.stderr
    assert (copy.results / "one" / "rollouts.jsonl").read_bytes() == before
    collections = [
        json.loads(p.read_text()) for p in (copy.results / "one" / "shards").glob("*-of-0005/collection.json")
    ]
    assert len(collections) == 5
    assert sum(collection["requests"] for collection in collections) == 0
    assert copy.planned() == {}


def test_a_forced_rerun_asks_for_nothing_again(copy):
    done = copy.run("--forcerun", "collect")
    assert done.returncode == 0, done.stderr
    collection = json.loads((copy.results / "two" / "shards" / "0000-of-0001" / "collection.json").read_text())
    assert (collection["requests"], collection["succeeded"]) == (24, 24)
    assert [job["requests"] for job in collection["jobs"]] == [24, 0]


def test_a_config_that_is_wrong_is_refused_before_any_job(tmp_path):
    workflow = Workflow(tmp_path, environment=EMBEDDED, runs={"demo": {"input": TASKS, "num_repeat": 3}})
    done = workflow.run("-n")
    assert done.returncode == 1
    assert "runs.demo: unknown key 'num_repeat'. Did you mean num_repeats?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_config_without_runs_and_a_run_that_is_not_in_it_are_refused(tmp_path):
    workflow = Workflow(tmp_path, environment=EMBEDDED)
    done = workflow.run("-n")
    assert done.returncode == 1
    assert "config.yaml: the top level: the key runs is missing" in done.stdout + done.stderr
    workflow.configure(environment=EMBEDDED, runs={"demo": {"input": TASKS}})
    done = workflow.run("-n", "results/demos/report.html")
    assert done.returncode == 1
    assert "results/demos/report.html" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_config_of_ones_own_does_not_bring_the_demo_along(tmp_path):
    workflow = Workflow(tmp_path, environment=EMBEDDED, runs={"mine": {"input": TASKS}})
    shutil.copytree(ROOT / "config", tmp_path / "config")
    assert workflow.planned()["collect"] == 1


def test_a_model_server_that_is_down_is_an_outage_and_its_key_lies_nowhere(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLMAKE_TEST_KEY", "sk-very-secret")
    model = {"base_url": "http://127.0.0.1:9/v1", "name": "m", "api_key_env": "ROLLMAKE_TEST_KEY"}
    options = {"input": TASKS, "gateway_retries": 0, "outage_patience_s": 1}
    workflow = Workflow(tmp_path, environment={"embedded": {"model": model}}, runs={"demo": options})
    done = workflow.run()
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "no connection to the model server at http://127.0.0.1:9/v1" in said
    assert "24 of 24 rollouts are still owed" in said
    journal = workflow.results / "demo" / "journal" / "0000-of-0001"
    assert (journal / "rollouts_failures.jsonl").read_bytes() == b"", "no attempt is spent"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-very-secret" in path.read_bytes()]
