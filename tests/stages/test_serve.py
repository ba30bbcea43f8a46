"""`rollmake serve` as a command: it says where it is, answers, and stops when it is told to."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from rollmake.core.errors import InputError, ServerError
from rollmake.stages.serve import Files, Settings, greeting, run

KEY = "sk-very-secret-0123456789"
ROW = {
    "responses_create_params": {"input": "What is 6 times 7?"},
    "verifier": "numeric",
    "expected_answer": "42",
    "_ng_task_index": 0,
    "_ng_rollout_index": 0,
}


@contextmanager
def start(*arguments, **environ):
    program = [sys.executable, "-m", "rollmake", "serve", "--port", "0", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(program, text=True, env=os.environ | environ, **pipes) as server:
        try:
            yield server
        finally:
            server.kill()


def address(server):
    return server.stdout.readline().split()[5]


def ask(url, row=ROW):
    request = urllib.request.Request(f"{url}/run", json.dumps(row).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def connected(server):
    host, port = address(server).removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=30)


def logged(log, event, within_s=20.0):
    deadline = time.monotonic() + within_s
    while event not in log.read_text():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_stop(tmp_path, number):
    log, announced = tmp_path / "requests.jsonl", tmp_path / "folder" / "address"
    environment = "{embedded: {policy: scripted, error_rate: 0, latency_s: 0}}"
    with start("--environment", environment, "--request-log", log, "--announce", announced) as server:
        url = address(server)
        assert announced.read_text().strip() == url
        assert ask(url)["reward"] == 1.0
        assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["arrived", "answered"]
        server.send_signal(number)
        assert server.wait(20) == 0
        rest, problems = server.stdout.read(), server.stderr.read()
    assert problems == ""
    assert f'environment: {{ head_server: "{url}" }}' in rest
    assert '"agent_ref": {"name": "question_answering_agent"}' in rest


def test_a_request_in_flight_is_answered_before_it_stops(tmp_path):
    log = tmp_path / "requests.jsonl"
    with start("--environment", '{"policy": "scripted", "latency_s": 0.2}', "--request-log", log) as server:
        connection = connected(server)
        connection.request("POST", "/run", json.dumps(ROW))
        assert logged(log, "arrived")
        server.send_signal(signal.SIGTERM)
        assert "reward" in json.load(connection.getresponse())
        connection.close()
        assert server.wait(20) == 0


def test_whoever_hangs_up_is_noted_as_gone(tmp_path):
    log = tmp_path / "requests.jsonl"
    with start("--environment", '{"policy": "scripted", "latency_s": 600}', "--request-log", log) as server:
        connection = connected(server)
        connection.request("POST", "/run", json.dumps(ROW))
        assert logged(log, "arrived")
        connection.close()
        assert logged(log, "abandoned")
        server.terminate()
        assert server.wait(20) == 0
    assert [json.loads(line)["event"] for line in log.read_text().splitlines()] == ["arrived", "abandoned"]


def test_the_key_shows_nowhere(tmp_path):
    seen = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.headers["Authorization"])
            body = f"unknown key {KEY}".encode()
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    log, announced = tmp_path / "requests.jsonl", tmp_path / "address"
    with HTTPServer(("127.0.0.1", 0), Refusing) as upstream:
        Thread(target=upstream.serve_forever, args=(0.01,), daemon=True).start()
        model = {"base_url": f"http://127.0.0.1:{upstream.server_port}/v1", "name": "m", "api_key_env": "QA_KEY"}
        arguments = ["--environment", json.dumps({"model": model}), "--request-log", log, "--announce", announced]
        with start(*arguments, QA_KEY=KEY) as server:
            url = address(server)
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(url)
            text = caught.value.read().decode()
            caught.value.close()
            for path in ("/global_config_dict_yaml", "/server_instances"):
                text += urllib.request.urlopen(url + path, timeout=30).read().decode()
            server.terminate()
            text += server.stdout.read() + server.stderr.read()
        upstream.shutdown()
    assert seen == [f"Bearer {KEY}"]
    assert "unknown key ***" in text
    assert KEY not in text + log.read_text() + announced.read_text() + " ".join(map(str, arguments))


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=rf"127\.0\.0\.1:{port}: cannot listen: .*in use.* --port"):
            run(Files(port=port), Settings())


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (Files(port=70000), "--port"),
        (Files(environment="{head_server: 'http://127.0.0.1:1'}"), "head_server"),
        (Files(environment="{policy: scripted, speed: 1}"), "speed"),
        (Files(environment='{model: {base_url: "http://h/v1", name: m, api_key_env: NO_SUCH_KEY}}'), "NO_SUCH_KEY"),
    ],
)
def test_what_cannot_be_served_is_named(files, named, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(InputError, match=named):
        run(files, Settings())


def test_a_host_that_is_not_of_this_machine_is_named():
    with pytest.raises(ServerError, match=r"192\.0\.2\.1:0: cannot listen"):
        run(Files(host="192.0.2.1", port=0), Settings())


def test_the_greeting_is_a_line_for_the_config():
    assert 'environment: { head_server: "http://h:1" }' in greeting("http://h:1")


def test_open_files_are_raised_to_what_is_allowed():
    program = (
        "import resource\nfrom rollmake.stages.serve import allow_open_files as allow\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "for wanted in (32, 256, 9999): allow(wanted); print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(64, 512)", "(256, 512)", "(512, 512)"]
