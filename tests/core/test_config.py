"""The config is refused with the place, what was found and the nearest known key, or filled in."""

from importlib import import_module

import msgspec
import pytest

from rollmake.core.config import resolve, stage_options
from rollmake.core.errors import InputError
from rollmake.edge.settings import as_text, flags, load_config, read_yaml, schema


def config(**changes):
    return {
        "environment": {"embedded": {"policy": "scripted"}},
        "runs": {"demo": {"input": "tasks.jsonl", "shards": 3}},
        **changes,
    }


def resolved(**changes):
    return resolve(config(**changes), schema("config"))


def refusal(**changes):
    with pytest.raises(InputError) as error:
        resolved(**changes)
    return str(error.value)


def test_defaults_are_filled_in():
    result = resolved()
    assert result["results"] == "results"
    run = result["runs"]["demo"]
    assert (run["num_repeats"], run["shards"], run["accept_partial"]) == (1, 3, False)
    assert run["environment"]["embedded"] == {"policy": "scripted", "error_rate": 0.3, "latency_s": 0.05, "seed": 0}


def test_a_runs_options_win_over_defaults_and_those_over_the_schema():
    result = resolved(
        defaults={"num_repeats": 8, "shards": 2}, runs={"a": {"input": "x"}, "b": {"input": "x", "num_repeats": 1}}
    )
    assert [(run["num_repeats"], run["shards"]) for run in result["runs"].values()] == [(8, 2), (1, 2)]


def test_a_runs_own_source_replaces_the_shared_one_of_either_kind():
    runs = resolved(defaults={"input": "x"}, runs={"a": {"input_glob": "y"}, "b": {}})["runs"]
    assert (runs["a"]["input"], runs["a"]["input_glob"]) == (None, "y")
    assert (runs["b"]["input"], runs["b"]["input_glob"]) == ("x", None)
    runs = resolved(defaults={"input_glob": "y"}, runs={"a": {"input": "x"}, "b": {}})["runs"]
    assert (runs["a"]["input"], runs["a"]["input_glob"], runs["b"]["input_glob"]) == ("x", None, "y")


def test_runs_to_compare_are_kept_in_order():
    runs = {name: {"input": "x"} for name in "abc"}
    assert resolved(runs=runs, compare=[["b", "a"], ["a", "c"]])["compare"] == [["b", "a"], ["a", "c"]]
    assert resolved()["compare"] == []


def test_a_run_may_have_its_own_environment():
    own = {"head_server": "http://host:11000", "serve": {"command": "x"}}
    run = resolved(runs={"a": {"input": "x", "environment": own}})["runs"]["a"]
    assert run["environment"] == {"head_server": "http://host:11000", "serve": {"command": "x", "ready_timeout_s": 120}}


def test_a_model_gets_no_defaults_of_the_scripted_policy():
    model = {"base_url": "http://127.0.0.1:1/v1", "name": "m"}
    run = resolved(environment={"embedded": {"model": model}})["runs"]["demo"]
    assert run["environment"]["embedded"] == {"model": {**model, "api": "responses"}}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"rusn": {}}, ["the top level", "'rusn'", "Did you mean runs?"]),
        ({"runs": {"demo": {"input": "x", "num_repeat": 3}}}, ["runs.demo", "'num_repeat'", "num_repeats"]),
        ({"runs": {"demo": {"input": "x", "shards": "3"}}}, ["runs.demo.shards", "'3' is text, not integer"]),
        ({"runs": {"demo": {"input": "x", "shards": 0}}}, ["runs.demo.shards", "0 is less than the minimum of 1"]),
        ({"runs": {"demo": {"input": "x", "shards": True}}}, ["runs.demo.shards", "truth value"]),
        ({"runs": {"../up": {"input": "x"}}}, ["'../up' is no name of a run"]),
        ({"runs": {"-a": {"input": "x"}}}, ["'-a' is no name of a run"]),
        ({"runs": {}}, ["runs"]),
        ({"runs": {"demo": {}}}, ["runs.demo", "no input", "Add `input`"]),
        ({"runs": {"demo": {"input": "x", "input_glob": "y"}}}, ["runs.demo", "both input and input_glob"]),
        ({"compare": [["demo", "nope"]]}, ["compare.0", "no run 'nope'", "Runs are demo"]),
        ({"compare": [["demo"]]}, ["compare.0", "too short"]),
        (
            {"runs": {"a": {"input": "x", "disable_aggregation": True}, "b": {"input": "x"}}, "compare": [["a", "b"]]},
            ["compare.0", "'a' has no scores to compare"],
        ),
        ({"runs": {"demo": {"input": "x", "metrics": {"backend": "remote"}}}}, ["runs.demo.metrics.backend"]),
        ({"runs": {"demo": {"input": "x", "metrics": {"score": "s"}}}}, ["runs.demo.metrics", "backend is missing"]),
        ({"environment": None}, ["environment"]),
        (
            {"environment": {"embedded": {"policy": "scripted"}, "topology": "t.yaml"}},
            ["embedded and topology", "exactly one"],
        ),
        ({"environment": {"embeded": {}}}, ["environment", "'embeded'", "Did you mean embedded?"]),
        ({"environment": {"head_server": "host:1"}}, ["environment.head_server"]),
        ({"environment": {"head_server": "http://me:secret@host:1"}}, ["environment.head_server"]),
        ({"environment": {"embedded": {"policy": "scripted", "error_rate": 2}}}, ["environment.embedded.error_rate"]),
    ],
)
def test_what_is_wrong_is_named_with_its_place(changes, parts):
    message = refusal(**changes)
    assert all(part in message for part in parts), message


