"""What is kept of a config, and that nothing else is."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.errors import DataError, InputError
from rollmake.core.topology import (
    Environment,
    decode_environment,
    parse_topology,
    server_url,
    without_addresses,
    without_credentials,
)

CONFIG = {
    "head_server": {"host": "127.0.0.1", "port": 11000},
    "api_key": "sk-secret",
    "solver": {
        "responses_api_agents": {
            "simple_agent": {
                "host": "10.0.0.7",
                "port": 8001,
                "api_key": "sk-secret",
                "resources_server": {"type": "resources_servers", "name": "math", "token": "sk-secret"},
                "model_server": {"type": "responses_api_models", "name": "${policy}"},
                "other": {"name": "no reference without a type"},
            }
        }
    },
    "math": {
        "resources_servers": {
            "math_with_judge": {
                "port": "${oc.env:PORT}",
                "allowed_agents": ["simple_agent"],
                "datasets": [
                    {
                        "name": "a",
                        "type": "train",
                        "jsonl_fpath": "https://me:sk-secret@h/x.jsonl?sig=sk-secret",
                        "agent": "solver",
                    },
                    {"name": "b", "jsonl_fpath": "data/b.jsonl", "gitlab_identifier": {"token": "sk-secret"}},
                ],
            }
        }
    },
    "env": {
        "environment_servers": {"legacy_agent": {"host": "0.0.0.0", "port": 9, "agent_server": {"name": "solver"}}}
    },
    "number": 5,
    "unknown_kind": {"web_servers": {"x": {"port": 1}}},
}


def parsed(config=CONFIG, **kwargs):
    return parse_topology(config, where="topology.yaml", **kwargs)


def test_keeps_servers_only():
    assert list(parsed().servers) == ["solver", "math", "env"]
    assert [server.kind for server in parsed().servers.values()] == [
        "responses_api_agents",
        "resources_servers",
        "environment_servers",
    ]
    assert parsed().servers["math"].implementation == "math_with_judge"


def test_no_secret_survives():
    assert b"sk-secret" not in msgspec.json.encode(parsed())


def test_references_need_a_type_or_a_key_that_implies_it():
    solver, env = parsed().servers["solver"], parsed().servers["env"]
    assert [(ref.field, ref.kind, ref.name) for ref in solver.references] == [
        ("resources_server", "resources_servers", "math"),
        ("model_server", "responses_api_models", "${policy}"),
    ]
    assert [(ref.field, ref.kind, ref.name) for ref in env.references] == [("agent_server", None, "solver")]


def test_data_sets_and_allowed_agents():
    first, second = parsed().servers["math"].datasets
    assert (first.name, first.type, first.jsonl_fpath, first.agent) == ("a", "train", "https://h/x.jsonl", "solver")
    assert (second.name, second.type, second.jsonl_fpath, second.agent) == ("b", None, "data/b.jsonl", None)
    assert parsed().servers["math"].allowed_agents == ("simple_agent",)
    assert parsed().servers["solver"].allowed_agents is None


def test_a_server_on_all_interfaces_is_reached_where_the_head_server_is():
    assert parsed().servers["env"].url == "http://127.0.0.1:9"
    assert parsed(unspecified_host="node7").servers["env"].url == "http://node7:9"
    assert parsed(unspecified_host="node7").servers["solver"].url == "http://10.0.0.7:8001"


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [
        ("h", 80, "http://h:80"),
        ("h", "80", "http://h:80"),
        ("fe80::1", 80, "http://[fe80::1]:80"),
        ("[fe80::1]", 80, "http://[fe80::1]:80"),
        ("::", 80, "http://here:80"),
        (None, 80, "http://here:80"),
        ("user:key@h", 80, "http://h:80"),
        ("h", None, None),
        ("h", True, None),
        ("h", "${port}", None),
        ("${host}", 80, None),
        (5, 80, None),
    ],
)
def test_server_url(host, port, url):
    assert server_url(host, port, "here") == url


@given(st.text(alphabet="ab:@/?#", max_size=12))
def test_credentials_are_taken_out_of_urls(rest):
    cleaned = without_credentials(f"https://user:key@{rest}")
    assert "user" not in cleaned
    assert "key" not in cleaned


def test_paths_stay_as_they_are():
    assert without_credentials("data/a@b?c#d.jsonl") == "data/a@b?c#d.jsonl"


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_a_config_is_a_mapping(value):
    with pytest.raises(InputError, match=r"topology\.yaml: a mapping of servers was expected"):
        parsed(value)


def test_without_addresses():
    assert [server.url for server in without_addresses(parsed()).servers.values()] == [None, None, None]
    assert without_addresses(parsed()).servers["math"].datasets == parsed().servers["math"].datasets


def test_environment_round_trip():
    environment = Environment(version=1, kind="topology", identity="", servers=parsed().servers)
    decoded = decode_environment(msgspec.json.encode(environment), "environment.json")
    assert decoded == environment
    assert decoded.topology == parsed()


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"version":1}', b"\xff", b'{"version":2,"kind":"x","identity":"","servers":{}}']
)
def test_a_damaged_environment_names_its_file(content):
    with pytest.raises(DataError, match=r"r/environment\.json: .*Run the stage environment"):
        decode_environment(content, "r/environment.json")
