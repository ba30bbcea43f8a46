"""Who answers a row: the script, or a model server through either of the two OpenAI interfaces."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from yarl import URL

from rollmake.core.errors import InputError
from rollmake.edge.connector import CleanConnector
from rollmake.environment.chat import chat_request, response_from_chat
from rollmake.environment.rows import Row
from rollmake.environment.scripted import scripted_response
from rollmake.environment.settings import Embedded, Model

GATEWAY = (429, 502, 503, 504)
CONNECT_S = 5.0
CONNECT_TIMEOUT_S = 30
_QUOTED = 2000
# Shorter ones are placeholders like EMPTY, which an answer may well contain.
_SECRET_LENGTH = 8

Policy = Callable[[Row], Awaitable[dict[str, Any]]]


class UpstreamError(Exception):
    """The model server gave no answer; `status` is what `POST /run` replies with."""

    def __init__(self, status: int, message: str, retry_after: str | None = None) -> None:
        self.status, self.message, self.retry_after = status, message, retry_after
        super().__init__(message)


class UnreachableError(UpstreamError):
    """No connection to the model server could be made."""


async def connects(base_url: str) -> bool:
    """Whether the model server at `base_url` takes connections."""
    address = URL(base_url)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(address.host, address.port, ssl=address.scheme == "https" or None)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def api_key(model: Model, environ: Mapping[str, str]) -> str | None:
    """The key for a model server, if it needs one. Raises InputError if the variable named for it is not set."""
    if model.api_key_env is None:
        return None
    if not (key := environ.get(model.api_key_env)):
        remedy = f"Export {model.api_key_env}, or leave api_key_env out if the server needs no key"
        found = f"the environment variable {model.api_key_env} is not set"
        raise InputError(found, where="environment.embedded.model.api_key_env", remedy=remedy)
    return key


@asynccontextmanager
async def open_policy(settings: Embedded, key: str | None) -> AsyncIterator[Policy]:
    """The policy of the settings, with its connections to the model server open until the block ends."""
    if settings.model is None:
        yield scripted_policy(settings)
        return
    # An answer may take hours, and how many are asked for at once is the collector's decision.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    connector, jar = CleanConnector(limit=0), aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=jar) as session:
        yield model_policy(settings.model, key, session)


def scripted_policy(settings: Embedded, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> Policy:
    """The policy that answers from the row itself, after a seeded delay."""

    async def answer(row: Row) -> dict[str, Any]:
        response, seconds = scripted_response(settings, row)
        await sleep(seconds)
        return response

    return answer


def model_policy(model: Model, key: str | None, session: aiohttp.ClientSession) -> Policy:
    """The policy that asks a model server.

    It raises InputError for a row that cannot be said in the server's interface, and UpstreamError with the status to
    pass on: gateway statuses as they are, 503 if no connection could be made, 502 if it broke before a reply came, 500
    for all else.
    """
    path = "/chat/completions" if model.api == "chat" else "/responses"
    url = model.base_url.rstrip("/") + path
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    async def answer(row: Row) -> dict[str, Any]:
        asked = chat_request(row, model.name) if model.api == "chat" else responses_request(row, model.name)
        body = orjson.dumps(asked)
        try:
            async with session.post(url, data=body, headers=headers, allow_redirects=False) as reply:
                content = redact(await reply.read(), key)
        except aiohttp.InvalidURL as error:
            raise UpstreamError(500, f"no address of a model server: {error}") from None
        except (aiohttp.ClientConnectorError, TimeoutError) as error:
            raise UnreachableError(503, f"no connection to the model server at {model.base_url}: {error}") from None
        except aiohttp.ClientPayloadError as error:
            raise UpstreamError(500, f"the reply of the model server at {model.base_url} broke off: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(502, f"the model server at {model.base_url} broke the connection: {error}") from None
        if reply.status != 200:
            raise _refusal(reply.status, content, reply.headers.get("Retry-After"))
        return read_response(content, model)

    return answer


def responses_request(row: Row, model: str) -> dict[str, Any]:
    """The parameters of a row as they go to `/responses`: with the model's name and the members of `extra_body`."""
    metadata = {key: value for key, value in (row.params.get("metadata") or {}).items() if key != "extra_body"}
    kept = {key: value for key, value in row.params.items() if key != "metadata"}
    return kept | {"model": model} | ({"metadata": metadata} if metadata else {}) | row.extra_body


def read_response(content: bytes, model: Model) -> dict[str, Any]:
    """The response in the body of a 200. Raises UpstreamError if there is none, or if it says that it failed."""
    try:
        response = orjson.loads(content)
        if model.api == "chat":
            response = response_from_chat(response)
        usable = isinstance(response["output"], list) and response.get("status") != "failed"
    except (ValueError, LookupError, TypeError, AttributeError):
        usable = False
    if not usable:
        raise UpstreamError(500, f"the model server's reply is no {model.api} reply: {_quote(content)}")
    return response


def redact(content: bytes, key: str | None) -> bytes:
    """The body of a reply without the key that it may repeat."""
    if key is None or len(key) < _SECRET_LENGTH:
        return content
    return content.replace(key.encode(), b"***")


def _refusal(status: int, content: bytes, retry_after: str | None) -> UpstreamError:
    message = f"the model server answered with status {status}: {_quote(content)}"
    if status in GATEWAY:
        return UpstreamError(status, message, retry_after)
    return UpstreamError(500, message)


def _quote(content: bytes) -> str:
    return content.decode(errors="replace")[:_QUOTED]
