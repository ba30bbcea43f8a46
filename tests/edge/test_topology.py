"""Head servers that answer in every way, and topology files."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from rollmake.core.errors import InputError, ServerError
from rollmake.edge.topology import load_topology, server_addresses, yaml_text

CONFIG = {
    "key": "sk-secret",
    "solver": {"responses_api_agents": {"simple_agent": {"host": "127.0.0.1", "port": 1}}},
    "near": {
        "environment_servers": {"legacy_agent": {"host": "0.0.0.0", "port": 2, "agent_server": {"name": "solver"}}}
    },
    "far": {
        "environment_servers": {"legacy_agent": {"host": "10.0.0.9", "port": 3, "agent_server": {"name": "solver"}}}
    },
    "unplaced": {"environment_servers": {"legacy_agent": {"agent_server": {"name": "solver"}}}},
}
TEXT = yaml.safe_dump(CONFIG, sort_keys=False)


@pytest.fixture
def head():
    """A head server whose reply the test sets: `head.reply = status, body`; `head.paths` are those it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            server.paths.append(self.path)
            status, body = server.reply
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.paths, server.reply = [], (200, json.dumps(TEXT).encode())
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("body", [json.dumps(TEXT).encode(), TEXT.encode(), json.dumps(CONFIG).encode()])
def test_json_text_of_yaml_or_plain_yaml(head, body):
    head.reply = 200, body
    assert list(load_topology({"head_server": head.url}).servers) == ["solver", "near", "far", "unplaced"]
    assert head.paths == ["/global_config_dict_yaml"]


def test_addresses_are_asked_for_anew(head):
    assert server_addresses({"head_server": head.url}, None) == {
        "near": "http://127.0.0.1:2",
        "far": "http://10.0.0.9:3",
    }
    head.reply = 200, TEXT.replace("port: 3", "port: 4").encode()
    assert server_addresses({"head_server": head.url}, None)["far"] == "http://10.0.0.9:4"


def test_a_head_server_that_was_started_replaces_the_configured_one(head):
    assert "near" in server_addresses({"head_server": "http://127.0.0.1:1"}, head.url)
    assert "near" in server_addresses({"embedded": {"policy": "scripted"}}, head.url)


def test_servers_on_all_interfaces_are_where_the_head_server_is(head):
    address = head.url.replace("127.0.0.1", "localhost")
    assert server_addresses({"head_server": address}, None)["near"] == "http://localhost:2"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, json.dumps(TEXT).encode()), "answered with status 500"),
        ((404, b""), "answered with status 404"),
        ((200, b"<html>a: b: c</html>"), "is no YAML"),
        ((200, b"<html>proxy</html>"), "a mapping of servers was expected, not str"),
        ((200, b"\xff\xfe"), "the answer is no UTF-8 text"),
        ((200, b""), "a mapping of servers was expected, not NoneType"),
        ((200, b"[1]"), "a mapping of servers was expected, not list"),
    ],
)
def test_other_answers_name_the_address(head, reply, message):
    head.reply = reply
    with pytest.raises(ServerError) as refusal:
        load_topology({"head_server": head.url})
    assert f"{head.url}/global_config_dict_yaml" in str(refusal.value)
    assert message in str(refusal.value)
    assert refusal.value.remedy


def test_no_answer_names_the_address_and_what_to_do(head):
    closed = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = closed.server_port
    closed.server_close()
    with pytest.raises(
        ServerError, match=rf"http://127\.0\.0\.1:{port}/global_config_dict_yaml: no answer .*`head_server`"
    ):
        load_topology({"head_server": f"http://127.0.0.1:{port}"})


def test_a_broken_yaml_names_the_line_and_quotes_nothing(head):
    head.reply = 200, b"a: 1\nkey: sk-secret: b\n"
    with pytest.raises(ServerError, match=r"global_config_dict_yaml:2: is no YAML") as refusal:
        load_topology({"head_server": head.url})
    assert "sk-secret" not in str(refusal.value)


def test_an_environment_that_does_not_run_has_no_addresses():
    with pytest.raises(ServerError, match="no head server is running"):
        server_addresses({"embedded": {"policy": "scripted"}}, None)


def test_topology_file(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(TEXT)
    assert server_addresses({"topology": str(path)}, None) == {"near": "http://127.0.0.1:2", "far": "http://10.0.0.9:3"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff", "cannot be read: .*utf-8"),
        (b"a: [", r"topology\.yaml:\d+: is no YAML"),
        (b"- 1", "a mapping of servers was expected, not list"),
    ],
)
def test_topology_files_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "topology.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_topology({"topology": str(path)})


def test_yaml_in_a_json_text_is_unpacked():
    assert yaml_text(b'"a: 1\\n"', "u") == "a: 1\n"
    assert yaml_text(b"a: 1\n", "u") == "a: 1\n"
