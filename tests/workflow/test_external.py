"""Runs that start at rollouts which something else collected, by real Snakemake and without any server."""

import json

import pytest
import yaml

from helpers.metrics_server import serving
from helpers.runs import json_lines
from helpers.workflow import Workflow

NOBODY_PORT = 9


def row(task, rollout=0, **fields):
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": "solver"}, **fields}


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))


def topology(folder, port=NOBODY_PORT):
    server = {"host": "127.0.0.1", "port": port, "agent_server": {"name": "solver"}}
    content = {"quiz": {"environment_servers": {"quiz": server}}}
    content["solver"] = {"responses_api_agents": {"solver": {"host": "127.0.0.1", "port": NOBODY_PORT}}}
    (folder / "servers.yaml").write_text(yaml.safe_dump(content))
    return {"topology": "servers.yaml"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two files of one run, of which the second tried again what failed in the first, and a file of another run."""
    folder = tmp_path_factory.mktemp("external")
    tasks = [row(task, rollout, subset="odd" if task % 2 else "even") for task in range(3) for rollout in range(2)]
    answers = [
        row(task, rollout, reward=float(task > rollout), said=str(task)) for task in range(3) for rollout in (0, 1)
    ]
    write(
        folder / "old/a.jsonl", [*reversed(answers[2:]), {"_ng_task_index": 9, "_ng_rollout_index": 0, "reward": 1.0}]
    )
    write(folder / "old/a_failures.jsonl", [row(0, 0, _ng_failure_class="slow"), row(0, 1, _ng_failure_class="slow")])
    write(folder / "old/b.jsonl", answers[:1])
    write(folder / "old/b_materialized_inputs.jsonl", tasks[:2])
    write(folder / "old/a_aggregate_metrics.json", [])
    write(folder / "new/c.jsonl", [one | {"reward": 1.0} for one in answers])
    local = {"backend": "local", "answer_key": "said"}
    workflow = Workflow(
        folder,
        environment=topology(folder),
        defaults={"metrics": local},
        runs={
            "old": {"input_glob": "old/*.jsonl, results/old/rollouts.jsonl", "require_complete": True},
            "new": {"input_glob": "new/*.jsonl", "require_complete": True},
            "bare": {"input_glob": "new/c.jsonl", "disable_aggregation": True, "merge_shards": False},
        },
        compare=[["old", "new"]],
    )
    assert workflow.planned() == {
        "environment": 3, "repair": 4, "adopt": 3, "concatenate": 2, "aggregate": 2, "coverage": 3, "statistics": 2,
        "compare": 1, "report": 3, "check": 2,
    }  # fmt: skip
    workflow.done = workflow.run("--keep-going")
    return workflow


def content(workflow, name):
    return json.loads((workflow.results / name).read_text())


def test_a_run_that_is_not_complete_fails_after_everything_else_is_written(finished):
    assert finished.done.returncode == 1
    assert "1 of 7 rollouts have no result (failed: slow 1)" in finished.done.stderr
    assert not (finished.results / "old/complete.json").exists()
    assert content(finished, "new/complete.json") == {"version": 1, "expected": 6, "answered": 6}
    assert set(finished.planned()) == {"check"}


def test_shards_are_merged_and_a_success_in_one_stands_for_a_failure_in_another(finished):
    rows = json_lines(finished.results / "old/rollouts.jsonl")
    keys = [(one["_ng_task_index"], one["_ng_rollout_index"]) for one in rows]
    assert keys == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (9, 0)]
    coverage = content(finished, "old/coverage.json")
    assert (coverage["expected"], coverage["scored"], coverage["failed_by_class"]) == (7, 5, {"slow": 1})
    assert (coverage["unrouted"], coverage["unrouted_keys"]) == (1, [[9, 0]])


def test_scores_are_computed_without_servers(finished):
    [entry] = content(finished, "old/rollouts_aggregate_metrics.json")
    assert (entry["agent_ref"]["name"], entry["_ng_environment_server"]) == ("solver", "quiz")
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(3 / 5)
    assert entry["key_metrics"]["majority@2/accuracy"] == pytest.approx(100 * (0 + 0.5 + 1) / 3)
    found = content(finished, "old/statistics.json")["servers"]["quiz"]
    assert found["mean"]["estimate"] == pytest.approx(3 / 5)
    assert (found["unknown"], found["if_unknown_failed"], found["if_unknown_passed"]) == (1, 0.5, 4 / 6)


def test_runs_are_compared_task_by_task(finished):
    found = content(finished, "compare/old-vs-new.json")
    assert (found["first"], found["second"]) == ("old", "new")
    [pair] = found["comparisons"]
    assert (pair["tasks"], pair["better"], pair["worse"]) == (3, 2, 0)
    assert pair["difference"]["estimate"] == pytest.approx((1 + 0.5 + 0) / 3)


def test_a_run_without_aggregation_ends_with_its_coverage(finished):
    names = {path.name for path in (finished.results / "bare").iterdir()}
    assert {"coverage.json", "report.html", "plan.json"} <= names
    assert not {"rollouts.jsonl", "rollouts_aggregate_metrics.json", "statistics.json"} & names


def test_the_coverage_stands_although_a_server_does_not_score(tmp_path):
    write(tmp_path / "in/a.jsonl", [row(0, reward=1.0)])
    write(tmp_path / "in/a_failures.jsonl", [row(1, _ng_failure_class="slow")] * 3)
    with serving((422, b"no", {})) as server:
        workflow = Workflow(
            tmp_path, environment=topology(tmp_path, server.port), runs={"x": {"input_glob": "in/*.jsonl"}}
        )
        done = workflow.run("--keep-going")
    assert done.returncode == 1
    assert "'quiz'" in done.stderr
    assert "status 422" in done.stderr
    coverage = content(workflow, "x/coverage.json")
    assert (coverage["scored"], coverage["failed_by_class"], coverage["gated"]) == (1, {"slow": 1}, 1)
    assert not (workflow.results / "x/rollouts_aggregate_metrics.json").exists()
    assert workflow.planned() == {"aggregate": 1, "report": 1}


def test_damaged_lines_do_not_vanish_from_what_is_owed(tmp_path):
    good = "".join(json.dumps(row(task, reward=1.0)) + "\n" for task in range(4))
    nan, torn = json.dumps(row(3, 1, reward=float("nan"))) + "\n", '{"_ng_task_ind'
    again = json.dumps(row(3, 1, reward=0.0)) + "\n"
    (tmp_path / "in").mkdir()
    for name, content in (("lost", good + nan + torn), ("again", good + nan + again), ("torn", good + torn)):
        (tmp_path / "in" / f"{name}.jsonl").write_text(content)
    must = {"require_complete": True}
    runs = {name: {"input_glob": f"in/{name}.jsonl"} | must for name in ("lost", "again", "torn")}
    workflow = Workflow(tmp_path, environment=topology(tmp_path), defaults={"metrics": {"backend": "local"}}, runs=runs)
    done = workflow.run("--keep-going")
    assert done.returncode == 1
    assert "1 of 5 rollouts have no result (1 left no row); the first that left none: task 3 rollout 1" in done.stderr
    assert done.stderr.count("damaged lines may each be a rollout that nothing else says to be owed (1 in all)") >= 2
    assert "see repaired/SHARD/quarantine.jsonl of 0000-of-0001 1" in done.stderr
    assert content_of_complete(workflow) == {"again": {"version": 1, "expected": 5, "answered": 5}}
    assert "The score rests on 4 of 4 known rollouts" in (workflow.results / "torn/report.html").read_text()


def content_of_complete(workflow):
    return {path.parent.name: json.loads(path.read_text()) for path in workflow.results.glob("*/complete.json")}


def test_a_pattern_that_matches_nothing_is_named(tmp_path):
    write(tmp_path / "in/a.jsonl", [row(0, reward=1.0)])
    runs = {"x": {"input_glob": "nowhere/*.jsonl"}, "y": {"input_glob": "in/*.jsonl"}}
    workflow = Workflow(tmp_path, environment=topology(tmp_path), runs=runs)
    done = workflow.run("-n")
    assert done.returncode == 1
    assert "runs.x: no rollouts file matches 'nowhere/*.jsonl'" in done.stdout + done.stderr
    assert workflow.planned("results/y/coverage.json") == {"adopt": 1, "coverage": 1, "environment": 1, "repair": 1}
