"""Records of rollouts -> the frame of `core/scores.py`: every number in them, one line a record."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import polars as pl

from rollmake.core.contract import AGENT_REF, ATTEMPT, MASK, PERF, RESPONSE, REWARD, ROLLOUT, SERVER, TASK
from rollmake.core.errors import DataError
from rollmake.core.scores import FIELD, USAGE
from rollmake.core.scores import PERF as PERF_COLUMN

# A few things more than scores.py lists: `observed`, whether the record has an `ng_perf` at all, and a String column
# `exact/` + the name of another column, with the JSON of a value which that column cannot give back as it was: a whole
# number among fractions, a whole number beyond 64 bits, a reward that is no number. And, where a member of the usage
# that is no number has the name of a field, `hidden/` + that name, true where it takes the field's place.
EXACT, OBSERVED, HIDDEN = "exact/", "observed", "hidden/"
INT64 = range(-(2**63), 2**63)
DTYPES = {bool: pl.Boolean, int: pl.Int64, float: pl.Float64}
ABSENT = object()
NOTHING: dict[str, Any] = {}
NONE = type(None)
PLAIN = {*DTYPES, NONE}
Record = dict[str, Any]


class Table(NamedTuple):
    """Records: the values of each member, the rewards, ABSENT for none, and what their responses say of their usage.

    Members without a number in any record may lack.
    """

    found: Mapping[str, Sequence[Any]]
    rewards: Sequence[Any]
    usage: Sequence[Record]


class Lists(NamedTuple):
    """What is read of records, one value a record in each; by name for the numbers, None where there is none."""

    fixed: dict[str, Sequence[Any]]
    numbers: dict[str, Sequence[Any]]


def frame_of(rows: list[Record]) -> pl.DataFrame:
    """The frame of `core/scores.py` without `offset` and `length`, one line per record and in its order.

    Absent indices are 0. NaN counts as absent. Raises DataError for an index that is no whole number of 64 bits, and
    for a `response` or a `response.usage` that is neither empty nor an object.
    """
    keys = {"task": indices(rows, TASK), "rollout": indices(rows, ROLLOUT)}
    attempts = [row.get(ATTEMPT) or 0 for row in rows]
    return frame_from(lists_of(table_of(rows, usages(rows)), keys | {"attempt": attempts}))


def table_of(rows: list[Record], usage: Sequence[Record]) -> Table:
    """The table of some records whose usage is known."""
    return Table(transposed(rows), [row.get(REWARD, ABSENT) for row in rows], usage)


def lists_of(table: Table, keys: dict[str, Sequence[int]]) -> Lists:
    """What is read of records whose indices and attempts are known."""
    found, rewards, usage = table
    nothing = [None] * len(rewards)
    perf = [value if type(value) is dict else None for value in found.get(PERF, nothing)]
    references = found.get(AGENT_REF, nothing)
    fixed = {
        **keys,
        "server": found.get(SERVER, nothing),
        "agent": [reference.get("name") if type(reference) is dict else None for reference in references],
        "masked": list(map(bool, found.get(MASK, nothing))),
        OBSERVED: [value is not None for value in perf],
        REWARD: rewards,
    }
    fields = {name: values for name, values in found.items() if not name.startswith("_") and name != REWARD}
    members = transposed(usage)
    numbers = number_lists(FIELD, fields) | number_lists(USAGE, members)
    for name in [one for one in members if FIELD + one in numbers or one == REWARD]:
        hidden = [name in one and not is_number(one[name]) for one in usage]
        numbers |= {HIDDEN + name: hidden} if any(hidden) else {}
    return Lists(fixed, numbers | number_lists(PERF_COLUMN, transposed([value or {} for value in perf])))


def transposed(rows: Sequence[Record]) -> dict[str, Sequence[Any]]:
    """The values of each name in `rows`, one a record, None where a record has none."""
    names = tuple(rows[0]) if rows else ()
    if len(names) > 1 and set(map(len, rows)) == {len(names)}:
        # Nearly always all have the same names, which then need not be looked at in Python.
        with suppress(KeyError):
            return dict(zip(names, zip(*map(itemgetter(*names), rows), strict=True), strict=True))
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}


def joined(parts: list[Lists]) -> Lists:
    """The lists of several parts, one behind the other; what a part lacks is None there."""
    sizes = [len(part.fixed["task"]) for part in parts]
    names = dict.fromkeys(chain.from_iterable(part.numbers for part in parts))
    numbers = {
        name: list(
            chain.from_iterable(
                part.numbers.get(name) or [None] * size for part, size in zip(parts, sizes, strict=True)
            )
        )
        for name in names
    }
    fixed = {name: list(chain.from_iterable(part.fixed[name] for part in parts)) for name in parts[0].fixed}
    return Lists(fixed, numbers)


def frame_from(lists: Lists) -> pl.DataFrame:
    """The frame of what was read."""
    fixed, score = lists.fixed, reward_columns(lists.fixed[REWARD])
    known = {
        "task": pl.Series(fixed["task"], dtype=pl.Int64),
        "rollout": pl.Series(fixed["rollout"], dtype=pl.Int64),
        "attempt": pl.Series(fixed["attempt"], dtype=pl.Int32),
        "server": texts(fixed["server"]),
        "agent": texts(fixed["agent"]),
        "masked": pl.Series(fixed["masked"], dtype=pl.Boolean),
        OBSERVED: pl.Series(fixed[OBSERVED], dtype=pl.Boolean),
    }
    reward = score.get(FIELD + REWARD, pl.Series([None] * len(fixed["task"])))
    found = known | {"reward": reward.cast(pl.Float64)} | score
    for name, values in lists.numbers.items():
        found |= column(name, values)
    return pl.DataFrame(found)


def field_names(frame: pl.DataFrame) -> list[str]:
    """The names of the fields in a frame, in order. The flag that masks a rollout is none."""
    return [name.removeprefix(FIELD) for name in frame.columns if name.startswith(FIELD) and name != FIELD + MASK]


def usage_names(frame: pl.DataFrame) -> list[str]:
    """The names in `response.usage` that a frame has, in order."""
    return [name.removeprefix(USAGE) for name in frame.columns if name.startswith(USAGE)]


def indices(rows: list[Record], key: str) -> list[int]:
    """The index `key` of every record, 0 where it is absent."""
    values = [row.get(key, 0) for row in rows]
    if set(map(type, values)) <= {int} and fits(values):
        return values
    wrong = next(row for row, value in zip(rows, values, strict=True) if type(value) is not int or value not in INT64)
    raise DataError(
        f"{key} is {wrong[key]!r}",
        where=place(wrong),
        remedy="An index is a whole number; repair the file that holds it.",
    )


def usages(rows: list[Record]) -> list[Record]:
    """The member `usage` of every record's response, empty where there is none."""
    responses = [row.get(RESPONSE) or {} for row in rows]
    found = [(one.get("usage") or {}) if isinstance(one, dict) else one for one in responses]
    for row, usage in zip(rows, found, strict=True):
        if not isinstance(usage, dict):
            where = f"{place(row)}: response.usage"
            raise DataError(f"{usage!r:.60} cannot be read", where=where, remedy="Both must be objects or null.")
    return found


