"""The embedded environment server: NeMo Gym contract, section 4, for single-turn question answering."""

import asyncio
import os
import time
import traceback
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from rollmake.core.errors import InputError, RollmakeError
from rollmake.core.metrics import aggregate_metrics
from rollmake.environment.chat import answer_text
from rollmake.environment.policy import Policy, UpstreamError, open_policy
from rollmake.environment.request_log import RequestLog
from rollmake.environment.rows import decode_object, explain, read_row, result
from rollmake.environment.settings import Embedded
from rollmake.environment.topology import embedded_topology, server_instances

HEALTH = ("/", "/livez", "/readyz", "/healthz", "/health")
LARGEST_BODY = 1 << 30

POLICY = web.AppKey("policy", Policy)  # type: ignore[type-var]
LOG = web.AppKey("log", RequestLog)
STARTED = web.AppKey("started", float)


def create_app(settings: Embedded, *, key: str | None = None, request_log: Path | None = None) -> web.Application:
    """The server for these settings; `key` is sent to the model server and nowhere else."""
    app = web.Application(client_max_size=LARGEST_BODY)

    async def resources(app: web.Application) -> AsyncIterator[None]:
        app[LOG], app[STARTED] = RequestLog(request_log), time.time()
        async with open_policy(settings, key) as app[POLICY]:
            yield
        app[LOG].close()

    app.cleanup_ctx.append(resources)
    app.router.add_get("/global_config_dict_yaml", get_config)
    app.router.add_get("/server_instances", get_instances)
    app.router.add_post("/run", post_run)
    app.router.add_post("/aggregate_metrics", post_aggregate_metrics)
    for path in HEALTH:
        app.router.add_get(path, get_health)
    return app


async def get_health(request: web.Request) -> web.Response:
    """Always 200: the server listens only once it is ready."""
    return _json({"status": "ok"})


async def get_config(request: web.Request) -> web.Response:
    """The topology, as a JSON string that holds YAML (section 4.1)."""
    return _json(yaml.safe_dump(embedded_topology(*_address(request)), sort_keys=False))


async def get_instances(request: web.Request) -> web.Response:
    """The servers of the topology, which are all this process."""
    return _json(server_instances(*_address(request), os.getpid(), request.app[STARTED]))


async def post_run(request: web.Request) -> web.Response:
    """Answer and verify one flat row (section 4.3).

    422 says which field is not usable and why; 429, 502, 503 and 504 say that the model server could not answer now;
    500 has a JSON string with what went wrong.
    """
    fields, problem = _decoded(await request.read())
    number = request.app[LOG].arrived(fields)
    status = None
    try:
        response = await _guarded(_run(fields, problem, request.app[POLICY]))
        status = response.status
    finally:
        request.app[LOG].answered(number, fields, status)
    return response


async def post_aggregate_metrics(request: web.Request) -> web.Response:
    """Metrics over the verify responses of a run (section 4.5), computed beside the event loop."""
    return await _guarded(_aggregate(await request.read()))


async def _run(fields: dict[str, Any], problem: InputError | None, policy: Policy) -> web.Response:
    if problem is not None:
        raise problem
    row = read_row(fields)
    response = await policy(row)
    return _json(result(row, response, answer_text(response)))


async def _aggregate(body: bytes) -> web.Response:
    rows = decode_object(body).get("verify_responses")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("must be a list of objects", where="verify_responses")
    try:
        return _json(await asyncio.to_thread(aggregate_metrics, rows))
    except RollmakeError as error:
        return _json(str(error), status=500)


async def _guarded(work: Awaitable[web.Response]) -> web.Response:
    try:
        return await work
    except InputError as error:
        return _json(explain(error), status=422)
    except UpstreamError as error:
        headers = {"Retry-After": error.retry_after} if error.retry_after else None
        return _json(error.message, status=error.status, headers=headers)
    except Exception as error:
        traceback.print_exc()
        return _json(f"{type(error).__name__}: {error}", status=500)


def _decoded(body: bytes) -> tuple[dict[str, Any], InputError | None]:
    try:
        return decode_object(body), None
    except InputError as error:
        return {}, error


def _address(request: web.Request) -> tuple[str, int]:
    # What the client reached, which a wildcard address would not tell.
    assert request.transport is not None
    host, port = request.transport.get_extra_info("sockname")[:2]
    return host, port


def _json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, headers=headers, content_type="application/json")
