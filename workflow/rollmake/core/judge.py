"""Rows whose judge gave no valid verdict move from the rollouts to the sidecar (NeMo Gym contract, section 3.2)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rollmake.core.contract import (
    ATTEMPT,
    FAILURE_CLASS,
    FAILURE_TERMINAL,
    INVALID_JUDGE,
    MIGRATED,
    REUSE,
    ROLLOUT,
    TASK,
)

JUDGE_INVALID = "judge_invalid"
DELIVERABLES = "deliverables_dir"
STAGE = "stage_index"
# Files that stand in a folder of deliverables whether or not something was delivered.
NO_DELIVERABLES = frozenset(
    {
        "finish_params.json",
        "history.json",
        "history.pkl",
        "inprogress_history.json",
        "metadata.json",
        "log.txt",
        "reference_files",
    }
)
Row = Mapping[str, Any]


def must_move(rollout: Row) -> bool:
    """Whether the judge of a row of the rollouts file gave no valid verdict."""
    return bool(rollout.get(INVALID_JUDGE))


class JudgeMigration:
    """Decides row by row what moves; it remembers the identity of moved rows, never their content."""

    def __init__(self, has_deliverable: Callable[[str], bool]) -> None:
        """`has_deliverable` says of a folder's name whether a file that can be judged again lies in it."""
        self._has_deliverable = has_deliverable
        self._moved: set[tuple[Any, ...]] = set()

    def note(self, failure: Row) -> None:
        """Take notice of a row that is in the sidecar already: what was moved before is not moved again."""
        if failure.get(MIGRATED):
            self._moved.add(_identity(failure))

    def move(self, rollout: Row) -> dict[str, Any] | None:
        """What the sidecar gains when a row that must move leaves the rollouts; None if it was moved there before."""
        identity = _identity(rollout)
        if identity in self._moved:
            return None
        self._moved.add(identity)
        failure = {key: value for key, value in rollout.items() if key != FAILURE_TERMINAL}
        failure[FAILURE_CLASS] = rollout.get(FAILURE_CLASS) or JUDGE_INVALID
        folder = rollout.get(DELIVERABLES)
        failure.pop(REUSE, None)
        if isinstance(folder, str) and folder and self._has_deliverable(folder):
            failure[REUSE] = True
        return failure | {MIGRATED: True}


def migrate_invalid_judges(
    rollouts: Iterable[Row], failures: Iterable[Row], has_deliverable: Callable[[str], bool]
) -> tuple[list[Row], list[dict[str, Any]]]:
    """The rollouts that stay, in order, and the rows that the sidecar gains. Nothing is changed in place."""
    migration = JudgeMigration(has_deliverable)
    for failure in failures:
        migration.note(failure)
    stay, gained = [], []
    for rollout in rollouts:
        if not must_move(rollout):
            stay.append(rollout)
        elif failure := migration.move(rollout):
            gained.append(failure)
    return stay, gained


def _identity(row: Row) -> tuple[Any, ...]:
    values = (row.get(STAGE) or 0, row.get(TASK), row.get(ROLLOUT), row.get(ATTEMPT) or 0)
    return tuple(repr(value) for value in values)