def place(row: Record) -> str:
    """How messages name a record."""
    return f"record of task {row.get(TASK)!r}, rollout {row.get(ROLLOUT)!r}"


def texts(values: Sequence[Any]) -> pl.Series:
    """The strings among `values`, null for anything else."""
    plain = set(map(type, values)) <= {str, NONE}
    return pl.Series(values if plain else [v if isinstance(v, str) else None for v in values], dtype=pl.String)


def is_number(value: object) -> bool:
    """Whether a value counts as a number or truth value: NaN does not."""
    kind = type(value)
    return kind is int or kind is bool or (kind is float and not math.isnan(value))


def number_lists(prefix: str, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The columns that have a number, with None for everything else in them."""
    found = {}
    for name, values in columns.items():
        kinds = set(map(type, values))
        if not kinds.isdisjoint(DTYPES):
            found[prefix + name] = values if kinds <= PLAIN else [v if type(v) in DTYPES else None for v in values]
    return found


def column(name: str, values: Sequence[Any]) -> dict[str, pl.Series]:
    """The column of one name, and its `exact/` column where that is needed; nothing if there is no number in it."""
    kinds = set(map(type, values)) - {NONE}
    if kinds.isdisjoint(DTYPES):
        return {}
    if kinds == {float}:
        return {name: pl.Series(values, dtype=pl.Float64).fill_nan(None)}
    if kinds == {bool} or (kinds == {int} and fits(values)):
        return {name: pl.Series(values, dtype=DTYPES[kinds.pop()])}
    numbers = [value if is_number(value) else None for value in values]
    if float not in set(map(type, numbers)) and fits(numbers):
        return {name: pl.Series([None if value is None else int(value) for value in numbers], dtype=pl.Int64)}
    exact = [str(int(value)) if isinstance(value, int) else None for value in numbers]
    floats = [None if value is None else float(value) for value in numbers]
    return {name: pl.Series(floats, dtype=pl.Float64), EXACT + name: pl.Series(exact, dtype=pl.String)}


def fits(values: Sequence[Any]) -> bool:
    """Whether all whole numbers among `values` fit into 64 bits."""
    numbers = [value for value in values if value is not None] if None in values else values
    return min(numbers, default=0) in INT64 and max(numbers, default=0) in INT64


def reward_columns(rewards: Sequence[Any]) -> dict[str, pl.Series]:
    """The columns of the field `reward`, which metrics repeat as it was stored. ABSENT stands for none at all."""
    plain = set(map(type, rewards)) <= PLAIN
    found = column(FIELD + REWARD, rewards if plain else [value if is_number(value) else None for value in rewards])
    kind = found[FIELD + REWARD].dtype if found else None
    plain = (bool, int, float) if kind == pl.Boolean else (int, float)
    if set(map(type, rewards)) <= {*plain, object}:
        return found
    exact = found[EXACT + FIELD + REWARD].to_list() if EXACT + FIELD + REWARD in found else [None] * len(rewards)
    for line, value in enumerate(rewards):
        if value is not ABSENT and type(value) not in plain:
            exact[line] = orjson.dumps(value).decode()
    nothing = {FIELD + REWARD: pl.Series([None] * len(rewards), dtype=pl.Float64)}
    return nothing | found | {EXACT + FIELD + REWARD: pl.Series(exact, dtype=pl.String)}
