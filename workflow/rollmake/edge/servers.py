"""Start and stop the servers of an environment, and never leave one behind."""

import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from rollmake.core.errors import InputError, ServerError
from rollmake.edge.guard import GRACE_S
from rollmake.edge.topology import OPENER, server_addresses

EMBEDDED_TIMEOUT_S = 60.0
SERVE_TIMEOUT_S = 120.0
_PROBE_TIMEOUT_S = 5.0
_TICK_S = 0.05
_QUOTED_LINES = 20
_QUOTED_BYTES = 20_000
# The first that a server knows decides; `/` is 200 also while a head server still starts.
_HEALTH = ("/readyz", "/health", "/")


@contextmanager
def environment_servers(environment: dict[str, Any], *, log: Path) -> Iterator[str | None]:
    """The head server's address (None for a `topology` file alone) while the servers of an `environment` mapping run.

    `embedded` and `serve` are started here, write to `log`, and are healthy when the block begins; they and all they
    started are gone when it has ended, or seconds after this process was killed. Servers that run elsewhere are not
    asked: being down is not the end of a run. Raises ServerError, with the end of the log, if a server ends or is not
    healthy in time, and InputError for a `topology` without any address to ask.
    """
    if "embedded" in environment:
        with _embedded(environment["embedded"], log) as head:
            yield head
    elif "serve" in environment:
        with _served(environment, log) as head:
            yield head
    else:
        yield environment.get("head_server")


def healthy(url: str) -> bool:
    """Whether the server at `url` says that it is ready: 200 from `/readyz`, else `/health`, else `/`."""
    for path in _HEALTH:
        status = _status(url.rstrip("/") + path)
        if status not in (404, 405):
            return status == 200
    return False


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on at this moment."""
    with socket.socket(socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


@contextmanager
def _embedded(settings: dict[str, Any], log: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="rollmake-") as folder:
        announced = Path(folder) / "address"
        # -P: a folder called rollmake in the working directory is not the program.
        command = [sys.executable, "-P", "-m", "rollmake", "serve", "--port", "0", "--announce", str(announced)]
        command += ["--environment", orjson.dumps({"embedded": settings}).decode()]

        def ready() -> bool:
            return announced.exists() and healthy(announced.read_text().strip())

        with _running(command, log, ready, EMBEDDED_TIMEOUT_S):
            yield announced.read_text().strip()


@contextmanager
def _served(environment: dict[str, Any], log: Path) -> Iterator[str | None]:
    serve, head = environment["serve"], environment.get("head_server")
    command = serve["command"]
    if "{port}" in command:
        port = free_port()
        command, head = command.replace("{port}", str(port)), head and _with_port(head, port)
    addresses = [head] if head else list(server_addresses(environment, None).values())
    if not addresses:
        remedy = "Give the environment servers there a host and a port, so that it can be seen when they are ready"
        raise InputError("names no environment server with an address", where=environment["topology"], remedy=remedy)

    def ready() -> bool:
        return all(healthy(address) for address in addresses)

    if taken := [address for address in addresses if healthy(address)]:
        remedy = "Write {port} into `command` for a free port, or leave `serve` out to use the servers that run"
        raise ServerError(
            f"something else answers at {', '.join(taken)} already", where="environment.serve", remedy=remedy
        )
    timeout_s = serve.get("ready_timeout_s", SERVE_TIMEOUT_S)
    with _running(["/bin/sh", "-c", command], log, ready, timeout_s):
        yield head


@contextmanager
def _running(command: list[str], log: Path, ready: Callable[[], bool], timeout_s: float) -> Iterator[None]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        start = output.seek(0, os.SEEK_END)
        guarded = [sys.executable, "-P", "-m", "rollmake.edge.guard", *command]
        guard = subprocess.Popen(
            guarded, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        if problem := _wait(guard, ready, timeout_s):
            remedy = "Check `environment` in the config, or start the server by hand to see more"
            raise ServerError(f"{problem}; {_last_lines(log, start)}", where=str(log), remedy=remedy)
        yield
    finally:
        _stop(guard)


def _wait(guard: subprocess.Popen[bytes], ready: Callable[[], bool], timeout_s: float) -> str | None:
    deadline = time.monotonic() + timeout_s
    while True:
        if (status := guard.poll()) is not None:
            return f"the server ended with status {status} before it was healthy"
        if ready():
            return None
        if time.monotonic() > deadline:
            return f"the server was not healthy after {timeout_s:g} s"
        time.sleep(_TICK_S)


def _stop(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    with suppress(BrokenPipeError):
        guard.stdin.close()
    try:
        guard.wait(GRACE_S * 2)
    except subprocess.TimeoutExpired:
        guard.kill()
        guard.wait()


def _status(url: str) -> int | None:
    try:
        with OPENER.open(url, timeout=_PROBE_TIMEOUT_S) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except (OSError, ValueError, http.client.HTTPException):
        return None


def _with_port(address: str, port: int) -> str:
    parts = urlsplit(address)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def _last_lines(log: Path, start: int) -> str:
    with log.open("rb") as file:
        file.seek(max(start, log.stat().st_size - _QUOTED_BYTES))
        lines = file.read().decode(errors="replace").splitlines()[-_QUOTED_LINES:]
    return "its last lines:" + "".join(f"\n    {line}" for line in lines) + "\n" if lines else "it wrote nothing"
