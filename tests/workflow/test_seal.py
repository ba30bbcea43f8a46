"""Sealing a run by hand, and going on with it later, by real Snakemake."""

import json

from helpers.runs import json_lines, rollmake
from helpers.workflow import ROOT, Workflow


def test_a_sealed_run_is_scored_as_it_is_and_collected_further_only_by_force(tmp_path):
    workflow = Workflow(
        tmp_path,
        environment={"embedded": {"policy": "scripted"}},
        runs={"quiz": {"input": str(ROOT / "config/demo/tasks.jsonl"), "shards": 2, "metrics": {"backend": "local"}}},
    )
    run = workflow.results / "quiz"
    assert workflow.run("results/quiz/shards/0000-of-0002/rollouts.jsonl").returncode == 0
    assert rollmake("seal", run) == 0
    sealed = workflow.run()
    assert sealed.returncode == 0, sealed.stderr
    coverage = json.loads((run / "coverage.json").read_text())
    assert (coverage["expected"], coverage["scored"], coverage["missing"]) == (24, 12, 12)
    assert "12 owed, and published without them" in (run / "logs/collect/0001-of-0002.log").read_text()
    assert workflow.planned() == {}
    assert workflow.run("--forcerun", "collect").returncode == 0
    assert len(json_lines(run / "rollouts.jsonl")) == 24
    assert json.loads((run / "coverage.json").read_text())["missing"] == 0
