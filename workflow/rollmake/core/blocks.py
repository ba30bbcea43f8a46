"""The frame of `core/scores.py`, built from records one at a time without holding on to them."""

from collections.abc import Collection, Mapping
from typing import Any

import orjson
import polars as pl

from rollmake.core.columns import EXACT, NOTHING, Lists, Table, frame_from, joined, lists_of, table_of
from rollmake.core.contract import ATTEMPT, RESPONSE, REWARD, ROLLOUT, TASK
from rollmake.core.scores import FIELD, JSON

BLOCK = 1 << 14
ATTEMPTS = range(2**31)
WIDTH = {pl.Boolean: 0, pl.Int64: 1, pl.Float64: 2}


class ScoreBlocks:
    """Collects the scalars of records with identity; it holds eight bytes a number and the scalars of one block."""

    def __init__(self, texts: Collection[str] = ()) -> None:
        """`texts` are fields that are taken in whatever they hold, as JSON."""
        self.texts = list(dict.fromkeys(texts))
        self._lists: list[Lists] = []
        self._held = 0
        self._frames: list[pl.DataFrame] = []

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Take notice of some records."""
        self.add_table(loose_table(rows))

    def add_table(self, table: Table) -> None:
        """Take notice of the records of a table, which has all members that are taken in whatever they hold."""
        lists, size = scalars(table), len(table.rewards)
        for name in self.texts:
            lists.fixed[JSON + name] = list(map(as_json, table.found.get(name, [None] * size)))
        self._lists.append(lists)
        self._held += size
        if self._held >= BLOCK:
            self._close_block()

    def frame(self) -> pl.DataFrame:
        """All records so far, one line each in the order of `add`; none are left here."""
        if not self._held and not self._frames:
            self.add([])
        if self._lists:
            self._close_block()
        frames, self._frames = self._frames, []
        return stack(frames)

    def _close_block(self) -> None:
        lists = joined(self._lists)
        texts = [pl.Series(JSON + name, lists.fixed[JSON + name], dtype=pl.String) for name in self.texts]
        self._frames.append(frame_from(lists).with_columns(texts))
        self._lists, self._held = [], 0


def loose_table(rows: list[dict[str, Any]]) -> Table:
    """The table of records with identity; a response or usage that `frame_of` refuses counts as none."""
    responses = [row.get(RESPONSE) for row in rows]
    usage = [one.get("usage") if type(one) is dict else None for one in responses]
    return table_of(rows, [one if type(one) is dict else NOTHING for one in usage])


def scalars(table: Table) -> Lists:
    """What is read of records with identity; an attempt that is none counts as the first."""
    found, size = table.found, len(table.rewards)
    attempts = [value if type(value) is int and value in ATTEMPTS else 0 for value in found.get(ATTEMPT, [0] * size)]
    return lists_of(table, {"task": found.get(TASK, []), "rollout": found.get(ROLLOUT, []), "attempt": attempts})


def as_json(value: Any) -> str | None:
    """A value as JSON, None for null."""
    return None if value is None else orjson.dumps(value).decode()


def stack(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """One frame below the other; each column gets the type that holds all, and `exact/` what that cannot give back."""
    widest: dict[str, pl.DataType] = {}
    for frame in frames:
        for name, dtype in frame.schema.items():
            wider = dtype in WIDTH and WIDTH[dtype] > WIDTH.get(widest.get(name), -1)
            if wider and frame[name].null_count() < frame.height:
                widest[name] = dtype
    return pl.concat([_widen(frame, widest) for frame in frames], how="diagonal")


def _widen(frame: pl.DataFrame, widest: Mapping[str, pl.DataType]) -> pl.DataFrame:
    narrow = [name for name, dtype in widest.items() if frame.schema.get(name, dtype) != dtype]
    exact = [_exact(frame, name) for name in narrow if widest[name] == pl.Float64 or name == FIELD + REWARD]
    return frame.with_columns(*exact).with_columns(pl.col(name).cast(widest[name]) for name in narrow)


def _exact(frame: pl.DataFrame, name: str) -> pl.Expr:
    """The JSON of what `name` holds, where it is not given already: only a reward stays a truth value."""
    value = pl.col(name) if name == FIELD + REWARD else pl.col(name).cast(pl.Int64)
    known = [pl.col(EXACT + name)] if EXACT + name in frame.columns else []
    return pl.coalesce(*known, value.cast(pl.String)).alias(EXACT + name)
