"""environment.json as the stage writes it, for every way of naming an environment."""

import json
import sys
from importlib.resources import files

import jsonschema
import pytest
import yaml

from rollmake.core.errors import InputError, ServerError
from rollmake.core.topology import decode_environment
from rollmake.stages.environment import Files, Settings, run

SCHEMA = yaml.safe_load(files("rollmake.schemas").joinpath("environment.schema.yaml").read_text())
TOPOLOGY = {
    "api_key": "sk-secret",
    "solver": {"responses_api_agents": {"simple_agent": {"host": "127.0.0.1", "port": 1, "api_key": "sk-secret"}}},
    "env": {
        "environment_servers": {"legacy_agent": {"host": "0.0.0.0", "port": 2, "agent_server": {"name": "solver"}}}
    },
}
# A head server in a few lines: it answers the topology, and readiness, on the port it is given.
HEAD = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(open(sys.argv[2]).read()).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def written(environment, tmp_path):
    """environment.json for a mapping, checked against its schema."""
    output = tmp_path / "results" / "environment.json"
    run(Files(environment=yaml.safe_dump(environment), output=output), Settings())
    content = json.loads(output.read_bytes())
    jsonschema.validate(content, SCHEMA)
    assert decode_environment(output.read_bytes(), "x").kind == content["kind"]
    return content


def test_embedded_is_the_same_every_time(tmp_path):
    first = written({"embedded": {"policy": "scripted", "seed": 3}}, tmp_path)
    assert first["kind"] == "embedded"
    assert first["identity"]
    assert {server["url"] for server in first["servers"].values()} == {None}
    assert "environment_servers" in {server["kind"] for server in first["servers"].values()}
    assert written({"embedded": {"policy": "scripted", "seed": 3, "latency_s": 9}}, tmp_path) == first
    assert written({"embedded": {"policy": "scripted", "seed": 4}}, tmp_path)["identity"] != first["identity"]


def test_a_topology_file_gives_addresses_and_no_keys(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(TOPOLOGY))
    content = written({"topology": str(path)}, tmp_path)
    assert (content["kind"], content["identity"]) == ("topology", "")
    assert {name: server["url"] for name, server in content["servers"].items()} == {
        "solver": "http://127.0.0.1:1",
        "env": "http://127.0.0.1:2",
    }
    assert "sk-secret" not in json.dumps(content)


def test_served_environments_are_started_for_it_and_have_no_addresses(tmp_path):
    (tmp_path / "head.py").write_text(HEAD)
    (tmp_path / "topology.yaml").write_text(yaml.safe_dump(TOPOLOGY))
    command = f"{sys.executable} {tmp_path}/head.py {{port}} {tmp_path}/topology.yaml"
    content = written({"head_server": "http://127.0.0.1:1", "serve": {"command": command}}, tmp_path)
    assert content["kind"] == "head_server"
    assert {name: server["url"] for name, server in content["servers"].items()} == {"solver": None, "env": None}
    assert content == written({"head_server": "http://127.0.0.1:1", "serve": {"command": command}}, tmp_path)


@pytest.mark.parametrize(
    ("environment", "error", "message"),
    [
        ({"topology": "no/such.yaml"}, InputError, r"no/such\.yaml: cannot be read"),
        (
            {"head_server": "http://127.0.0.1:1"},
            ServerError,
            r"http://127\.0\.0\.1:1/global_config_dict_yaml: no answer",
        ),
        ({"embedded": {"policy": "scripted", "error_rat": 1}}, InputError, "error_rat"),
        ({}, InputError, "environment"),
    ],
)
def test_nothing_is_written_if_it_cannot_be_known(tmp_path, environment, error, message):
    with pytest.raises(error, match=message):
        written(environment, tmp_path)
    assert not (tmp_path / "results" / "environment.json").exists()
