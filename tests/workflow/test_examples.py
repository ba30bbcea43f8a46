"""Every example config is planned as it stands."""

import shutil

import pytest

from helpers.workflow import ROOT, Workflow

EXAMPLES = sorted((ROOT / "config/examples").glob("*.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_planned(tmp_path, example):
    workflow = Workflow(tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copy(example, tmp_path / "config.yaml")
    if example.stem == "external":
        shard = tmp_path / "results" / "demo" / "shards" / "0000-of-0003"
        shard.mkdir(parents=True)
        (shard / "rollouts.jsonl").touch()
    planned = workflow.planned()
    assert planned["report"] == (2 if example.stem == "head_server" else 1)
    assert planned.get("compare", 0) == (1 if example.stem == "head_server" else 0)
    assert planned.get("collect", 0) == {"model": 8, "head_server": 32, "external": 0}[example.stem]
