"""What an environment server scores: stored records, counted failures and imputed zeros (NeMo Gym contract 5.6)."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Generic, TypeVar

import polars as pl

from rollmake.core import contract as c
from rollmake.core.columns import is_number
from rollmake.core.coverage import KEY, State, states
from rollmake.core.settlement import is_terminal

Record = dict[str, Any]
Key = tuple[str | None, int, int]
Item = TypeVar("Item")

FAILURE_DETAILS = "_ng_failure_"
VERDICT_DETAILS = ("failure_kind", "failure_reason")
NEVER_FILLED = (c.PARAMS, c.RESPONSE)
# Never sent for scoring (contract 4.5); of the response, two members come back.
HEAVY = (c.RESPONSE, c.PARAMS, c.OBSERVATIONS, c.CAPTURE, c.TRAJECTORY)
RESPONSE_KEPT = ("usage", "incomplete_details")
STORED = {"server": pl.String, "task": pl.Int64, "rollout": pl.Int64, "masked": pl.Boolean, "numeric": pl.Boolean}
FAILED = {
    **{name: STORED[name] for name in KEY},
    "failure_class": pl.String,
    "numeric": pl.Boolean,
    "attempts": pl.Int64,
    "terminal": pl.Boolean,
}


class Outcomes:
    """What became of every rollout of a run, and the records that stand for those that count without a result.

    Call `add_failure` for every record of the sidecars, then `settle`, then `impute` with the materialized row of every
    rollout in `waiting`, then `impute_rest`. `fields` are the names on stored records, by environment server.
    """

    def __init__(
        self, *, count_classes: Collection[str], count_missing: bool, retry_terminal_timeouts: bool = False
    ) -> None:
        self.count_classes, self.count_missing = frozenset(count_classes), count_missing
        self._retry_timeouts = retry_terminal_timeouts
        # Failed rollouts of a class that counts, then after `settle` also missing ones (None), until they are imputed.
        self.waiting: dict[Key, Record | None] = {}
        self.fields: dict[str | None, set[str]] = {}
        self._failures: dict[Key, tuple[Any, ...]] = {}

    def add_failure(self, server: str | None, record: Record) -> None:
        """A record of the sidecar, in the order of the file: the last of a rollout stands."""
        key, name = key_of(server, record), failure_class(record)
        *_, attempts, terminal = self._failures.get(key, (0, False))
        terminal = terminal or is_terminal(record, self._retry_timeouts)
        self._failures[key] = (*key, name, is_number(record.get(c.REWARD, 0.0)), attempts + 1, terminal)
        self.waiting.pop(key, None)
        if name in self.count_classes and server is not None:
            self.waiting[key] = record

    def settle(self, owed: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
        """What became of every rollout, as `coverage.states` says of `owed`, `stored` and the failures."""
        failures = pl.DataFrame(list(self._failures.values()), schema=FAILED, orient="row")
        count = {"count_classes": self.count_classes, "count_missing": self.count_missing}
        found = states(owed, stored, failures, **count)
        unfailed = pl.col("failure_class").is_null()
        for key in found.filter("stored", ~unfailed).select(KEY).iter_rows():
            self.waiting.pop(key, None)
        missing = found.filter(pl.col("state") == State.IMPUTED, unfailed).select(KEY)
        self.waiting.update(dict.fromkeys(missing.iter_rows()))
        return found

    def impute(self, server: str | None, row: Record) -> Record | None:
        """What stands for the rollout of a materialized row, if it waits for one."""
        key = key_of(server, row)
        if key not in self.waiting:
            return None
        return imputed(self.waiting.pop(key), row, self.fields.get(server, set()))

    def impute_rest(self) -> Iterator[tuple[str | None, Record]]:
        """Each server and what stands for a rollout that still waits, without fields from its materialized row."""
        for server, task, rollout in list(self.waiting):
            record = self.impute(server, {c.TASK: task, c.ROLLOUT: rollout})
            if record is not None:
                yield server, record


class Scoring(Generic[Item]):
    """Takes all records of a run, by environment server, and gives back what each server scores.

    Call `add_rollout` for every record of the rollouts and `outcomes.add_failure` for every one of the sidecars, then
    `settle`, then `impute` for the rollouts in `outcomes.waiting`, then `items`. Of a stored record only what `keep`
    makes of it is held.
    """

    def __init__(self, keep: Callable[[Record], Item], *, count_classes: Collection[str], count_missing: bool) -> None:
        self.keep = keep
        self.outcomes = Outcomes(count_classes=count_classes, count_missing=count_missing)
        self._items: dict[str, list[tuple[int, int, Item]]] = {}
        self._stored: dict[str, list[Any]] = {name: [] for name in STORED}

    def add_rollout(self, server: str | None, record: Record) -> None:
        """A record of the rollouts file; without a server it is taken notice of, and nobody scores it."""
        self.outcomes.fields.setdefault(server, set()).update(record)
        facts = (*key_of(server, record), bool(record.get(c.MASK)), is_number(record.get(c.REWARD)))
        for column, fact in zip(self._stored.values(), facts, strict=True):
            column.append(fact)
        if server is not None:
            self._add(server, record)

    def settle(self, owed: pl.DataFrame) -> pl.DataFrame:
        """What became of every rollout, as `coverage.states` says; `owed` has server, task, rollout and agent."""
        return self.outcomes.settle(owed, pl.DataFrame(self._stored, schema=STORED))

    def impute(self, server: str | None, row: Record) -> None:
        """The materialized row of a rollout: if it waits for one, it is added to what its server scores."""
        if (record := self.outcomes.impute(server, row)) is not None:
            self._add(server, record)

    def items(self) -> Iterator[tuple[str, list[Item]]]:
        """Each server with what it scores, by (task, rollout); servers in the order in which their first record came.

        What still waits is added without fields from its materialized row.
        """
        for server, record in self.outcomes.impute_rest():
            self._add(server, record)
        for server, found in self._items.items():
            found.sort(key=lambda item: item[:2])
            yield server, [item for _, _, item in found]

    def _add(self, server: str, record: Record) -> None:
        _, task, rollout = key_of(server, record)
        self._items.setdefault(server, []).append((task, rollout, self.keep(record)))


def key_of(server: str | None, record: Record) -> Key:
    """What identifies a rollout among all servers."""
    return server, record[c.TASK], record[c.ROLLOUT]


def failure_class(record: Record) -> str | None:
    """The class of a sidecar row, as text."""
    name = record.get(c.FAILURE_CLASS)
    return name if name is None or isinstance(name, str) else str(name)


def imputed(failure: Record | None, row: Record, fields: Collection[str]) -> Record:
    """The record that stands for a rollout without a result: its counted `failure`, or a zero.

    It gets from its materialized `row` every one of the `fields` that stored records of its server have.
    """
    if failure is None:
        record = {c.TASK: row[c.TASK], c.ROLLOUT: row[c.ROLLOUT], c.AGENT_REF: row.get(c.AGENT_REF), c.REWARD: 0.0}
        record |= {c.SERVER: row[c.SERVER]} if c.SERVER in row else {}
    else:
        details = [name for name in failure if name.startswith(FAILURE_DETAILS) or name in VERDICT_DETAILS]
        record = {name: value for name, value in failure.items() if name not in details} | {c.MASK: False}
        record.setdefault(c.REWARD, 0.0)
    fillable = {
        name: row[name] for name in row if name in fields and not name.startswith("_") and name not in NEVER_FILLED
    }
    return fillable | record


def stripped(record: Record) -> Record:
    """What of a record is sent for scoring (NeMo Gym contract 4.5)."""
    found = {name: value for name, value in record.items() if name not in HEAVY}
    response = record.get(c.RESPONSE)
    kept = {name: response[name] for name in RESPONSE_KEPT if name in response} if isinstance(response, dict) else {}
    return found | ({c.RESPONSE: kept} if kept else {})
