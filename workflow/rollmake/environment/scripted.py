"""A policy without a model: right or wrong by a seeded draw, so that a run needs no network and can be repeated."""

import hashlib
import math
from typing import Any

import orjson

from rollmake.core import contract
from rollmake.environment.chat import text_message, usage
from rollmake.environment.rows import Row
from rollmake.environment.settings import Embedded
from rollmake.environment.verify import find_number

_LONGEST = 5.0
_UNSURE_SHARE = 0.25
_UNSURE = "I went through it twice and am still not sure."


def scripted_response(settings: Embedded, row: Row) -> tuple[dict[str, Any], float]:
    """The response to a row, and the seconds it takes: exponential around `latency_s`, at most five times that.

    Both follow from the seed, the input, the rollout and attempt of the row and the seed in its `metadata`; neither
    from the process nor from the order of the requests. A right answer is `scripted_answer` if the row has one (a
    pattern says little about what matches it), else `expected_answer`.
    """
    asked = orjson.dumps(row.params["input"])
    digest = _digest(settings.seed, asked, row)
    error, slowness, unsure, size = (int.from_bytes(digest[i : i + 8]) / 2**64 for i in range(0, 32, 8))
    wrong = error < settings.error_rate or settings.error_rate == 1
    text = _wrong(row, unsure, size) if wrong else _right(row)
    thought = int(size * 200)
    identifier = digest.hex()[:24]
    response = {
        "id": f"resp_{identifier}",
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": [text_message(identifier, text)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage(len(asked) // 4 + 1, thought + len(text) // 4 + 1, reasoning=thought),
    }
    return response, min(-math.log1p(-min(slowness, 1 - 2**-53)), _LONGEST) * settings.latency_s


def _digest(seed: int, asked: bytes, row: Row) -> bytes:
    rollout, attempt = row.fields.get(contract.ROLLOUT), row.fields.get(contract.ATTEMPT) or 0
    key = repr((seed, asked, rollout, attempt, row.extra_body.get("seed")))
    return hashlib.blake2b(key.encode(), digest_size=32).digest()


def _right(row: Row) -> str:
    return _said(row, str(row.fields.get("scripted_answer") or row.expected))


def _said(row: Row, answer: str) -> str:
    if row.kind in ("exact", "regex"):
        return answer
    return f"Let me think about it step by step, and check the result before I give it.\n\nAnswer: {answer}"


def _wrong(row: Row, unsure: float, draw: float) -> str:
    if unsure < _UNSURE_SHARE or row.kind in ("exact", "regex"):
        return _UNSURE
    if row.kind == "choice":
        index = ord(row.expected.strip().strip("()[].").upper()) - ord("A")
        return _said(row, chr(ord("A") + (index + 1 + int(draw * 3)) % 4))
    number = find_number(row.expected)
    value = number.value if number else 0.0
    # Further away than any tolerance, whatever the size of the number.
    return _said(row, f"{value + abs(value) + 1 + int(draw * 9):.10g}")
