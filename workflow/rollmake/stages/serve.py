"""Run the embedded environment until it is told to stop."""

import asyncio
import os
import resource
import signal
from pathlib import Path
from typing import Annotated

import msgspec
import uvloop
from aiohttp import web

from rollmake.core.errors import InputError, ServerError
from rollmake.edge.files import write_atomic
from rollmake.environment.app import create_app
from rollmake.environment.policy import api_key
from rollmake.environment.settings import read_settings
from rollmake.environment.topology import AGENT

HELP = "Run the embedded environment, single-turn question answering, until SIGTERM or Ctrl-C."

BACKLOG = 4096
OPEN_FILES = 65_536
# Waited for twice by aiohttp, and together less than what rollmake gives a server between SIGTERM and SIGKILL.
SHUTDOWN_S = 2.0


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What is served and where."""

    environment: Annotated[
        str,
        msgspec.Meta(
            description="YAML or JSON: an `environment` mapping with `embedded`, or the embedded block itself"
        ),
    ] = '{"embedded": {"policy": "scripted"}}'
    host: Annotated[str, msgspec.Meta(description="address to listen on; 0.0.0.0 is every one of this machine")] = (
        "127.0.0.1"
    )
    port: Annotated[int, msgspec.Meta(description="port to listen on; 0 takes a free one")] = 11000
    request_log: Annotated[
        Path | None,
        msgspec.Meta(description="file for a JSON line when a rollout is asked for and when it is answered"),
    ] = None
    announce: Annotated[
        Path | None, msgspec.Meta(description="file that holds the address once the server is ready")
    ] = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of a run's options: the server is the same for every run."""


def run(files: Files, settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight then get two seconds.

    Raises InputError for an environment that is not usable or whose key is not set, and ServerError if the address is
    taken or not of this machine.
    """
    if not 0 <= files.port <= 65535:
        raise InputError(
            f"{files.port} is no port", where="--port", remedy="Give one from 1 to 65535, or 0 for a free one"
        )
    embedded = read_settings(files.environment)
    key = api_key(embedded.model, os.environ) if embedded.model else None
    app = create_app(embedded, key=key, request_log=files.request_log)
    allow_open_files(OPEN_FILES)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app, files))


def allow_open_files(wanted: int) -> None:
    """Allow this process `wanted` open files, or as many as its hard limit does: one is needed for each request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


async def _serve(app: web.Application, files: Files) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    # A rollout whose asker is gone is not worth a model's time.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        url = await _listen(runner, files)
        if files.announce is not None:
            write_atomic(files.announce, f"{url}\n".encode())
        print(greeting(url), flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, files: Files) -> str:
    try:
        await web.TCPSite(runner, files.host, files.port, backlog=BACKLOG).start()
    except OSError as error:
        where, reason = f"{files.host}:{files.port}", os.strerror(error.errno) if error.errno else str(error)
        raise ServerError(f"cannot listen: {reason}", where=where, remedy="Give another --host or --port") from None
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def greeting(url: str) -> str:
    """What the command says when it is ready: its address, and what a config and a row need to say to use it."""
    return (
        f"The embedded environment listens on {url} and stops at Ctrl-C.\n"
        f'  in the config:  environment: {{ head_server: "{url}" }}\n'
        f'  in each row:    "agent_ref": {{"name": "{AGENT}"}}'
    )
