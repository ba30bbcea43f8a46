"""What a row becomes: indices, parameters, prompts, skills, seeds."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.materialize import expand, flat, typed
from rollmake.core.prompts import Prompt

SKILLS = {"path": "skills", "hash": "0" * 12, "skills": []}
ROUTES = {"environment_server_routes": {"env:math": "math_env"}}


def rows_of(rows, **given):
    expansion, expanded = expand(rows, **given)
    assert expansion.problems() == []
    return expanded


def told(rows, **given):
    return [str(problem) for problem in expand(rows, **given)[0].problems()]


def keys(rows):
    return [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]


def test_equal_lines_are_one_task():
    assert keys(rows_of([flat("1"), flat("2"), flat("1")], num_repeats=2)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (0, 2),
        (0, 3),
    ]


def test_other_spelling_is_another_task():
    one = {"agent_ref": {"name": "a"}, "responses_create_params": {"input": "q"}}
    assert keys(rows_of([flat(), one])) == [(0, 0), (1, 0)]


def test_stamped_indices_are_kept_and_shared():
    rows = [flat("1", _ng_task_index=7), flat("2", _ng_task_index=7, _ng_rollout_index=99)]
    assert keys(rows_of(rows, num_repeats=2)) == [(7, 0), (7, 1), (7, 2), (7, 3)]


def test_stamped_rows_do_not_count_for_automatic_indices():
    assert keys(rows_of([flat("1", _ng_task_index=7), flat("2"), flat("3")])) == [(7, 0), (0, 0), (1, 0)]


def test_an_automatic_index_that_is_stamped_on_another_row_is_refused():
    (problem,) = told([flat("1"), flat("2"), flat("3", _ng_task_index=1)])
    assert "tasks.jsonl:2: would get _ng_task_index 1, which the row at tasks.jsonl:3 has" in problem
    assert "on all rows, or on none" in problem


@pytest.mark.parametrize("task", [None, -1, True, 1.5, "3", 2**63])
def test_stamped_indices_are_indices(task):
    (problem,) = told([flat("1"), flat("2", _ng_task_index=task)])
    assert problem.startswith(f"tasks.jsonl:2: _ng_task_index is {task!r}")


def test_parameters_are_replaced_key_by_key():
    row = flat(agent="a")
    row["responses_create_params"] |= {"temperature": 1, "reasoning": {"effort": "low", "summary": "auto"}}
    (expanded,) = rows_of(
        [row], responses_create_params={"temperature": 0, "reasoning": {"effort": "high"}, "top_p": 1}
    )
    assert expanded["responses_create_params"] == {
        "input": "q",
        "temperature": 0,
        "reasoning": {"effort": "high"},
        "top_p": 1,
    }


@pytest.mark.parametrize(("row", "what"), [({}, "has no"), ({"responses_create_params": None}, "is no object")])
def test_flat_rows_need_parameters(row, what):
    (problem,) = told([{**row, "agent_ref": {"name": "a"}}])
    assert problem.startswith("tasks.jsonl:1: ")
    assert what in problem
    assert "responses_create_params" in problem


def test_skills_are_named_on_flat_rows():
    assert rows_of([flat()], skills=SKILLS)[0]["skills_ref"] == SKILLS
    assert "skills_ref" not in rows_of([flat()])[0]


def test_the_prompt_becomes_the_input():
    row = {"agent_ref": {"name": "a"}, "question": "1+1"}
    (expanded,) = rows_of([row], prompt=Prompt(user="What is {question}?", system="Be brief."))
    assert expanded["responses_create_params"]["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 1+1?"},
    ]


def test_prompt_problems_name_their_rows():
    rows = [flat("1"), {"agent_ref": {"name": "a"}, "q": 1}, flat("2")]
    first, second = told(rows, prompt=Prompt(user="{question}"))
    assert first.startswith("tasks.jsonl:1, tasks.jsonl:3: has responses_create_params.input already")
    assert second.startswith("tasks.jsonl:2: has no field 'question'")


def test_seeds_go_into_the_json_text_of_each_rollout():
    row = flat(agent="a")
    row["responses_create_params"]["metadata"] = {"extra_body": '{"top_k": 3}', "kept": "yes"}
    before = copy.deepcopy(row)
    expanded = rows_of([row, row], num_repeats=2, num_repeats_add_seed=True)
    bodies = [row["responses_create_params"]["metadata"]["extra_body"] for row in expanded]
    assert bodies == [f'{{"top_k": 3, "seed": {seed}}}' for seed in range(4)]
    assert all(row["responses_create_params"]["metadata"]["kept"] == "yes" for row in expanded)
    assert row == before


@pytest.mark.parametrize("metadata", [None, {}, {"extra_body": None}])
def test_seeds_without_a_body(metadata):
    row = flat(agent="a")
    row["responses_create_params"]["metadata"] = metadata
    (expanded,) = rows_of([row], num_repeats_add_seed=True)
    assert expanded["responses_create_params"]["metadata"] == {"extra_body": '{"seed": 0}'}


@pytest.mark.parametrize("metadata", ["x", {"extra_body": "{"}, {"extra_body": "[]"}, {"extra_body": {"top_k": 1}}])
def test_seeds_need_a_body_that_can_take_one(metadata):
    row = flat(agent="a")
    row["responses_create_params"]["metadata"] = metadata
    (problem,) = told([row], num_repeats_add_seed=True, num_repeats=3)
    assert problem.startswith("tasks.jsonl:1: responses_create_params.metadata")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"responses_create_params": {"temperature": 1}}, "responses_create_params"),
        ({"num_repeats_add_seed": True}, "num_repeats_add_seed"),
        ({"skills": SKILLS}, "skills"),
        ({"prompt": Prompt(user="u")}, "prompt_config"),
    ],
)
def test_typed_rows_are_not_changed(given, name):
    (problem,) = told([typed()], **ROUTES, **given)
    assert problem.startswith(f"tasks.jsonl:1: {name} cannot change a typed task")


def test_typed_rows_keep_everything():
    (expanded,) = rows_of([typed(extra={"a": [1]}, agent_ref={"name": "a"})], **ROUTES, agent_map={"a": "b"})
    assert expanded == {
        **typed(extra={"a": [1]}, agent_ref={"name": "a"}),
        "_ng_environment_server": "math_env",
        "_ng_task_index": 0,
        "_ng_rollout_index": 0,
    }


def test_a_task_without_usable_taskset_is_flat():
    row = {**typed(taskset=""), **flat()}
    assert "_ng_environment_server" not in rows_of([row], **ROUTES)[0]


def test_rows_with_a_problem_do_not_hide_those_after_them():
    assert len(told([flat("1", None), {"agent_ref": {"name": "a"}}, flat("3", 5)])) == 3


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pqrs"), st.sampled_from([None, 10, 11])), max_size=12), st.integers(1, 3))
def test_every_key_is_there_once_and_rollouts_of_a_task_count_up(chosen, repeats):
    rows = [flat(text) if task is None else flat(text, _ng_task_index=task) for text, task in chosen]
    expanded = rows_of(rows, num_repeats=repeats)
    assert len(set(keys(expanded))) == len(expanded) == len(rows) * repeats
    for task in {task for task, _ in keys(expanded)}:
        rollouts = [rollout for other, rollout in keys(expanded) if other == task]
        assert rollouts == list(range(len(rollouts)))
    automatic = list(dict.fromkeys(json.dumps(row) for row in rows if "_ng_task_index" not in row))
    assert {task for task, _ in keys(expanded) if task < 10} == set(range(len(automatic)))
