"""The verdict on one line of a rollouts, sidecar or materialized file (NeMo Gym contract, sections 1.1 and 1.2)."""

import json
import math
from collections.abc import Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from rollmake.core.contract import ROLLOUT, TASK

# Bytes that are no part of a record and may surround it: white space, what a power cut leaves, a byte order mark.
WHITE = b" \t\r\n\v\f"
NUL, BOM = b"\0", b"\xef\xbb\xbf"
INDICES = range(-(2**63), 2**63)
# The bytes that a line which is one record and its newline has in these places.
ENDS = ((itemgetter(0), ord("{")), (itemgetter(-2), ord("}")), (itemgetter(-1), ord("\n")))


class Reason(StrEnum):
    """Why a line, or a part of it, is taken out of a file."""

    BLANK = "blank"
    NUL = "nul"
    TORN = "torn"
    NOT_UTF8 = "not_utf8"
    NOT_FINITE = "not_finite"
    NOT_JSON = "not_json"
    NOT_OBJECT = "not_object"
    NO_IDENTITY = "no_identity"
    PADDING = "padding"
    INVALID_JUDGE = "invalid_judge"
    NOT_OWED = "not_owed"
    DUPLICATE = "duplicate"
    SUPERSEDED = "superseded"


class Verdict(NamedTuple):
    """`row` is the decoded record if `reason` is None; then it stands at `line[start:end]`, without white space.

    `start` and `end` are bytes from the start of the line. What is in front or behind is white space, or else padding
    (NUL bytes, a byte order mark).
    """

    reason: Reason | None
    row: dict[str, Any] | None
    start: int
    end: int


def judge_line(line: bytes, *, ended: bool = True) -> Verdict:
    """Decide what one line is, with or without its newline; `ended` says whether the file has one there."""
    # Nearly every line is one record and its newline; it is not copied to look for white space around it.
    plain = line[:1] == b"{" and line[-2:] == b"}\n"
    text = line if plain else line.strip(WHITE)
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _judge_broken(line, line.strip(WHITE), ended)
    if plain:
        return Verdict(_reason(row), row, 0, len(line) - 1)
    start = len(line) - len(line.lstrip(WHITE))
    return Verdict(_reason(row), row, start, start + len(text))


class Plain(NamedTuple):
    """Records and their two indices."""

    rows: list[dict[str, Any]]
    tasks: list[int]
    rollouts: list[int]


def plain_records(lines: Sequence[bytes]) -> Plain | None:
    """The records of lines that are each one record with identity and its newline, nothing else; None if one is not.

    It says the same as `judge_line` of nearly every line, many of them at once.
    """
    if not stand_alone(lines):
        return None
    try:
        rows = list(map(orjson.loads, lines))
        tasks, rollouts = (list(map(itemgetter(key), rows)) for key in (TASK, ROLLOUT))
    except (orjson.JSONDecodeError, KeyError):
        return None
    return Plain(rows, tasks, rollouts) if indices_fit(tasks) and indices_fit(rollouts) else None


def stand_alone(lines: Sequence[bytes]) -> bool:
    """Whether there is nothing around an object and its newline in any of the lines, if they are JSON at all."""
    try:
        return all(set(map(at, lines)) == {byte} for at, byte in ENDS)
    except IndexError:
        return False


def indices_fit(values: Sequence[Any]) -> bool:
    """Whether there are values, all of them whole numbers that may be the index of a task or rollout."""
    return set(map(type, values)) == {int} and min(values) in INDICES and max(values) in INDICES


def padding(line: bytes, verdict: Verdict) -> list[tuple[int, bytes]]:
    """The parts of a good line around its record that are more than white space, each with its place in the line."""
    around = [(0, line[: verdict.start]), (verdict.end, line[verdict.end :])]
    return [(place, part) for place, part in around if part.strip(WHITE)]


def _reason(row: Any) -> Reason | None:
    if type(row) is not dict:
        return Reason.NOT_OBJECT
    task, rollout = row.get(TASK), row.get(ROLLOUT)
    if type(task) is int and type(rollout) is int and task in INDICES and rollout in INDICES:
        return None
    return Reason.NO_IDENTITY


def _judge_broken(line: bytes, text: bytes, ended: bool) -> Verdict:
    """A second look at a line that does not parse: a whole record may stand between padding."""
    bare = text.removeprefix(BOM).strip(WHITE + NUL)
    if not bare:
        return Verdict(Reason.NUL if text else Reason.BLANK, None, 0, 0)
    try:
        row = orjson.loads(bare)
    except orjson.JSONDecodeError:
        reason = _why_unreadable(bare)
        torn = not ended and reason is not Reason.NOT_FINITE
        return Verdict(Reason.TORN if torn else reason, None, 0, 0)
    start = line.find(bare)
    return Verdict(_reason(row), row, start, start + len(bare))


def _why_unreadable(text: bytes) -> Reason:
    try:
        json.loads(text.decode(), parse_constant=_constant, parse_float=_fraction)
    except UnicodeDecodeError:
        return Reason.NOT_UTF8
    except OverflowError:
        return Reason.NOT_FINITE
    except (ValueError, RecursionError):
        return Reason.NOT_JSON
    return Reason.NOT_JSON


def _constant(name: str) -> float:
    raise OverflowError(name)


def _fraction(text: str) -> float:
    if math.isinf(value := float(text)):
        raise OverflowError(text)
    return value
