"""Where collected rows belong after the plan changed: a row belongs to the content of its task row and its repeat.

Content is the digest in the plan, repeat how many rows of the same digest stand before it; neither depends on where the
row stands, on its indices or on the number of shards.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import orjson
import polars as pl

from rollmake.core.contract import ROLLOUT, TASK
from rollmake.core.nesting import decode, encode

CONTENT = ["digest", "repeat"]
KEY = ["task", "rollout"]
# Where a row goes: shard and key in the new plan, and its content; null where there is none.
TARGET = ["shard", "new_task", "new_rollout", "digest", "repeat"]


class SetAside(NamedTuple):
    """A row that fits no rollout of the plan, as it lies in superseded.jsonl."""

    digest: bytes
    repeat: int
    destination: str
    row: bytes


class _Wrapper(msgspec.Struct):
    digest: str
    repeat: int
    destination: str
    row: msgspec.Raw


_read_wrapper = msgspec.json.Decoder(_Wrapper).decode


def moves(old: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    """For each rollout of the old plan its content, and its shard and key in the new one, null if it has no place there.

    `old` and `new` have the columns task, rollout, shard, digest, repeat of plan.parquet; the result has task and
    rollout of the old plan and the columns of `TARGET`.
    """
    return old.select(*KEY, *CONTENT).join(places(new), on=CONTENT, how="left", maintain_order="left")


def places(new: pl.DataFrame) -> pl.DataFrame:
    """Shard and key of each content in a plan: the columns of `TARGET`."""
    return new.select(*CONTENT, "shard", new_task="task", new_rollout="rollout")


def targets(found: pl.DataFrame, placed: pl.DataFrame) -> Iterator[tuple]:
    """The place of each row found, in order: a tuple of the columns of `TARGET`, null where there is none.

    `found` has keys of the old plan and `placed` is what `moves` says, or `found` has contents and `placed` is `places`.
    """
    on = KEY if "task" in found.columns else CONTENT
    return found.join(placed, on=on, how="left", maintain_order="left").select(*TARGET).iter_rows()


def contents(rows: Iterable[SetAside]) -> pl.DataFrame:
    """Digest and repeat of rows that were set aside, in their order."""
    return pl.DataFrame(
        [(row.digest, row.repeat) for row in rows], schema={"digest": pl.Binary, "repeat": pl.Int32}, orient="row"
    )


def unchanged(moved: pl.DataFrame, old: pl.DataFrame) -> bool:
    """Whether every rollout of the old plan keeps its shard and its key, so that no journal has to be touched."""
    same = (
        (moved["shard"].eq_missing(old["shard"]))
        & (moved["new_task"].eq_missing(old["task"]))
        & (moved["new_rollout"].eq_missing(old["rollout"]))
    )
    return bool(same.all())


def restamped(line: bytes, task: int, rollout: int) -> bytes:
    """A collected row under its new key; a row whose key stays keeps its bytes."""
    row: dict[str, Any] = orjson.loads(line)
    if (row[TASK], row[ROLLOUT]) == (task, rollout):
        return line
    row[TASK], row[ROLLOUT] = task, rollout
    return encode(row)


def wrapped(aside: SetAside) -> bytes:
    """A line of superseded.jsonl, without its newline."""
    head = {"digest": aside.digest.hex(), "repeat": aside.repeat, "destination": aside.destination}
    return orjson.dumps(head)[:-1] + b',"row":' + aside.row + b"}"


def unwrapped(line: bytes) -> SetAside:
    """The row in a line of superseded.jsonl."""
    wrapper = decode(_read_wrapper, line)
    return SetAside(bytes.fromhex(wrapper.digest), wrapper.repeat, wrapper.destination, bytes(wrapper.row))
