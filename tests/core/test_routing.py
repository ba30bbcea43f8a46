"""Names to agents and servers; the refusals name what was asked for, what is near it, and what to do."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core import routing
from rollmake.core.errors import InputError
from rollmake.core.topology import parse_topology


def agent(implementation="simple_agent", verifier=None, **block):
    reference = {"resources_server": {"type": "resources_servers", "name": verifier}} if verifier else {}
    return {"responses_api_agents": {implementation: {**reference, **block}}}


def resources(**block):
    return {"resources_servers": {"verifier": block}}


def environment(*agents):
    block = {f"agent_{place}": {"type": "responses_api_agents", "name": name} for place, name in enumerate(agents)}
    return {"environment_servers": {"relay": block}}


TOPOLOGY = parse_topology(
    {
        "math": resources(),
        "code": resources(allowed_agents=["coder"]),
        "free": resources(allowed_agents=[]),
        "shared": resources(),
        "pinned": resources(datasets=[{"agent": "second"}, {"name": "no pin"}]),
        "torn": resources(datasets=[{"agent": "first"}, {"agent": "second"}]),
        "astray": resources(datasets=[{"agent": "solver"}]),
        "solver": agent(verifier="math"),
        "coding": agent(verifier="code"),
        "idle": agent(),
        "free_agent": agent(verifier="free"),
        "first": agent(verifier="shared"),
        "second": agent(resources_server={"name": "pinned"}),
        "elsewhere": agent(datasets=[{"agent": "solver"}]),
        "math_env": environment("solver"),
        "two_env": environment("first", "second"),
        "first_env": environment("first"),
        "empty_env": environment(),
        "policy": {"responses_api_models": {"vllm": {}}},
    },
    where="t",
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [("math", "solver"), ("idle", "idle"), ("pinned", "second"), ("free", "free_agent"), ("shared", "first")],
)
def test_agent_for_source(source, expected):
    assert routing.agent_for_source(TOPOLOGY, source) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mth", r"task_source 'mth' is not in the environment; the nearest is 'math'\. Correct the name"),
        ("math_env", r"task_source 'math_env' is one of the environment_servers, which have no tasks"),
        ("policy", r"task_source 'policy' is one of the responses_api_models"),
        ("torn", r"'torn' pin different agents \(first, second\)\. Pick one with `agent_map: \{torn: AGENT\}`"),
        ("astray", r"'astray' pins agent 'solver', which does not use it"),
        ("elsewhere", r"'elsewhere' pins agent 'solver', which does not use it; known are elsewhere"),
    ],
)
def test_sources_without_one_agent(source, message):
    with pytest.raises(InputError, match=message):
        routing.agent_for_source(TOPOLOGY, source)


def test_a_source_used_by_nobody_or_several():
    several = parse_topology(
        {"s": resources(), "a": agent(verifier="s"), "b": agent(verifier="s"), "n": resources()}, where="t"
    )
    with pytest.raises(InputError, match=r"used by 2 agents \(a, b\).*agent_map: \{s: AGENT\}.*or pin one"):
        routing.agent_for_source(several, "s")
    with pytest.raises(InputError, match=r"used by 0 agents \(none\)"):
        routing.agent_for_source(several, "n")


def found(problems):
    return [str(problem) for problem in problems]


def test_agent_names():
    assert routing.agent_problems(TOPOLOGY, "solver") == []
    (near,) = found(routing.agent_problems(TOPOLOGY, "solvr"))
    assert "agent 'solvr' is not in the environment; the nearest is 'solver'" in near
    assert "`agent_map`" in near
    (kind,) = found(routing.agent_problems(TOPOLOGY, "math_env"))
    assert "agent 'math_env' is one of the environment_servers, not an agent" in kind


def test_pairings():
    assert routing.pairing_problems(TOPOLOGY, "solver", "math") == []
    assert routing.pairing_problems(TOPOLOGY, "solver", None) == []
    assert routing.pairing_problems(TOPOLOGY, "free_agent", "free") == []
    (bound,) = found(routing.pairing_problems(TOPOLOGY, "coding", None))
    assert "'code' accepts coder only, but agent 'coding' is a simple_agent" in bound
    assert "`allow_unsupported_pairing: true`" in bound
    (source,) = found(routing.pairing_problems(TOPOLOGY, "solver", "code"))
    assert "agent 'solver' is a simple_agent" in source
    assert len(routing.pairing_problems(TOPOLOGY, "coding", "code")) == 1


def test_servers():
    assert routing.server_problems(TOPOLOGY, "math_env", "solver") == []
    assert routing.server_problems(TOPOLOGY, "math_env", None) == []
    assert routing.server_problems(TOPOLOGY, "empty_env", "solver") == []
    (unknown,) = found(routing.server_problems(TOPOLOGY, "mathenv", None))
    assert "environment server 'mathenv' is not in the environment; the nearest is 'math_env'" in unknown
    (no_server,) = found(routing.server_problems(TOPOLOGY, "math", None))
    assert "environment server 'math' is not" in no_server
    (other,) = found(routing.server_problems(TOPOLOGY, "two_env", "solver"))
    assert "'two_env' fronts first, second, not agent 'solver'" in other


def test_server_for_agent():
    assert routing.server_for_agent(TOPOLOGY, "solver") == "math_env"
    assert routing.server_for_agent(TOPOLOGY, "second") == "two_env"
    with pytest.raises(
        InputError, match=r"'first' is fronted by several servers: two_env, first_env.*_ng_environment_server"
    ):
        routing.server_for_agent(TOPOLOGY, "first")
    with pytest.raises(InputError, match="no environment server fronts agent 'idle'"):
        routing.server_for_agent(TOPOLOGY, "idle")


def test_agent_of_server():
    assert routing.agent_of_server(TOPOLOGY, "math_env") == "solver"
    assert routing.agent_of_server(TOPOLOGY, "empty_env") is None
    assert routing.agent_of_server(TOPOLOGY, "ghost") is None


@pytest.mark.parametrize(
    ("agents", "labels"),
    [
        ({"e": "a"}, {"e": "a"}),
        ({"e": "a", "f": "a"}, {"e": "e", "f": "f"}),
        ({"e": None, "f": "e"}, {"e": "e", "f": "f"}),
        ({"a": "b", "b": None, "c": "a"}, {"a": "a", "b": "b", "c": "c"}),
        ({"a": "b", "b": "a"}, {"a": "b", "b": "a"}),
        ({}, {}),
    ],
)
def test_labels(agents, labels):
    assert routing.label_runs(agents) == labels


@given(st.dictionaries(st.sampled_from("abcdef"), st.none() | st.sampled_from("abcdefxyz")))
def test_labels_are_unique_and_name_the_agent_or_the_server(agents):
    labels = routing.label_runs(agents)
    assert labels.keys() == agents.keys()
    assert max(Counter(labels.values()).values(), default=1) == 1
    assert all(label in (server, agents[server]) for server, label in labels.items())
    shared = [server for server, agent in agents.items() if list(agents.values()).count(agent) > 1]
    assert all(labels[server] == server for server in shared)


def test_nearest_lists_what_there_is():
    assert routing.nearest("zzz", ["a", "b"]) == "; known are a, b"
    assert routing.nearest("zzz", [f"n{number:02d}" for number in range(12)]).endswith("n09 and 2 more")
    assert routing.nearest("zzz", []) == "; the environment has none"
