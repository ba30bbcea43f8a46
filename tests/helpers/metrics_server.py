"""A server for POST /aggregate_metrics on a free loopback port; what it answers is scripted."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from rollmake.core.metrics import aggregate_metrics


def scored(rows):
    """What a server that computes the default metrics answers."""
    return 200, json.dumps(aggregate_metrics(rows)).encode(), {}


class MetricsServer(ThreadingHTTPServer):
    """`answers` are (status, body, headers), or functions of the rows that make one; the last is given for ever."""

    daemon_threads = True

    def __init__(self, *answers):
        self.answers, self.requests = answers or (scored,), []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self):
        return self.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/aggregate_metrics"
        assert self.headers["Content-Type"] == "application/json"
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert list(content) == ["verify_responses"]
        self.server.requests.append(content["verify_responses"])
        answer = self.server.answers[min(len(self.server.requests), len(self.server.answers)) - 1]
        if answer is None:
            self.close_connection = True
            return
        status, body, headers = answer(content["verify_responses"]) if callable(answer) else answer
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving(*answers):
    """A running server; `None` as an answer closes the connection without one."""
    with MetricsServer(*answers) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
