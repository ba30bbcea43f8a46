"""The rollouts of a run -> its plan. Columns are arrays: a million rollouts take some 60 MB, whatever the size of rows."""

from array import array
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

import numpy as np
import orjson

from rollmake.core.contract import ROLLOUT, TASK
from rollmake.core.expand import Copies
from rollmake.core.plan import PLAN_VERSION, Plan, row_digest

STAMP = f',"{TASK}":%d,"{ROLLOUT}":'.encode()
ROW = ("task", "first", "count", "length", "server", "agent")
PACKED = Struct(f"{len(ROW)}q")
# What a line has beside its row and the digits of its two indices; the newline is not counted.
STAMP_LENGTH = len(STAMP) - len("%d")


class Columns(NamedTuple):
    """The columns of plan.parquet, in dispatch order; servers and agents are numbers into `names`, -1 for null."""

    task: np.ndarray
    rollout: np.ndarray
    shard: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    digest: np.ndarray  # two uint64 a line
    repeat: np.ndarray
    server: np.ndarray
    agent: np.ndarray


class Planner:
    """Takes the rollouts of a run as they are expanded, stamps their lines, and deals them to shards at the end."""

    def __init__(self, shards: int, environment: str) -> None:
        self.shards, self.environment = shards, environment
        self.names: dict[str, int] = {}
        # For each row the numbers in `ROW`.
        self.rows = array("q")
        self.digest = bytearray()

    def add(self, copies: Copies) -> bytes:
        """Note the rollouts of one row; their lines of the materialized file, each with its newline."""
        row, task, first, count, server, agent = copies
        names = self.names
        server_code = -1 if server is None else names.setdefault(server, len(names))
        agent_code = -1 if agent is None else names.setdefault(agent, len(names))
        self.rows.frombytes(PACKED.pack(task, first, count, len(row), server_code, agent_code))
        self.digest += row_digest(row, self.environment)
        # As a separator the head stands before each ending: one copy of a long row for each line, and no more.
        return (row[:-1] + STAMP % task).join(endings(first, count))

    def column(self, name: str) -> np.ndarray:
        """One number for each row."""
        return np.frombuffer(self.rows, dtype=np.int64).reshape(-1, len(ROW))[:, ROW.index(name)]

    def spread(self, name: str) -> np.ndarray:
        """The number of its row for each rollout."""
        return np.repeat(self.column(name), self.column("count"))

    def lengths(self) -> np.ndarray:
        """Bytes of each line without its newline, in the order in which `add` returned them."""
        return self.spread("length") + STAMP_LENGTH + digits(self.spread("task")) + digits(self.rollouts())

    def rollouts(self) -> np.ndarray:
        """The rollout index of each rollout."""
        counts = self.column("count")
        starts = np.cumsum(counts) - counts
        return np.arange(counts.sum(), dtype=np.int64) - np.repeat(starts - self.column("first"), counts)

    def interleaved(self) -> np.ndarray:
        """The positions of the rollouts in the order of their rollout index, and else as they came."""
        return np.argsort(self.rollouts(), kind="stable")

    def columns(self, order: np.ndarray | None) -> Columns:
        """The columns of the plan, with the rollouts in `order`; None leaves them as they came."""
        chosen = slice(None) if order is None else order
        length = self.lengths()[chosen]
        counts = self.column("count")
        digest = np.frombuffer(bytes(self.digest), dtype=np.uint64).reshape(-1, 2)
        return Columns(
            task=self.spread("task")[chosen],
            rollout=self.rollouts()[chosen],
            shard=np.repeat(self.dealt(), counts)[chosen],
            offset=np.cumsum(length + 1) - length - 1,
            length=length,
            digest=np.repeat(digest, counts, axis=0)[chosen],
            repeat=occurrence(np.repeat(numbered(digest), counts)[chosen]),
            server=self.spread("server")[chosen].astype(np.int32),
            agent=self.spread("agent")[chosen].astype(np.int32),
        )

    def dealt(self) -> np.ndarray:
        """The shard of each row: tasks are dealt round robin in the order of their first row."""
        _, first, inverse = np.unique(self.column("task"), return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        return (rank % self.shards)[inverse].astype(np.int32)

    def plan(self, columns: Columns) -> Plan:
        """plan.json for these columns."""
        content = blake2b(orjson.dumps(list(self.names)), digest_size=16)
        for column in (columns.task, columns.rollout, columns.shard, columns.digest, columns.server):
            content.update(np.ascontiguousarray(column).data)
        return Plan(
            version=PLAN_VERSION,
            shards=self.shards,
            # The rollouts of a task count up from 0.
            tasks=int(np.count_nonzero(columns.rollout == 0)),
            rollouts=len(columns.task),
            materialized_bytes=int((columns.length + 1).sum()),
            digest=content.hexdigest(),
            environment=self.environment,
        )


@lru_cache
def endings(first: int, count: int) -> tuple[bytes, ...]:
    """Nothing, then the end of each line from its last value on."""
    return b"", *(b"%d}\n" % rollout for rollout in range(first, first + count))


def digits(values: np.ndarray) -> np.ndarray:
    """How many characters each non-negative integer takes."""
    powers = 10 ** np.arange(1, 19, dtype=np.int64)
    return 1 + np.searchsorted(powers, values, side="right")


def numbered(digests: np.ndarray) -> np.ndarray:
    """A number for each digest (two uint64 a line), the same for equal ones, counting up where they first appear."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    fresh = np.ones(len(ordered), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.empty(len(ordered), dtype=np.int64)
    group[order] = np.cumsum(fresh) - 1
    # The sort is stable: the first of a group is the one that appears first.
    rank = np.empty(int(fresh.sum()), dtype=np.int64)
    rank[np.argsort(order[fresh])] = np.arange(len(rank))
    return rank[group]


def occurrence(numbers: np.ndarray) -> np.ndarray:
    """How many equal numbers stand before each."""
    # Fast because `numbered` leaves them nearly in order.
    order = np.argsort(numbers, kind="stable")
    ordered, positions = numbers[order], np.arange(len(numbers))
    starts = np.maximum.accumulate(np.where(np.diff(ordered, prepend=-1) != 0, positions, 0))
    result = np.empty(len(numbers), dtype=np.int32)
    result[order] = positions - starts
    return result
