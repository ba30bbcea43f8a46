"""Where rows go and how often, with and without a topology."""

import pytest

from helpers.materialize import expand, flat, typed
from rollmake.core.router import Router
from rollmake.core.topology import parse_topology

TOPOLOGY = parse_topology(
    {
        "math": {"resources_servers": {"math": {"allowed_agents": ["simple_agent"]}}},
        "solver": {"responses_api_agents": {"simple_agent": {"resources_server": {"name": "math"}}}},
        "other": {"responses_api_agents": {"other_agent": {}}},
        "lone": {"responses_api_agents": {"simple_agent": {}}},
        "math_env": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "solver"}}}},
        "other_env": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "other"}}}},
    },
    where="t",
)


def router(*, allow=False):
    return Router(TOPOLOGY, allow_unsupported_pairing=allow)


def told(rows, **given):
    expansion, _ = expand(rows, **given)
    return [str(problem) for problem in expansion.problems()]


def rows_of(rows, **given):
    expansion, expanded = expand(rows, **given)
    assert expansion.problems() == []
    return expanded


def agents(rows):
    return [(row.get("agent_ref") or {}).get("name") for row in rows]


def test_a_task_source_is_resolved_on_the_row():
    (row,) = rows_of([flat(agent=None, task_source="math")], router=router())
    assert row["agent_ref"] == {"name": "solver"}
    assert row["task_source"] == "math"
    assert "_ng_environment_server" not in row


def test_legacy_rows_get_the_bound_agent_and_the_server():
    given = {"environment_routing_mode": "legacy", "environment_server_name": "other_env"}
    named, unnamed = rows_of([flat(agent="other"), flat("x", agent=None)], router=router(), **given)
    assert agents([named, unnamed]) == ["other", "other"]
    assert [row["_ng_environment_server"] for row in (named, unnamed)] == ["other_env", "other_env"]


def test_typed_rows_go_by_taskset_and_get_no_agent():
    (row,) = rows_of([typed()], router=router(), environment_server_routes={"env:math": "math_env"})
    assert row["_ng_environment_server"] == "math_env"
    assert "agent_ref" not in row


def test_a_server_on_the_row_decides():
    (row,) = rows_of([flat(agent=None, _ng_environment_server="other_env")], router=router())
    assert row["agent_ref"] == {"name": "other"}


@pytest.mark.parametrize(
    ("row", "given", "message"),
    [
        (flat(agent="solvr"), {}, "tasks.jsonl:1: agent 'solvr' is not in the environment; the nearest is 'solver'"),
        (flat(agent="lone"), {}, "tasks.jsonl:1: no environment server fronts agent 'lone'"),
        (flat(agent=None, task_source="mth"), {}, "tasks.jsonl:1: task_source 'mth' is not in the environment"),
        (flat(agent="other", task_source="math"), {}, "tasks.jsonl:1: 'math' accepts simple_agent only"),
        (flat(agent="other", _ng_environment_server="math_env"), {}, "'math_env' fronts solver, not agent 'other'"),
        (flat(), {"agent_name": "othr"}, "agent 'othr' is not in the environment; the nearest is 'other'"),
        (
            typed(),
            {"environment_server_routes": {"env:math": "mathenv"}},
            "'mathenv' is not in the environment; the nearest",
        ),
        (typed(), {}, "tasks.jsonl:1: no environment server is known for taskset 'env:math'"),
        (flat(agent=None), {}, "tasks.jsonl:1: names no agent and no task source. Set `agent_name`"),
        (flat(agent=None, agent_ref="solver"), {}, "agent_ref is 'solver', not an object"),
        (flat(agent=5), {}, "agent_ref.name is 5, not a name"),
        (flat(agent=""), {}, "agent_ref.name is '', not a name"),
        (flat(agent=None, task_source=["math"]), {}, "task_source is ['math'], not a name"),
        (flat(_ng_environment_server={}), {}, "_ng_environment_server is {}, not a name"),
    ],
)
def test_refused(row, given, message):
    problems = told([row], router=router(), **given)
    assert len(problems) == 1
    assert message in problems[0]


