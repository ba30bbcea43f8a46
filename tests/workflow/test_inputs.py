"""What makes the stage materialize run again: its data sets, prompt and skills, by real Snakemake."""

import json
import os
import shutil

import pytest
import yaml

from helpers.materialize import flat
from helpers.runs import json_lines
from helpers.workflow import Workflow

TOPOLOGY = {
    "math": {
        "resources_servers": {
            "math": {
                "datasets": [
                    {"name": "sums", "type": "train", "jsonl_fpath": "data/sums.jsonl"},
                    {"name": "held_out", "type": "validation", "jsonl_fpath": "data/held_out.jsonl"},
                ]
            }
        }
    },
    "solver": {"responses_api_agents": {"simple_agent": {"resources_server": {"name": "math"}}}},
    "solver_env": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "solver"}}}},
}
PLAN = "results/quiz/plan.json"
FIRST = {"environment": 1, "materialize": 1}


def write_tasks(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def planned_split(tmp_path_factory):
    """A run over a split, up to its plan."""
    workflow = Workflow(tmp_path_factory.mktemp("split"), environment={"topology": "servers.yaml"})
    workflow.configure(environment={"topology": "servers.yaml"}, runs={"quiz": {"split": "train"}})
    (workflow.folder / "servers.yaml").write_text(yaml.safe_dump(TOPOLOGY, sort_keys=False))
    write_tasks(workflow.folder / "data" / "sums.jsonl", flat("1+1", None), flat("1+2", None))
    assert workflow.planned(PLAN) == FIRST
    # Without a target the rest of the run is planned too, although its tasks are not known yet.
    assert workflow.planned() == {**FIRST, "collect": 1, **dict.fromkeys(AFTERWARDS, 1)}
    done = workflow.run(PLAN)
    assert done.returncode == 0, done.stderr
    return workflow


AFTERWARDS = ("concatenate", "aggregate", "coverage", "statistics", "report")


@pytest.fixture
def split_run(planned_split, tmp_path):
    shutil.copytree(planned_split.folder, tmp_path / "copy", symlinks=True)
    workflow = Workflow(tmp_path / "copy")
    shutil.copy(planned_split.folder / "config.yaml", workflow.folder / "config.yaml")
    return workflow


def test_a_split_is_planned_once_and_not_again(planned_split):
    rows = json_lines(planned_split.results / "quiz" / "rollouts_materialized_inputs.jsonl")
    assert [row["task_source"] for row in rows] == ["math", "math"]
    assert planned_split.planned(PLAN) == {}


def test_a_changed_data_set_is_noticed(split_run):
    path = split_run.folder / "data" / "sums.jsonl"
    write_tasks(path, flat("1+1", None), flat("1+2", None), flat("1+3", None))
    assert split_run.planned(PLAN) == {"materialize": 1}
    assert split_run.run(PLAN).returncode == 0
    assert len(json_lines(split_run.results / "quiz" / "rollouts_materialized_inputs.jsonl")) == 3


def test_another_split_is_noticed_and_its_missing_file_told_with_the_server(split_run):
    split_run.configure(environment={"topology": "servers.yaml"}, runs={"quiz": {"split": "validation"}})
    done = split_run.run(PLAN)
    assert done.returncode == 1
    told = (split_run.results / "quiz" / "logs" / "materialize.log").read_text()
    assert "math.datasets.1 (held_out): there is no file data/held_out.jsonl. Correct jsonl_fpath there" in told
    write_tasks(split_run.folder / "data" / "held_out.jsonl", flat("2+2", None))
    done = split_run.run(PLAN)
    assert done.returncode == 0, done.stderr
    assert split_run.planned(PLAN) == {}


def test_a_data_set_that_the_topology_adds_is_noticed(split_run):
    more = {**TOPOLOGY, "math": {"resources_servers": {"math": {"datasets": [
        *TOPOLOGY["math"]["resources_servers"]["math"]["datasets"],
        {"name": "products", "type": "train", "jsonl_fpath": "data/products.jsonl"},
    ]}}}}  # fmt: skip
    path = split_run.folder / "servers.yaml"
    path.write_text(yaml.safe_dump(more, sort_keys=False))
    write_tasks(split_run.folder / "data" / "products.jsonl", flat("2*2", None))
    done = split_run.run(PLAN)
    assert done.returncode == 0, done.stderr
    rows = json_lines(split_run.results / "quiz" / "rollouts_materialized_inputs.jsonl")
    assert [row["responses_create_params"]["input"] for row in rows] == ["1+1", "1+2", "2*2"]


def test_tasks_that_are_not_there_are_named_with_their_run(tmp_path):
    workflow = Workflow(
        tmp_path, environment={"embedded": {"policy": "scripted"}}, runs={"quiz": {"input": "data/tasks.jsonl"}}
    )
    done = workflow.run("-n")
    assert done.returncode == 1
    assert "runs.quiz.input: there is no file data/tasks.jsonl" in done.stdout + done.stderr


def test_prompt_and_skills_are_noticed_and_files_are_looked_up_below_the_extra_roots(tmp_path, monkeypatch):
    workflow = Workflow(tmp_path / "here")
    write_tasks(tmp_path / "elsewhere" / "tasks.jsonl", {"question": "1+1", "agent_ref": {"name": "solver"}})
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", os.pathsep.join(["", str(tmp_path / "elsewhere")]))
    (workflow.folder / "servers.yaml").write_text(yaml.safe_dump(TOPOLOGY, sort_keys=False))
    prompt, skill = workflow.folder / "prompt.yaml", workflow.folder / "skills" / "adding" / "SKILL.md"
    prompt.write_text("user: 'Solve {question}'\n")
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: adding\n---\n")
    asked = {"input": "tasks.jsonl", "prompt_config": "prompt.yaml"}
    workflow.configure(
        environment={"topology": "servers.yaml"}, runs={"quiz": asked, "skilled": {**asked, "skills": "skills"}}
    )
    plans = (PLAN, PLAN.replace("quiz", "skilled"))
    done = workflow.run(*plans)
    assert done.returncode == 0, done.stderr
    assert workflow.planned(*plans) == {}
    (skill.parent / "examples.txt").write_text("1+1=2\n")
    assert workflow.planned(*plans) == {"materialize": 1}
    prompt.write_text("user: 'Please solve {question}'\n")
    assert workflow.planned(*plans) == {"materialize": 2}
