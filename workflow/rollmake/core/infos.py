"""The numbers of every rollout as plain objects, for the `rollout_infos` of a task (NeMo Gym contract 5.1, step 6)."""

from typing import Any

import orjson
import polars as pl

from rollmake.core.columns import EXACT, field_names, usage_names
from rollmake.core.contract import REWARD, ROLLOUT, TASK
from rollmake.core.scores import FIELD, USAGE


def rollout_infos(measured: pl.DataFrame) -> list[dict[str, Any]]:
    """One object a line: the key, the reward whatever it was, and the numbers in usage and fields as they were stored.

    Where a field and usage have a name in common the field stands, but for `reward`.
    """
    names = ["rollout_id", TASK, ROLLOUT]
    columns = [
        measured.select(pl.format("{}:{}", "task", "rollout")).to_series().to_list(),
        measured["task"].to_list(),
        measured["rollout"].to_list(),
    ]
    fields, usage = field_names(measured), usage_names(measured)
    plain = [FIELD + name for name in fields if name != REWARD]
    wanted = [FIELD + REWARD, *(USAGE + name for name in usage), *plain]
    present = [name for name in wanted if name in measured.columns]
    names += [name.partition("/")[2] for name in present]
    columns += [stored(measured, name) for name in present]
    infos = dicts(names, columns, gaps=any(measured[name].null_count() for name in present))
    restore_unscored(measured, infos)
    return infos


def stored(frame: pl.DataFrame, name: str) -> list[Any]:
    """The values of a column as they were in the records; truth values as 0 and 1, but not rewards."""
    column = frame[name]
    if column.dtype == pl.Boolean and name != FIELD + REWARD:
        column = column.cast(pl.Int64)
    if EXACT + name not in frame.columns:
        return column.to_list()
    pairs = zip(column.to_list(), frame[EXACT + name].to_list(), strict=True)
    return [value if exact is None else orjson.loads(exact) for value, exact in pairs]


def restore_unscored(frame: pl.DataFrame, infos: list[dict[str, Any]]) -> None:
    """Say `reward: null` where the record said so, unless usage has a reward."""
    name = EXACT + FIELD + REWARD
    if name in frame.columns:
        for line in (frame[name] == "null").arg_true():
            infos[line].setdefault(REWARD, None)


def as_dicts(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """One dict a line, without the values that are null or not finite."""
    floats = [name for name, kind in frame.schema.items() if kind == pl.Float64]
    frame = frame.with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in floats)
    gaps = any(column.null_count() for column in frame.get_columns())
    return dicts(frame.columns, [column.to_list() for column in frame.get_columns()], gaps=gaps)


def dicts(names: list[str], columns: list[list[Any]], *, gaps: bool) -> list[dict[str, Any]]:
    """One dict a line from lists of values by name, without what is None in `gaps`. A later column of a name wins."""
    lines = zip(*columns, strict=True)
    if gaps:
        return [{name: value for name, value in zip(names, line, strict=True) if value is not None} for line in lines]
    return [dict(zip(names, line, strict=False)) for line in lines]