def test_taskset_mode_needs_typed_rows():
    (problem,) = told([flat()], environment_routing_mode="taskset", environment_server_routes={"t": "s"})
    assert "tasks.jsonl:1: is no typed task" in problem


def test_every_problem_is_told_once_with_its_rows():
    rows = [flat("1", "ghost"), flat("2", "solver"), flat("3", "ghost"), flat("4", None, task_source="nowhere")]
    first, second = told(rows, router=router())
    assert first.startswith("tasks.jsonl:1, tasks.jsonl:3: agent 'ghost'")
    assert second.startswith("tasks.jsonl:4: task_source 'nowhere'")


def test_unsupported_pairings_can_be_allowed():
    rows = [flat(agent="other", task_source="math")]
    assert told(rows, router=router()) != []
    assert told(rows, router=router(allow=True)) == []


def test_agent_map_asks_for_agent_then_source_then_default():
    rows = [flat("1", "a", task_source="s"), flat("2", "b", task_source="s"), flat("3", "b")]
    assert agents(rows_of(rows, agent_map={"s": "by_source", "a": "by_agent", "_default": "by_default"})) == [
        "by_agent",
        "by_source",
        "by_default",
    ]


def test_agent_map_drops_what_else_the_reference_holds():
    row = {**flat(), "agent_ref": {"name": "a", "type": "t"}}
    assert rows_of([row], agent_map={"a": "a"})[0]["agent_ref"] == {"name": "a"}
    assert rows_of([row], agent_map={"b": "c"})[0]["agent_ref"] == {"name": "a", "type": "t"}


def test_fan_out_goes_by_the_name_on_the_row():
    rows = rows_of([flat("1", "a")], agent_map={"a": "m"}, fan_out={"a": ["x", "m"], "m": ["never"]}, num_repeats=2)
    assert agents(rows) == ["x", "x", "m", "m"]
    assert [row["_ng_rollout_index"] for row in rows] == [0, 1, 2, 3]


def test_repeats_by_target_then_basis_then_default():
    rows = [flat("1", None, task_source="s"), flat("2", "b"), flat("3", "c")]
    repeats = {"s": 2, "m": 3, "b": 1, "_default": 4}
    counted = rows_of(rows, agent_map={"s": "m"}, num_repeats=repeats)
    assert [agents(counted).count(name) for name in ("m", "b", "c")] == [3, 1, 4]
    counted = rows_of(rows[:1], fan_out={"s": ["x", "y"]}, num_repeats={"x": 1, "s": 2})
    assert agents(counted) == ["x", "y", "y"]


def test_missing_repeats_are_told_together():
    first, second = told([flat("1", "beta"), flat("2", "gamma"), flat("3", "beta")], num_repeats={"alpha": 2})
    assert first.startswith("tasks.jsonl:1, tasks.jsonl:3: num_repeats has no entry for 'beta' (it has alpha)")
    assert second.startswith("tasks.jsonl:2: num_repeats has no entry for 'gamma'")


def test_warnings_tell_replaced_agents_and_unused_entries():
    rows = [flat("1", "a"), flat("2", "a"), flat("3", "b")]
    expansion, _ = expand(
        rows, agent_map={"a": "z", "q": "r"}, fan_out={"f": ["g"]}, num_repeats={"z": 1, "b": 1, "u": 1}
    )
    assert expansion.dispatch.warnings() == [
        "agent_map replaces what rows name: 'a' -> 'z' (2 rows)",
        "agent_map has entries that no row uses: q",
        "fan_out has entries that no row uses: f",
        "num_repeats has entries that no row uses: u",
    ]
    assert expand(rows)[0].dispatch.warnings() == []
