"""A model server for the tests: it notes what it is asked and replies what it is told."""

from collections.abc import Callable
from contextlib import asynccontextmanager

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from rollmake.environment.app import create_app
from rollmake.environment.settings import embedded_settings


class FakeModel:
    """An OpenAI-compatible server on loopback; `reply(path, body)` gives the status, the body and the headers."""

    def __init__(self):
        self.requests: list[tuple[str, dict, str | None]] = []
        self.reply: Callable = lambda path, body: (
            200,
            said("Answer: 42") if "chat" in path else spoken("Answer: 42"),
            {},
        )
        app = web.Application()
        app.router.add_post("/v1/{path:.*}", self.answer)
        self.server = TestServer(app)

    async def answer(self, request):
        body = await request.json()
        self.requests.append((request.path, body, request.headers.get("Authorization")))
        status, content, headers = self.reply(request.path, body)
        if status is None:
            request.transport.close()
            return web.Response()
        content = content if isinstance(content, bytes) else orjson.dumps(content)
        return web.Response(status=status, body=content, headers=headers)

    @property
    def url(self):
        return str(self.server.make_url("/v1"))


def said(text, finish="stop", **message):
    """A chat completion."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    counted = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 9,
        "model": "m-1",
        "choices": [choice],
        "usage": counted,
    }


def spoken(text):
    """A response."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"id": "1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    counted = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    return {"id": "r1", "object": "response", "status": "completed", "output": [message], "usage": counted}


@pytest.fixture
async def model():
    """A running FakeModel."""
    fake = FakeModel()
    async with fake.server:
        yield fake


@pytest.fixture
def serving():
    """`serving(block, key=..., request_log=...)`: a client of the embedded environment with these settings."""

    @asynccontextmanager
    async def serve(block, **options):
        app = create_app(embedded_settings(block), **options)
        async with TestClient(TestServer(app)) as client:
            yield client

    return serve


@pytest.fixture
def row():
    """`row(**fields)`: a usable row with these fields."""

    def make(params=None, **fields):
        params = {"input": [{"role": "user", "content": "What is 6 times 7?"}]} | (params or {})
        usual = {"responses_create_params": params, "agent_ref": {"name": "question_answering_agent"}}
        return (
            usual
            | {"verifier": "numeric", "expected_answer": "42", "_ng_task_index": 3, "_ng_rollout_index": 1}
            | fields
        )

    return make


@pytest.fixture
def chat_reply():
    """Makes a chat completion from a text."""
    return said


@pytest.fixture
def response_reply():
    """Makes a response from a text."""
    return spoken