def test_all_problems_are_reported_at_once():
    message = refusal(runs={"a": {"input": "x", "shards": "3"}, "b": {"inptu": "x"}})
    assert "2 problems" in message
    assert "runs.a.shards" in message
    assert "Did you mean input?" in message


def test_a_run_without_environment_says_where_to_put_one():
    with pytest.raises(InputError, match=r"runs\.demo: the run has no environment"):
        resolve({"runs": {"demo": {"input": "x"}}}, schema("config"))


def test_a_runs_own_tasks_replace_another_kind_from_the_defaults():
    runs = resolved(defaults={"input": "x"}, runs={"a": {"split": "train"}, "b": {}, "c": {"input": "y"}})["runs"]
    assert [(run["input"], run["split"]) for run in runs.values()] == [(None, "train"), ("x", None), ("y", None)]


@pytest.mark.parametrize(
    "changes",
    [
        {"runs": {"demo": {"input": "x", "split": "train"}}},
        {"defaults": {"input": "x", "split": "train"}, "runs": {"demo": {}}},
    ],
)
def test_tasks_come_from_one_place(changes):
    message = refusal(**changes)
    assert message == "runs.demo: the run has both input and split. Keep one of them"


@pytest.mark.parametrize("given", [{}, {"split": None}])
def test_a_run_without_tasks_is_told_how_to_get_some(given):
    message = refusal(runs={"demo": given})
    assert message.startswith("runs.demo: the run has no input. Add `input`")
    assert "`split`" in message


def test_a_split_is_one_that_is_held_out_or_trained_on():
    message = refusal(runs={"demo": {"split": "example"}})
    assert message.startswith("runs.demo.split: 'example' is refused. Data sets of type example are a few rows")
    assert "no held-out set" in message
    assert "runs.demo.split: 'test' is not one of" in refusal(runs={"demo": {"split": "test"}})
    assert "runs.demo.split: ['train'] is not one of" in refusal(runs={"demo": {"split": ["train"]}})


def test_a_key_that_stands_twice_is_refused_with_its_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("runs:\n  a: {input: x}\n  a: {input: y}\n")
    with pytest.raises(InputError, match=r"config.yaml:3: the key 'a' stands twice"):
        load_config(config(), [path])


def test_a_key_that_is_no_text_is_refused_with_its_line():
    with pytest.raises(InputError, match=r'f.yaml:2: the key 12 is no text. Write it in quotes: "12"'):
        read_yaml("runs:\n  12: {}\n", "f.yaml")


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"embedded": {"model": {"base_url": "http://h/v1", "name": "m", "api_key_env": "sk-oops"}}}, "api_key_env"),
        ({"embedded": {"model": {"base_url": "http://me:sk-oops@h/v1", "name": "m"}}}, "base_url"),
        ({"head_server": "http://me:sk-oops@h:1"}, "head_server"),
    ],
)
def test_what_may_be_a_key_is_not_repeated(environment, place):
    message = refusal(environment=environment)
    assert place in message
    assert "here" in message
    assert "sk-oops" not in message


def test_broken_yaml_is_refused_with_its_line():
    with pytest.raises(InputError, match=r"f.yaml:2: this is no YAML"):
        read_yaml("a: 1\n b: [\n", "f.yaml")


def test_every_option_names_its_stage_and_whether_it_changes_a_result():
    for name, option in schema("config")["$defs"]["options"]["properties"].items():
        if name not in ("environment", "input", *READ_BY_RULES):
            assert isinstance(option["x-result"], bool), name
            assert option["description"].endswith("."), name
            named = [option["x-stage"]] if isinstance(option["x-stage"], str) else option["x-stage"]
            assert set(named) <= set(STAGES_WITH_OPTIONS), name


# What says which rules there are for a run.
READ_BY_RULES = ("input_glob", "merge_shards", "require_complete")
STAGES_WITH_OPTIONS = ("materialize", "collect", "seal", "repair", "coverage", "aggregate", "statistics", "doctor")


@pytest.mark.parametrize("stage", STAGES_WITH_OPTIONS)
def test_a_stages_settings_are_its_options_in_the_schema(stage):
    module = import_module(f"rollmake.stages.{stage}")
    names = {field.name for field in msgspec.structs.fields(module.Settings)}
    assert names == stage_options(schema("config"), stage).keys()


def test_flags_are_quoted_and_parse_back_to_the_same_values():
    run = resolved(runs={"demo": {"input": "x", "count_failure_classes_as_zero": ["a b", "c'd"]}})["runs"]["demo"]
    text = flags(run, "aggregate", result=True)
    assert '--count-failure-classes-as-zero \'["a b","c\'"\'"\'d"]\'' in text
    assert "--num-samples-in-parallel 64" in flags(run, "collect", result=False)
    assert "--max-attempts null" in flags(run, "collect", result=True)
    for value in ("plain", "1e3", "yes", "007", "", "a: b", None, 3, 0.5, {"a": [1]}):
        assert read_yaml(as_text(value), "") == value, value


def test_a_stages_options_are_split_by_whether_they_change_a_result():
    both = stage_options(schema("config"), "collect")
    parts = [stage_options(schema("config"), "collect", result=result) for result in (True, False)]
    assert {**parts[0], **parts[1]}.keys() == both.keys()
    assert not parts[0].keys() & parts[1].keys()


def test_what_a_job_asks_of_the_cluster_is_handed_on():
    job = {"runtime": 240, "slurm_partition": "batch", "mem_mb": 4000}
    assert resolved(job=job)["job"] == job
    assert resolved()["job"] == {}


@pytest.mark.parametrize("job", [{"runtime": 0}, {"runtime": "4h"}, {"mem_mb": 1.5}])
def test_what_no_job_can_ask_is_refused(job):
    assert "job" in refusal(job=job)
