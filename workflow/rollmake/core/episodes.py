"""Typed rows: a task in an envelope `{task_id: {taskset, task_id}, task_input}`, which is sent as an episode."""

import re
from typing import Any

from rollmake.core.contract import (
    ATTEMPT,
    CAPTURE,
    FAILURE_CLASS,
    FAILURE_MESSAGE,
    FAILURE_PARTIAL,
    FAILURE_STAGE,
    FAILURE_TERMINAL,
    PERF,
    ROLLOUT,
    ROLLOUT_ID,
    TASK,
    TASK_ID,
    TRAJECTORY,
)
from rollmake.core.errors import DataError, InputError

EPISODE_FAILED = "environment_server_failed"
# Keys of a record that are the framework's, so that a result must not bring them.
RESERVED = frozenset({TRAJECTORY, CAPTURE, PERF})

# A capture id; one that ends like an attempt (`-a2`) would be taken for another attempt's.
EPISODE_ID = re.compile(r"(?!.*-a[1-9][0-9]*\Z)[A-Za-z0-9][A-Za-z0-9._-]*\Z")


def taskset_of(row: dict) -> str | None:
    """The taskset of a typed row; None for a flat one (NeMo Gym contract 2.1, step 4)."""
    identity = row.get("task_id")
    if not isinstance(identity, dict) or "task_input" not in row:
        return None
    taskset = identity.get("taskset")
    return taskset if isinstance(taskset, str) and taskset else None


def episode_request(row: dict) -> dict:
    """The body of `POST /run` for a typed row (NeMo Gym contract 4.4).

    Raises InputError naming `_ng_rollout_id` or `_ng_attempt_index` if the server would refuse it.
    """
    rollout_id = row.get(ROLLOUT_ID)
    rollout_id = f"{row.get(TASK)}-{row.get(ROLLOUT)}" if rollout_id is None else rollout_id
    if not isinstance(rollout_id, str) or not EPISODE_ID.match(rollout_id):
        remedy = (
            "Use letters, digits, `.`, `_` and `-`, start with a letter or digit, and do not end in `-a` and a number"
        )
        raise InputError(f"{ROLLOUT_ID} {rollout_id!r} cannot name an episode", remedy=remedy)
    attempt = row.get(ATTEMPT, 0)
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 0:
        raise InputError(f"{ATTEMPT} is {attempt!r}, not a number of attempts", remedy="Leave it out of the input")
    task = {key: row[key] for key in ("task_id", "task_input")}
    return {"episode_id": {"rollout_id": rollout_id, "attempt": attempt}, "task": task}


def is_episode_reply(reply: dict[str, Any]) -> bool:
    """Whether the reply to a typed row is an episode's; anything else is stored like the reply to a flat row."""
    identified = isinstance(reply.get("episode_id"), dict) and isinstance(reply.get("task_id"), dict)
    return identified and (reply.get("result") is not None or reply.get("failure") is not None)


def episode_record(reply: dict[str, Any]) -> dict[str, Any]:
    """The record of an episode's reply, without stamps (NeMo Gym contract 4.4).

    Raises DataError, naming what was found, if the reply cannot be used.
    """
    task_id, result, failure = reply["task_id"], reply.get("result"), reply.get("failure")
    where = f"the reply to the episode of {task_id}"
    if result is not None and failure is not None:
        raise DataError("it has a result and a failure, not one of the two", where=where)
    content = failure if result is None else result
    if not isinstance(content, dict):
        kind = "failure" if result is None else "result"
        raise DataError(f"its {kind} is {content!r}, not an object", where=where)
    if result is None:
        return {TASK_ID: task_id, **_failure(content)}
    reserved = sorted(key for key in result if key.startswith("_ng_") or key in RESERVED)
    if reserved:
        raise DataError(f"its result holds keys of the framework: {', '.join(reserved)}", where=where)
    return {**result, TASK_ID: task_id}


def _failure(failure: dict[str, Any]) -> dict[str, Any]:
    """The sidecar's fields of an episode's failure."""
    row = {
        FAILURE_CLASS: EPISODE_FAILED,
        FAILURE_TERMINAL: bool(failure.get("terminal")),
        FAILURE_MESSAGE: failure.get("failure_reason"),
    }
    optional = {FAILURE_STAGE: failure.get("stage"), FAILURE_PARTIAL: failure.get("partial_response")}
    return row | {key: value for key, value in optional.items() if value is not None}
