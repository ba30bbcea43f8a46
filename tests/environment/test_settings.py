"""The embedded block: what the schema says of it, what the code takes, and what is refused."""

from pathlib import Path

import msgspec
import pytest
import yaml

from rollmake.core.errors import InputError
from rollmake.environment.settings import Embedded, Model, embedded_settings, read_settings
from rollmake.environment.topology import AGENT, SERVER, embedded_topology, identity, server_instances

SCHEMA = yaml.safe_load((Path(__file__).parents[2] / "schemas/config.schema.yaml").read_text())["$defs"]["embedded"]
MODEL = {"base_url": "http://127.0.0.1:1/v1", "name": "m"}


@pytest.mark.parametrize(("struct", "schema"), [(Embedded, SCHEMA), (Model, SCHEMA["properties"]["model"])])
def test_the_schema_has_the_same_options_and_defaults(struct, schema):
    ours = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert ours.keys() == schema["properties"].keys()
    for name, described in schema["properties"].items():
        if "default" in described:
            assert ours[name].default == described["default"], name
    assert {name for name, field in ours.items() if field.required} == set(schema.get("required", []))


@pytest.mark.parametrize(
    "text",
    [
        '{"embedded": {"policy": "scripted", "seed": 7}}',
        '{"policy": "scripted", "seed": 7}',
        "embedded:\n  policy: scripted\n  seed: 7\n",
    ],
)
def test_an_environment_mapping_or_the_block_itself(text):
    assert read_settings(text) == Embedded(policy="scripted", seed=7)


@pytest.mark.parametrize(
    ("block", "named"),
    [
        ({}, "exactly one of"),
        ({"policy": "scripted", "model": MODEL}, "exactly one of"),
        ({"policy": "guess"}, "$.policy"),
        ({"policy": "scripted", "error_rate": 1.5}, "$.error_rate"),
        ({"policy": "scripted", "latency_s": -1}, "$.latency_s"),
        ({"policy": "scripted", "speed": 1}, "speed"),
        ({"model": {"name": "m"}}, "base_url"),
        ({"model": MODEL | {"base_url": "http://user:key@host/v1"}}, "$.model.base_url"),
        ({"model": MODEL | {"api": "soap"}}, "$.model.api"),
        ({"model": MODEL | {"api_key": "sk-1"}}, "api_key"),
        ({"model": MODEL | {"api_key_env": "sk-1"}}, "$.model.api_key_env"),
    ],
)
def test_what_is_not_usable_is_named(block, named):
    with pytest.raises(InputError) as caught:
        embedded_settings(block)
    assert named in str(caught.value)
    assert caught.value.where == "environment.embedded"


@pytest.mark.parametrize("text", ["", "[1]", "scripted", "a: b: c", '{"head_server": "http://127.0.0.1:1"}', "{"])
def test_text_that_is_no_embedded_environment(text):
    with pytest.raises(InputError, match="environment"):
        read_settings(text)


def test_the_topology_leads_from_a_row_to_this_server():
    topology = embedded_topology("127.0.0.1", 11000)
    ((implementation, block),) = topology[SERVER]["environment_servers"].items()
    assert implementation == "legacy_agent"
    assert (block["host"], block["port"]) == ("127.0.0.1", 11000)
    assert block["agent_server"] == {"type": "responses_api_agents", "name": AGENT}
    ((_, agent),) = topology[AGENT]["responses_api_agents"].items()
    assert list(topology[agent["resources_server"]["name"]]) == ["resources_servers"]
    assert list(topology[agent["model_server"]["name"]]) == ["responses_api_models"]


def test_the_topology_of_a_server_that_does_not_run_differs_only_in_its_address():
    idle, running = embedded_topology(None, None), embedded_topology("h", 1)
    assert str(idle).replace("'host': None, 'port': None", "'host': 'h', 'port': 1") == str(running)


def test_instances_are_those_of_the_topology():
    instances = server_instances("::1", 5, 99, 1.5)
    assert {instance["process_name"] for instance in instances} == embedded_topology("::1", 5).keys() - {"head_server"}
    assert all((entry["url"], entry["pid"]) == ("http://[::1]:5", 99) for entry in instances)


def test_identity_is_what_a_result_depends_on():
    scripted, model = {"policy": "scripted"}, {"model": MODEL}
    name = {
        block: identity(embedded_settings(options)) for block, options in (("scripted", scripted), ("model", model))
    }
    same = [
        ("scripted", scripted | {"latency_s": 9, "error_rate": 0.3}),
        ("model", {"model": MODEL | {"base_url": "http://elsewhere/v1", "api_key_env": "KEY", "api": "responses"}}),
        ("model", model | {"seed": 4, "error_rate": 0.9}),
    ]
    other = [
        ("scripted", scripted | {"seed": 1}),
        ("scripted", scripted | {"error_rate": 0.31}),
        ("model", {"model": MODEL | {"name": "n"}}),
        ("model", {"model": MODEL | {"api": "chat"}}),
    ]
    assert all(identity(embedded_settings(block)) == name[kind] for kind, block in same)
    assert all(identity(embedded_settings(block)) != name[kind] for kind, block in other)
    assert name["scripted"] == identity(Embedded(policy="scripted", error_rate=0.3, seed=0))
