"""The index of one file of a shard: where its records are, what is broken, what stays and in which order."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Any

import numpy as np

from rollmake.core.columns import Table
from rollmake.core.contract import ATTEMPT, FAILURE_CLASS, ROLLOUT, TASK, P, failures_path, materialized_path
from rollmake.core.lines import Reason, Verdict, judge_line, padding, plain_records

REASONS = tuple(Reason)
CODES = {reason: code for code, reason in enumerate(REASONS, 1)}
# Columns of `Scan.rows`, one line per record: `rank` orders the records of one key; bytes from the start of the file.
ROW = ("task", "rollout", "rank", "line", "offset", "length")
TASK_COLUMN, ROLLOUT_COLUMN, RANK, LINE, OFFSET, LENGTH = range(len(ROW))
# Columns of `Scan.removed`, one line per part taken out, in the order of the file; code 1 is the first of REASONS.
REMOVED = ("line", "offset", "length", "code")
ATTEMPTS = range(2**31)


class Kind(StrEnum):
    """The three files of a shard."""

    ROLLOUTS = "rollouts"
    FAILURES = "failures"
    MATERIALIZED = "materialized_inputs"


def kind_of(file: PurePath) -> Kind:
    """The kind of a file by its name (NeMo Gym contract, section 1)."""
    return next((kind for kind in (Kind.FAILURES, Kind.MATERIALIZED) if file.stem.endswith(f"_{kind}")), Kind.ROLLOUTS)


def files_of(rollouts: P) -> dict[Kind, P]:
    """The three files of a shard, given the path of the first."""
    return {
        Kind.ROLLOUTS: rollouts,
        Kind.FAILURES: failures_path(rollouts),
        Kind.MATERIALIZED: materialized_path(rollouts),
    }


class Change(StrEnum):
    """What is different about a kept line."""

    WHITE_SPACE = "white_space"
    NO_NEWLINE = "no_newline"


class Scan:
    """The index of one file: 49 bytes a record and 32 a part taken out, whatever the records weigh."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.lines = self.size = 0
        self.changes: Counter[Change] = Counter()
        self._rows, self._codes, self._broken = array("q"), array("B"), array("q")

    def take(self, line: bytes) -> dict[str, Any] | None:
        """Enter the next line of the file, newline included; its record if there is one with identity."""
        ended = line.endswith(b"\n")
        verdict = judge_line(line, ended=ended)
        self.lines += 1
        place, self.size = self.size, self.size + len(line)
        if verdict.reason is not None:
            self._break(place, len(line) - ended, verdict.reason)
            return None
        row, length = verdict.row, verdict.end - verdict.start
        cells = (row[TASK], row[ROLLOUT], self._rank(row), self.lines, place + verdict.start, length)
        self._rows.extend(cells)
        self._codes.append(0)
        if length + ended != len(line) or not ended:
            self._note_changes(line, verdict, place, ended)
        return row

    def take_many(self, lines: Sequence[bytes]) -> list[dict[str, Any]]:
        """Enter the next lines of the file, newlines included; the records with identity among them."""
        plain = plain_records(lines)
        if plain is None:
            return [row for line in lines if (row := self.take(line)) is not None]
        self.enter(lines, plain.tasks, plain.rollouts, self._ranks(plain.rows))
        return plain.rows

    def take_table(self, lines: Sequence[bytes], table: Table) -> None:
        """Enter the next lines of a rollouts file, which `table` has the records of, each a plain line."""
        classes = table.found.get(FAILURE_CLASS)
        ranks = 1 if classes is None else [value is None for value in classes]
        self.enter(lines, table.found[TASK], table.found[ROLLOUT], ranks)

    def enter(
        self, lines: Sequence[bytes], tasks: Sequence[int], rollouts: Sequence[int], ranks: Sequence[int] | int
    ) -> None:
        """Enter the next lines of the file, each one record and its newline, whose keys and ranks are known."""
        sizes = np.fromiter(map(len, lines), np.int64, len(lines))
        ends = np.cumsum(sizes)
        cells = np.empty((len(lines), len(ROW)), dtype=np.int64)
        cells[:, TASK_COLUMN], cells[:, ROLLOUT_COLUMN] = tasks, rollouts
        cells[:, RANK] = ranks
        cells[:, LINE] = np.arange(self.lines + 1, self.lines + 1 + len(lines))
        cells[:, OFFSET] = self.size + ends - sizes
        cells[:, LENGTH] = sizes - 1
        self._rows.frombytes(cells.tobytes())
        self._codes.frombytes(bytes(len(lines)))
        self.lines, self.size = self.lines + len(lines), self.size + int(ends[-1])

    def take_out(self, reason: Reason, record: int = -1) -> None:
        """Take a record out again, by its place among those that were entered: without one the last."""
        self._codes[record] = CODES[reason]

    @property
    def rows(self) -> np.ndarray:
        """Int64 [records, ROW], a view."""
        return np.frombuffer(self._rows, dtype=np.int64).reshape(-1, len(ROW))

    @property
    def codes(self) -> np.ndarray:
        """Uint8 [records], a view to write to: 0 for a record that stays, else the code of the reason."""
        return np.frombuffer(self._codes, dtype=np.uint8)

    @property
    def removed(self) -> np.ndarray:
        """Int64 [parts, REMOVED]: everything that is taken out, in the order of the file."""
        out = np.flatnonzero(self.codes)
        records = np.column_stack([self.rows[out][:, [LINE, OFFSET, LENGTH]], self.codes[out].astype(np.int64)])
        parts = np.concatenate([np.frombuffer(self._broken, dtype=np.int64).reshape(-1, len(REMOVED)), records])
        return parts[np.argsort(parts[:, 1], kind="stable")]

    def removed_by_reason(self) -> Counter[Reason]:
        """How many parts are taken out for each reason."""
        codes, counts = np.unique(self.removed[:, 3], return_counts=True)
        return Counter({REASONS[code - 1]: int(count) for code, count in zip(codes, counts, strict=True)})

    def order(self) -> np.ndarray:
        """Int64: the records that stay, by (task, rollout), then rank, then their place in the file."""
        rows = self.rows
        order = np.lexsort((rows[:, RANK], rows[:, ROLLOUT_COLUMN], rows[:, TASK_COLUMN]))
        return order[self.codes[order] == 0]

    def _rank(self, row: Mapping[str, Any]) -> int:
        if self.kind is Kind.ROLLOUTS:
            return int(row.get(FAILURE_CLASS) is None)
        attempt = row.get(ATTEMPT)
        return attempt if self.kind is Kind.FAILURES and type(attempt) is int and attempt in ATTEMPTS else 0

    def _ranks(self, rows: Sequence[Mapping[str, Any]]) -> list[int] | int:
        if self.kind is Kind.ROLLOUTS:
            return [row.get(FAILURE_CLASS) is None for row in rows]
        return list(map(self._rank, rows)) if self.kind is Kind.FAILURES else 0

    def _break(self, offset: int, length: int, reason: Reason) -> None:
        self._broken.extend((self.lines, offset, length, CODES[reason]))

    def _note_changes(self, line: bytes, verdict: Verdict, place: int, ended: bool) -> None:
        for start, part in padding(line.removesuffix(b"\n"), verdict):
            self._break(place + start, len(part), Reason.PADDING)
        self.changes[Change.WHITE_SPACE] += verdict.start > 0 or verdict.end + ended != len(line)
        self.changes[Change.NO_NEWLINE] += not ended


def sorted_ranges(scans: Sequence[Scan]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three Int64 [records]: source, offset and length of what stays of several files of one kind, as one sorted file.

    Sorted by (task, rollout), then rank, then source (the place in `scans`), then place in the file.
    """
    sizes = [len(scan.codes) for scan in scans]
    columns = [
        np.concatenate([scan.rows[:, column] for scan in scans]) for column in (RANK, ROLLOUT_COLUMN, TASK_COLUMN)
    ]
    order = np.lexsort(columns)
    del columns
    order = order[np.concatenate([scan.codes for scan in scans])[order] == 0]
    source = np.repeat(np.arange(len(scans)), sizes)[order]
    offset, length = (np.concatenate([scan.rows[:, column] for scan in scans])[order] for column in (OFFSET, LENGTH))
    return source, offset, length
