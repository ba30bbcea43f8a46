"""Servers that a stage starts: ready when the block begins, gone when it has ended, however it ends."""

import json
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import yaml

from rollmake.core.errors import InputError, ServerError
from rollmake.edge.servers import environment_servers, free_port, healthy
from rollmake.edge.topology import load_topology

EMBEDDED = {"embedded": {"policy": "scripted", "latency_s": 0}}
# A server as somebody may have one: it binds the port of its argument, after a while.
SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404); self.end_headers()
time.sleep(0.2)
print("serving on", sys.argv[1], flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
HOLDER = """
import sys, json, time
from pathlib import Path
from rollmake.edge.servers import environment_servers
with environment_servers(json.loads(sys.argv[1]), log=Path(sys.argv[2])) as head:
    print(head, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def command(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))}"


@pytest.fixture
def answering():
    """`answering({path: status})`: the URL of a server with these paths, and the paths it was asked for."""
    servers = []

    def serve(statuses):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(statuses.get(self.path, 404))
                self.end_headers()

            def log_message(self, *_):
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}", asked

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def answers(url):
    try:
        urllib.request.urlopen(f"{url}/health", timeout=5).close()
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


def falls_silent(url, within_s=20.0):
    deadline = time.monotonic() + within_s
    while answers(url):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    ("statuses", "ready"),
    [
        ({"/readyz": 200}, True),
        ({"/readyz": 503, "/health": 200, "/": 200}, False),
        ({"/health": 200}, True),
        ({"/readyz": 405, "/": 200}, True),
        ({"/": 200}, True),
        ({"/": 500}, False),
        ({}, False),
    ],
)
def test_the_first_health_path_that_a_server_knows_decides(answering, statuses, ready):
    assert healthy(answering(statuses)[0]) is ready


def test_nothing_listens_on_a_free_port():
    assert not healthy(f"http://127.0.0.1:{free_port()}")


def test_embedded_servers_run_side_by_side_as_long_as_their_blocks(tmp_path):
    log = tmp_path / "logs" / "servers.log"
    with environment_servers(EMBEDDED, log=log) as head, environment_servers(EMBEDDED, log=tmp_path / "log") as other:
        assert head != other
        assert answers(other)
        assert answers(head)
        assert load_topology(EMBEDDED, head).servers["question_answering"].url == head
    assert not answers(head)
    assert not answers(other)
    assert head in log.read_text()


def test_the_server_is_stopped_when_the_block_fails(tmp_path, command):
    environment = {"head_server": "http://127.0.0.1:11000", "serve": {"command": f"{command} {{port}}"}}
    with pytest.raises(ZeroDivisionError), environment_servers(environment, log=tmp_path / "log") as head:
        raise ZeroDivisionError
    assert not answers(head)


def test_an_embedded_server_without_its_key_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    model = {"base_url": "http://127.0.0.1:1/v1", "name": "m", "api_key_env": "NO_SUCH_KEY"}
    with (
        pytest.raises(ServerError, match="NO_SUCH_KEY is not set") as caught,
        environment_servers({"embedded": {"model": model}}, log=tmp_path / "log"),
    ):
        pass
    assert "status 1" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_command_gets_a_free_port(tmp_path, command):
    environment = {"head_server": "http://127.0.0.1:11000", "serve": {"command": f"{command} {{port}}"}}
    with environment_servers(environment, log=tmp_path / "log") as head:
        assert answers(head)
        assert head.startswith("http://127.0.0.1:")
    assert f"serving on {head.rpartition(':')[2]}\n" in (tmp_path / "log").read_text()
    assert not answers(head)


def test_a_command_with_its_own_port_keeps_the_address(tmp_path, command):
    head = f"http://127.0.0.1:{free_port()}"
    environment = {"head_server": head, "serve": {"command": f"{command} {head.rpartition(':')[2]}"}}
    with environment_servers(environment, log=tmp_path / "log") as found:
        assert found == head
        assert answers(head)
    assert not answers(head)


def test_every_server_of_a_topology_must_be_healthy(tmp_path, command):
    ports = [free_port(), free_port()]
    servers = {f"server{port}": {"environment_servers": {"any": {"host": "127.0.0.1", "port": port}}} for port in ports}
    (tmp_path / "topology.yaml").write_text(yaml.safe_dump(servers))
    both = f"{command} {ports[0]} & {command} {ports[1]} & wait"
    environment = {"topology": str(tmp_path / "topology.yaml"), "serve": {"command": both}}
    with environment_servers(environment, log=tmp_path / "log") as head:
        assert head is None
        assert all(answers(f"http://127.0.0.1:{port}") for port in ports)
    assert not any(answers(f"http://127.0.0.1:{port}") for port in ports)


def test_a_topology_without_addresses_cannot_be_waited_for(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text("a: {environment_servers: {any: {}}}")
    environment = {"topology": str(path), "serve": {"command": "sleep 600"}}
    with pytest.raises(InputError, match=r"topology\.yaml"), environment_servers(environment, log=tmp_path / "log"):
        pass


def test_a_command_that_ends_is_an_error_with_its_last_words(tmp_path):
    log = tmp_path / "log"
    log.write_text("of an earlier start\n")
    serve = {"command": "for i in $(seq 30); do echo line $i; done; echo no weights found; exit 3"}
    with (
        pytest.raises(ServerError) as caught,
        environment_servers({"head_server": "http://127.0.0.1:1", "serve": serve}, log=log),
    ):
        pass
    message = str(caught.value)
    assert "status 3" in message
    assert "no weights found" in message
    assert "line 30\n" in message
    assert "line 5\n" not in message
    assert "earlier" not in message
    assert message.startswith(str(log))


def test_a_command_that_is_never_healthy_is_stopped(tmp_path):
    pid_file = tmp_path / "pid"
    serve = {"command": f"echo $$ > {shlex.quote(str(pid_file))}; exec sleep 600", "ready_timeout_s": 0.5}
    with (
        pytest.raises(ServerError, match=r"not healthy after 0\.5 s; it wrote nothing"),
        environment_servers({"head_server": "http://127.0.0.1:1", "serve": serve}, log=tmp_path / "log"),
    ):
        pass
    assert (
        subprocess.run(["kill", "-0", pid_file.read_text().strip()], capture_output=True, check=False).returncode != 0
    )


def test_servers_that_run_elsewhere_are_not_even_asked(tmp_path, answering):
    url, asked = answering({})
    with environment_servers({"head_server": url}, log=tmp_path / "log") as head:
        assert (head, asked) == (url, [])
    with environment_servers({"topology": "nowhere.yaml"}, log=tmp_path / "log") as head:
        assert head is None
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("kind", "number"), [("embedded", signal.SIGKILL), ("serve", signal.SIGKILL), ("serve", signal.SIGTERM)]
)
def test_no_server_outlives_a_killed_parent(tmp_path, command, kind, number):
    serve = {"head_server": "http://127.0.0.1:11000", "serve": {"command": f"{command} {{port}} & wait"}}
    environment = EMBEDDED if kind == "embedded" else serve
    program = [sys.executable, "-c", HOLDER, json.dumps(environment), str(tmp_path / "log")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as holder:
        head = holder.stdout.readline().strip()
        assert answers(head)
        holder.send_signal(number)
    assert falls_silent(head)
