"""A constant environment server: nginx answers every `POST /run` with the same valid reply, so that the client is measured.

Beside it a head server whose topology names one agent behind it. Needs nginx (Debian: nginx-light).
"""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AGENT = "bench_agent"
NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 40000; }}
http {{
  access_log off; client_max_body_size 100m; client_body_buffer_size 1m; default_type application/json; sendfile on;
  keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {folder};
    location = /run {{ error_page 405 =200 /reply.json; try_files /reply.json =404; }}
    location = /reply.json {{ }}
    location / {{ return 200 '{{"status":"ok"}}'; }}
  }}
}}
"""


def reply(size: int) -> bytes:
    """A verify response of about `size` bytes."""
    text = "lorem ipsum dolor " * (size // 18)
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "id": "m", "status": "completed", "content": content}
    usage = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    answer = {
        "responses_create_params": {"input": [{"role": "user", "content": "x" * 200}]},
        "response": {"id": "resp_1", "object": "response", "output": [message], "usage": usage},
        "reward": 1.0,
        "mask_sample": False,
        "extracted_answer": "42",
        "verify_ms": 12.5,
    }
    return json.dumps(answer).encode()


def topology(port: int) -> str:
    """One agent behind one environment server, both at `port`."""
    where = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
    resources = {"type": "resources_servers", "name": "bench_resources"}
    model = {"type": "responses_api_models", "name": "policy_model"}
    agent = {"type": "responses_api_agents", "name": AGENT}
    servers = {
        "bench_resources": {"resources_servers": {"bench": where}},
        AGENT: {
            "responses_api_agents": {"simple_agent": {**where, "resources_server": resources, "model_server": model}}
        },
        "bench_server": {"environment_servers": {"legacy_agent": {**where, "agent_server": agent}}},
        "policy_model": {"responses_api_models": {"openai_model": where}},
    }
    return json.dumps(servers)


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def constant_server(folder: Path, size: int) -> Iterator[tuple[str, str]]:
    """The addresses of the environment server and of the head server while they run."""
    if shutil.which("nginx") is None:
        sys.exit("nginx is needed: apt-get install nginx-light")
    folder.mkdir(parents=True)
    # nginx's workers run as another user.
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    (folder / "reply.json").write_bytes(reply(size))
    port, head = free_port(), free_port()
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    serve = f"from benchmarks.constant import head; head({head}, {port})"
    root = Path(__file__).resolve().parent.parent
    processes = [
        subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, "-c", serve], cwd=root, stderr=subprocess.DEVNULL),
    ]
    try:
        for address in (f"http://127.0.0.1:{port}/health", f"http://127.0.0.1:{head}/global_config_dict_yaml"):
            wait_for(address)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/run", data=b"{}", timeout=5) as answer:
            assert answer.read() == reply(size), "the constant server does not answer what it should"
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{head}"
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def wait_for(address: str) -> None:
    """Return when something answers at `address`."""
    for _ in range(200):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nothing answers at {address}")


def head(port: int, environment_port: int) -> None:
    """Serve the topology until the process is ended."""
    from aiohttp import web

    async def config(request: web.Request) -> web.Response:
        return web.json_response(topology(environment_port))

    app = web.Application()
    app.router.add_get("/global_config_dict_yaml", config)
    web.run_app(app, host="127.0.0.1", port=port, print=None)
