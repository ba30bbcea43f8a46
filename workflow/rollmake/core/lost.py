"""Lines that repair took out and that may have been a rollout, and what can still be read of them."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from rollmake.core.contract import AGENT_REF, ROLLOUT, SERVER, TASK
from rollmake.core.lines import INDICES, Reason

# What is taken out for another reason than these is no record, or its key has another record.
LOST = frozenset(
    {
        Reason.NUL,
        Reason.TORN,
        Reason.NOT_UTF8,
        Reason.NOT_FINITE,
        Reason.NOT_JSON,
        Reason.NOT_OBJECT,
        Reason.NO_IDENTITY,
    }
)
AROUND = "\ufeff\0 \t\r\n\v\f"
SPACE, COLON, DELIMITER = re.compile(r"\s*"), re.compile(r"\s*:\s*"), re.compile(r"\s*([,}])\s*")
DECODER = json.JSONDecoder()
# A row as of a plan: task, rollout, environment server, agent.
Row = tuple[int, int, str | None, str | None]


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that a run lost: `by_reason` those of its rollouts files.

    `unreadable` are lines, by the shard that they were taken out of, that may each be a rollout which nothing else says
    to be owed.
    """

    by_reason: dict[str, int] = {}
    unreadable: dict[str, int] = {}


NOTHING_LOST = Lost()


def lost_by_reason(repairs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many lines the rollouts files lost, by reason, from the repair.json of each shard."""
    counts: Counter[str] = Counter()
    for content in repairs:
        removed = content["files"][PurePath(content["source"]).name]["removed"]
        counts.update({reason: count for reason, count in removed.items() if reason in LOST})
    return dict(sorted(counts.items()))


def says_what_is_owed(repair: Mapping[str, Any]) -> bool:
    """Whether materialized inputs say what a shard owes, by its repair.json; else only its rows tell."""
    return bool(repair["keys"]["owed"])


def lost_row(part: bytes) -> Row | None:
    """What a line says that was taken out; None if its key cannot be told.

    Members count as far as they can be read, so that a number which is none or a torn end hides no key before it. A line
    whose rest cannot be read and names a second key may be two records, of which one would go unnoticed.
    """
    text = part.decode(errors="replace").strip(AROUND)
    members, whole = _members(text)
    task, rollout = members.get(TASK), members.get(ROLLOUT)
    if not (_is_index(task) and _is_index(rollout)) or (not whole and text.count(f'"{TASK}"') > 1):
        return None
    reference = members.get(AGENT_REF)
    agent = reference.get("name") if isinstance(reference, dict) else None
    return task, rollout, _name(members.get(SERVER)), _name(agent)


def _is_index(value: Any) -> bool:
    return type(value) is int and value in INDICES


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _members(text: str) -> tuple[dict[str, Any], bool]:
    """The members of an object that can be read from its start, and whether they are all of the text.

    A member counts only if what ends it is there, since a torn number is another one.
    """
    found: dict[str, Any] = {}
    place = SPACE.match(text, 1).end() if text.startswith("{") else len(text)
    try:
        while place < len(text):
            name, place = DECODER.raw_decode(text, place)
            place = COLON.match(text, place).end()
            value, place = DECODER.raw_decode(text, place)
            delimiter = DELIMITER.match(text, place)
            place = delimiter.end()
            found[name] = value
            if delimiter[1] == "}":
                return found, place == len(text)
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass
    return found, False
