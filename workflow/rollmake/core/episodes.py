"""Typed rows: a task in an envelope `{task_id: {taskset, task_id}, task_input}`, which is sent as an episode."""

import re

from rollmake.core.contract import ATTEMPT, ROLLOUT, ROLLOUT_ID, TASK
from rollmake.core.errors import InputError

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
