"""Parts of records as a reader sees them: the question, the answer, what the verifier says; all of it harmless."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import orjson

from rollmake.core import contract

TEXT_LIMIT = 1500
FAILURE_LIMIT = 600
FIELD_LIMIT = 200
FIELDS = 12
# Invisible or reordering characters: controls, bidirectional marks and overrides, byte order mark, surrogates.
HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
NEWLINES = re.compile("\r\n?|[\u0085\u2028\u2029]")


class Excerpt(msgspec.Struct, frozen=True):
    """The beginning of a text, and how many characters of it were left out."""

    text: str
    cut: int = 0


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One record to read: `fields` are the numbers, truth values and texts beside its response."""

    task: Any
    rollout: Any
    server: Excerpt
    reward: float | None
    question: Excerpt
    answer: Excerpt
    fields: list[tuple[Excerpt, Excerpt]]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the sidecar to read."""

    task: Any
    rollout: Any
    server: Excerpt
    question: Excerpt
    status: int | None
    message: Excerpt
    body: Excerpt


def excerpt(value: object, limit: int = TEXT_LIMIT) -> Excerpt:
    """The first `limit` characters of a value's text, harmless."""
    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value, default=str).decode()
    return Excerpt(harmless(text[:limit]), max(len(text) - limit, 0))


def harmless(text: str) -> str:
    """`text` with every end of line as a newline, and characters that hide or reorder text shown like `\\u202e`."""
    return HOSTILE.sub(lambda match: f"\\u{ord(match[0]):04x}", NEWLINES.sub("\n", text))


def one_line(text: str, limit: int) -> str:
    """The first `limit` characters of `text` in one harmless line."""
    return harmless(" ".join(text[:limit].split()))


def example(record: Mapping[str, Any], row: Mapping[str, Any]) -> Example:
    """A rollout record as a reader sees it; `row` is its materialized input, if the record tells no question."""
    reward = record.get(contract.REWARD)
    return Example(
        task=record.get(contract.TASK),
        rollout=record.get(contract.ROLLOUT),
        server=_server(record),
        reward=float(reward) if isinstance(reward, int | float) else None,
        question=excerpt(question(record) or question(row)),
        answer=excerpt(answer(record)),
        fields=list(_fields(record)),
    )


def failure(record: Mapping[str, Any], row: Mapping[str, Any]) -> Failure:
    """A sidecar row as a reader sees it: the message of the infrastructure, else the reason that an agent gave."""
    message = record.get(contract.FAILURE_MESSAGE) or record.get("failure_reason") or record.get("error") or ""
    kind = record.get(contract.FAILURE_TYPE)
    status = record.get(contract.FAILURE_STATUS)
    return Failure(
        task=record.get(contract.TASK),
        rollout=record.get(contract.ROLLOUT),
        server=_server(record),
        question=excerpt(question(record) or question(row), FAILURE_LIMIT),
        status=status if isinstance(status, int) else None,
        message=excerpt(f"{kind}: {message}" if kind else message, FAILURE_LIMIT),
        body=excerpt(record.get(contract.FAILURE_BODY), FAILURE_LIMIT),
    )


def question(record: Mapping[str, Any]) -> str:
    """What the model was asked: a text, or the messages of a conversation with their roles."""
    params = record.get(contract.PARAMS)
    asked = params.get("input") if isinstance(params, Mapping) else None
    if not isinstance(asked, list):
        return asked if isinstance(asked, str) else ""
    messages = [message for message in asked if isinstance(message, Mapping)]
    texts = [(message.get("role", message.get("type")), _text(message.get("content"))) for message in messages]
    return texts[0][1] if len(texts) == 1 else "\n\n".join(f"[{role}] {text}" for role, text in texts)


def answer(record: Mapping[str, Any]) -> str:
    """What the model answered: the text of its last message; before it, how many other steps there were."""
    response = record.get(contract.RESPONSE)
    output = response.get("output") if isinstance(response, Mapping) else response
    if not isinstance(output, list):
        return output if isinstance(output, str) else ""
    steps = [item for item in output if isinstance(item, Mapping)]
    texts = [text for item in steps if (text := _text(item.get("content")))]
    more = len(steps) - 1
    prefix = f"[after {more} other step{'s' if more > 1 else ''}]\n" if more > 0 and texts else ""
    return prefix + texts[-1] if texts else ""


def _text(content: object) -> str:
    """The text of a message's content: itself, or the texts of its parts."""
    if isinstance(content, list):
        parts = [part.get("text", part.get("refusal")) for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _server(record: Mapping[str, Any]) -> Excerpt:
    agent = record.get(contract.AGENT_REF)
    name = agent.get("name") if isinstance(agent, Mapping) else None
    return excerpt(record.get(contract.SERVER) or name, FIELD_LIMIT)


def _fields(record: Mapping[str, Any]) -> Iterator[tuple[Excerpt, Excerpt]]:
    shown = 0
    for name, value in record.items():
        if name.startswith("_") or name == contract.REWARD or not isinstance(value, str | int | float):
            continue
        if shown == FIELDS:
            break
        shown += 1
        yield excerpt(name, FIELD_LIMIT), excerpt(value, FIELD_LIMIT)
