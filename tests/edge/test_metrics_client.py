"""Asking for metrics, from servers that do not always answer."""

import json

import pytest

from helpers.metrics_server import serving
from rollmake.core.errors import ServerError
from rollmake.edge.metrics_client import server_metrics

GOOD = (200, b'{"agent_metrics":{}}', {})
BUSY = (503, b"busy", {"Retry-After": "7"})
BROKEN = (500, b'"boom"', {})
ITEMS = [b'{"reward":1.0,"t_ns":1700000000000000000}', b'{"reward":0.5}']


class Pauses(list):
    async def __call__(self, seconds):
        self.append(seconds)


async def test_the_items_are_sent_as_they_are_and_the_reply_is_decoded():
    with serving(GOOD) as server:
        assert await server_metrics("env", server.url, ITEMS) == {"agent_metrics": {}}
    assert server.requests == [[json.loads(item) for item in ITEMS]]


@pytest.mark.parametrize("answers", [(BROKEN, GOOD), (None, GOOD), (BUSY, BROKEN, GOOD), ((429, b"", {}), GOOD)])
async def test_what_fails_is_tried_again(answers):
    with serving(*answers) as server:
        assert await server_metrics("env", server.url, ITEMS, Pauses()) == {"agent_metrics": {}}
    assert len(server.requests) == len(answers)


async def test_it_waits_as_asked_else_longer_each_time():
    pauses = Pauses()
    with serving(BROKEN) as server, pytest.raises(ServerError):
        await server_metrics("env", server.url, ITEMS, pauses)
    with serving(BUSY) as server, pytest.raises(ServerError):
        await server_metrics("env", server.url, ITEMS, pauses)
    assert pauses == [1.0, 2.0, 7.0, 7.0]


async def test_three_failures_are_named_with_status_body_and_likely_cause():
    with serving(BROKEN) as server, pytest.raises(ServerError) as error:
        await server_metrics("env", server.url, ITEMS, Pauses())
    assert len(server.requests) == 3
    for part in ("'env'", server.url, "status 500", "boom", "2^47", "t_ns"):
        assert part in str(error.value)


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_refusal_for_good_is_not_repeated(status):
    pauses = Pauses()
    with serving((status, b"no", {})) as server, pytest.raises(ServerError, match=f"status {status}: no"):
        await server_metrics("env", server.url, ITEMS, pauses)
    assert (len(server.requests), pauses) == (1, [])


async def test_a_redirect_is_no_success():
    with serving((302, b"", {"Location": "/elsewhere"})) as server, pytest.raises(ServerError, match="status 302"):
        await server_metrics("env", server.url, ITEMS, Pauses())


async def test_a_server_that_is_not_there_is_named():
    with serving() as server:
        url = server.url
    with pytest.raises(ServerError, match=r"'env' at http.*no reply"):
        await server_metrics("env", url, ITEMS, Pauses())


async def test_a_success_that_is_no_json_is_named():
    with serving((200, b"<html>", {})) as server, pytest.raises(ServerError, match=r"'env'.*no JSON"):
        await server_metrics("env", server.url, ITEMS, Pauses())
