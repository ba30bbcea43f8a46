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
from rollmake.environment.policy import Policy, UnreachableError, UpstreamError, connects, open_policy
from rollmake.environment.request_log import RequestLog
from rollmake.environment.rows import decode_object, explain, read_row, result
from rollmake.environment.settings import Embedded
from rollmake.environment.topology import embedded_topology, server_instances

ALIVE = ("/", "/livez")
HEALTH = (*ALIVE, "/readyz", "/healthz", "/health")
LARGEST_BODY = 1 << 30

POLICY = web.AppKey("policy", Policy)  # type: ignore[type-var]
LOG = web.AppKey("log", RequestLog)
STARTED = web.AppKey("started", float)
MODEL: web.AppKey["ModelState"] = web.AppKey("model")


def create_app(settings: Embedded, *, key: str | None = None, request_log: Path | None = None) -> web.Application:
    """The server for these settings; `key` is sent to the model server and nowhere else."""
    app = web.Application(client_max_size=LARGEST_BODY)

    async def resources(app: web.Application) -> AsyncIterator[None]:
        app[LOG], app[STARTED] = RequestLog(request_log), time.time()
        app[MODEL] = ModelState(settings.model.base_url if settings.model else None)
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


class ModelState:
    """Whether the model server could be reached when it was last asked; `address` is None for the scripted policy."""

    def __init__(self, address: str | None) -> None:
        self.address, self.unreachable = address, False

    async def well(self) -> bool:
        """Whether questions can be answered: a model server that could not be reached is tried again."""
        if self.unreachable and self.address is not None:
            self.unreachable = not await connects(self.address)
        return not self.unreachable


async def get_health(request: web.Request) -> web.Response:
    """200, since the server listens only once it is ready, unless the model server cannot be reached: then 503.

    `/` and `/livez` are always 200.
    """
    if request.path in ALIVE or await request.app[MODEL].well():
        return _json({"status": "ok"})
    return _json({"status": f"no connection to the model server at {request.app[MODEL].address}"}, status=503)


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
        response = await _guarded(_run(fields, problem, request.app[POLICY], request.app[MODEL]))
        status = response.status
    finally:
        request.app[LOG].answered(number, fields, status)
    return response


async def post_aggregate_metrics(request: web.Request) -> web.Response:
    """Metrics over the verify responses of a run (section 4.5), computed beside the event loop."""
    return await _guarded(_aggregate(await request.read()))


async def _run(fields: dict[str, Any], problem: InputError | None, policy: Policy, model: ModelState) -> web.Response:
    if problem is not None:
        raise problem
    row = read_row(fields)
    try:
        response = await policy(row)
    except UnreachableError:
        model.unreachable = True
        raise
    model.unreachable = False
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
