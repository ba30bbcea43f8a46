"""The one vocabulary of what becomes of a request: every exchange with a server maps here, once, to one outcome.

NeMo Gym contract, sections 2.2 and 4.3.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
import orjson

from rollmake.core import contract as c
from rollmake.core.episodes import episode_record, is_episode_reply, taskset_of
from rollmake.core.errors import DataError
from rollmake.core.nesting import encode
from rollmake.core.reply import read_reply

GATEWAY_STATUSES = frozenset({429, 502, 503, 504})
REQUEST_FAILED = "agent_request_failed"
RUN_ERROR = "agent_run_error"
BODY_CHARACTERS = 2000
# A success carries these, in this order, whatever the server said of them.
STAMPS = (c.TASK, c.ROLLOUT, c.AGENT_REF, c.TASK_SOURCE, c.SKILLS_REF, c.ATTEMPT, c.ROLLOUT_ID, c.SERVER, c.RESULT_TYPE)


class Destination(Enum):
    """Where the record of an attempt goes."""

    ROLLOUTS = "rollouts"
    SIDECAR = "sidecar"
    NOWHERE = "nowhere"


class Answered(msgspec.Struct, frozen=True):
    """The server's whole reply: HTTP status, body, and the text of its Retry-After header if there is one."""

    status: int
    body: bytes
    retry_after: str | None = None


class Broken(msgspec.Struct, frozen=True):
    """The request may have been delivered, but no whole reply came back; `status` if the headers still did."""

    kind: str
    message: str
    status: int | None = None


class NeverSent(msgspec.Struct, frozen=True):
    """Nothing reached the server: it spends no attempt."""

    kind: str
    message: str


Exchange = Answered | Broken | NeverSent
Parts = Sequence[bytes | memoryview]


class Failed(msgspec.Struct, frozen=True):
    """No usable result came back: kind of the error, what happened, and HTTP status and body of the error if known."""

    kind: str
    message: str
    status: int | None = None
    body: str | None = None

    @property
    def cause(self) -> str:
        """What kind of failure it is, in a word or two that others of its kind share."""
        return self.kind if self.status is None or 200 <= self.status < 300 else f"status {self.status}"

    @property
    def text(self) -> str:
        """The same with what happened, where the kind alone does not say it."""
        return f"{self.kind}: {self.message}" if self.cause == self.kind else self.cause

    @property
    def failure_class(self) -> str:
        """Its class in the sidecar."""
        return failure_class(self.status)

    @property
    def fields(self) -> dict[str, Any]:
        """The sidecar's fields of an infrastructure failure, without stamps."""
        return {
            c.FAILURE_CLASS: self.failure_class,
            c.FAILURE_TYPE: self.kind,
            c.FAILURE_MESSAGE: self.message,
            c.FAILURE_STATUS: self.status,
            c.FAILURE_BODY: self.body,
        }


class Outcome(msgspec.Struct, frozen=True):
    """What to store: the parts of one line without its newline, and where.

    `failure_class` is None unless it is the sidecar.
    """

    destination: Destination
    parts: Parts = ()
    failure_class: str | None = None
    terminal: bool = False
    # A later attempt at it may use what this one left behind.
    reuse: bool = False
    reward: float | None = None
    masked: bool = False
    # Why there is no usable result, if the framework says so and not the server.
    failed: Failed | None = None

    @property
    def line(self) -> bytes:
        """The parts put together."""
        return b"".join(self.parts)

    @property
    def infrastructure(self) -> bool:
        """Whether no usable result came back."""
        return self.failed is not None


def stamps(row: Mapping[str, Any]) -> dict[str, Any]:
    """The framework's keys of a dispatched row, in the order in which a record carries them."""
    return {key: row[key] for key in STAMPS if key in row}


def outcome(exchange: Answered | Broken, row: Mapping[str, Any]) -> Outcome:
    """What becomes of an attempt at `row` (as it was dispatched) that may have reached the server."""
    found = reading(exchange, row)
    if isinstance(found, Failed):
        line = orjson.dumps({**found.fields, **stamps(row)})
        return Outcome(Destination.SIDECAR, (line,), found.failure_class, failed=found)
    return _record(found, row)


class Reading(msgspec.Struct, frozen=True, gc=False):
    """A record without stamps, whether it is an episode's, and its bytes as the server sent them if they can be kept."""

    record: dict[str, Any]
    episode: bool
    plain: bytes | None


def reading(exchange: Answered | Broken, row: Mapping[str, Any]) -> Reading | Failed:
    """The record that came back; or why there is none."""
    if isinstance(exchange, Broken):
        return Failed(exchange.kind, exchange.message, exchange.status)
    status, body = exchange.status, exchange.body
    if not 200 <= status < 300:
        return Failed("ClientResponseError", f"the server answered with status {status}", status, error_body(body))
    try:
        reply, plain = read_reply(body)
    except orjson.JSONDecodeError as error:
        return Failed("JSONDecodeError", f"the reply is no JSON: {error}", status)
    if not isinstance(reply, dict):
        return Failed("TypeError", f"the reply is {type(reply).__name__}, not an object", status)
    if taskset_of(row) is None or not is_episode_reply(reply):
        return Reading(reply, False, body if plain else None)
    try:
        return Reading(episode_record(reply), True, None)
    except DataError as error:
        return Failed("ValueError", str(error), status)


def error_body(body: bytes) -> str | None:
    """What is kept of an error's body: its first 2,000 characters and an ellipsis if that left anything out."""
    text = body.decode("utf-8", "replace")
    return (text[:BODY_CHARACTERS] + "…" if len(text) > BODY_CHARACTERS else text) or None


def failure_class(status: int | None) -> str:
    """The class of an infrastructure failure: the rollout broke (a status says so), or it was never run."""
    return REQUEST_FAILED if status is None or status in GATEWAY_STATUSES else RUN_ERROR


def stamped(found: Reading, marks: Mapping[str, Any]) -> Parts:
    """The parts of the record on one line, with the stamps behind it or in the place of its own keys of these names.

    Where it can be, these are the bytes that the server sent, and not written anew.
    """
    record, plain = found.record, found.plain
    if plain is not None and marks and record and marks.keys().isdisjoint(record):
        return memoryview(plain)[:-1], b",", memoryview(orjson.dumps(marks))[1:]
    return (encode({**record, **marks}),)


def _record(found: Reading, row: Mapping[str, Any]) -> Outcome:
    reply = found.record
    if reply.get(c.NO_PERSIST):
        return Outcome(Destination.NOWHERE)
    parts = stamped(found, stamps(row))
    named = reply.get(c.FAILURE_CLASS)
    if named is not None:
        terminal, reuse = bool(reply.get(c.FAILURE_TERMINAL)), bool(reply.get(c.REUSE))
        return Outcome(Destination.SIDECAR, parts, str(named), terminal, reuse)
    reward = reply.get(c.REWARD)
    number = float(reward) if isinstance(reward, (int, float)) else None
    return Outcome(Destination.ROLLOUTS, parts, reward=number, masked=bool(reply.get(c.MASK)))
