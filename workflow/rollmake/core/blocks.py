"""The frame of `core/scores.py`, built from records one at a time without holding on to them."""

from collections.abc import Collection, Mapping
from typing import Any

import orjson
import polars as pl

from rollmake.core.columns import EXACT, frame_of
from rollmake.core.contract import AGENT_REF, ATTEMPT, PERF, RESPONSE, REWARD, SERVER
from rollmake.core.scores import FIELD, JSON

BLOCK = 4096
NUMBERS = frozenset({bool, int, float})
ALWAYS = frozenset({SERVER, AGENT_REF, REWARD})
ATTEMPTS = range(2**31)
WIDTH = {pl.Boolean: 0, pl.Int64: 1, pl.Float64: 2}


class ScoreBlocks:
    """Collects the scalars of records with identity; it holds eight bytes a number and the scalars of one block."""

    def __init__(self, texts: Collection[str] = ()) -> None:
        """`texts` are fields that are taken in whatever they hold, as JSON."""
        self._texts: dict[str, list[str | None]] = {name: [] for name in texts}
        self._block: list[dict[str, Any]] = []
        self._frames: list[pl.DataFrame] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """Take notice of one record."""
        self._block.append(scalars(row))
        for name, values in self._texts.items():
            value = row.get(name)
            values.append(None if value is None else orjson.dumps(value).decode())
        if len(self._block) == BLOCK:
            self._close_block()

    def frame(self) -> pl.DataFrame:
        """All records so far, one line each in the order of `add`; none are left here."""
        if self._block or not self._frames:
            self._close_block()
        frames, self._frames = self._frames, []
        return stack(frames)

    def _close_block(self) -> None:
        texts = [pl.Series(JSON + name, values, dtype=pl.String) for name, values in self._texts.items()]
        self._frames.append(frame_of(self._block).with_columns(texts))
        self._block, self._texts = [], {name: [] for name in self._texts}


def scalars(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that `frame_of` reads, without anything that it refuses."""
    slim = {key: value for key, value in row.items() if type(value) in NUMBERS or key in ALWAYS}
    if ATTEMPT in slim and (type(slim[ATTEMPT]) is not int or slim[ATTEMPT] not in ATTEMPTS):
        del slim[ATTEMPT]
    response, perf = row.get(RESPONSE), row.get(PERF)
    slim.pop(RESPONSE, None)
    if type(response) is dict and type(response.get("usage")) is dict:
        slim[RESPONSE] = {"usage": _numbers(response["usage"])}
    if type(perf) is dict:
        slim[PERF] = _numbers(perf)
    return slim


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if type(value) in NUMBERS}


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
