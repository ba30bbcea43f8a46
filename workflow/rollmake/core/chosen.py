"""pass@k and the like over the fields that the config names, from a frame of scores (NeMo Gym contract 5.3)."""

from collections.abc import Collection, Iterable
from typing import Any, Literal, NamedTuple

import msgspec
import orjson
import polars as pl

from rollmake.core.contract import REWARD
from rollmake.core.errors import InputError
from rollmake.core.infos import dicts
from rollmake.core.passk import ANY_OF_K, AVERAGE_OF_K, MAJORITY_OF_K, Rollouts, highest_k, pass_at_k, subset_metrics
from rollmake.core.scores import FIELD, JSON

Values = dict[str, Any]


class Chosen(NamedTuple):
    """The fields that the config names: the score (null is the reward), the extracted answer, and the subset of a task."""

    score: str | None = None
    answer_key: str | None = None
    subset_key: str | None = None

    @property
    def texts(self) -> list[str]:
        """The fields that must be in scores.parquet whatever they hold."""
        return list(dict.fromkeys(name for name in (self.answer_key, self.subset_key) if name is not None))


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Who computes the metrics, and the fields that the local backend looks at."""

    backend: Literal["server", "local"]
    score: str | None = None
    answer_key: str | None = None
    subset_key: str | None = None

    @property
    def chosen(self) -> Chosen:
        """The fields, none of them where servers compute."""
        return Chosen(self.score, self.answer_key, self.subset_key) if self.backend == "local" else Chosen()


def chosen_metrics(measured: pl.DataFrame, chosen: Chosen) -> tuple[Values, Values]:
    """What goes into `agent_metrics`, and the part of it, that of the highest k, that goes into `key_metrics`.

    `measured` is a frame in the form of `core/scores.py`, sorted by (task, rollout); lines without the score are left
    out. Nothing if the config names no field, or no line has the score. Raises DataError for an answer that is a list
    or an object.
    """
    score = chosen.score or REWARD
    if chosen == Chosen() or not _values(measured, FIELD + score):
        return {}, {}
    tasks = task_lists(measured.filter(pl.col(FIELD + score).is_not_null()), score, chosen.texts)
    agent = pass_at_k(tasks, answer_key=chosen.answer_key, score=score)
    keys: Values = {}
    for pattern in (ANY_OF_K, AVERAGE_OF_K, MAJORITY_OF_K):
        keys |= highest_k(agent, pattern)
    if chosen.subset_key is not None:
        agent |= subset_metrics(tasks, chosen.subset_key, answer_key=chosen.answer_key, score=score)
    return agent, keys


def require_fields(frames: Iterable[pl.DataFrame], chosen: Chosen) -> None:
    """Raise InputError if a field that the config names is on no rollout of the run."""
    named = {"score": (FIELD, chosen.score), "answer_key": (JSON, chosen.answer_key)}
    named["subset_key"] = (JSON, chosen.subset_key)
    wanted = {option: prefix + name for option, (prefix, name) in named.items() if name is not None}
    for frame in frames:
        wanted = {option: column for option, column in wanted.items() if not _values(frame, column)}
    for option, column in wanted.items():
        kind = "the number" if option == "score" else "the field"
        found = f"no rollout has {kind} {column.partition('/')[2]!r}"
        raise InputError(found, where=f"metrics.{option}", remedy="Name a field that the verifier writes")


def task_lists(scored: pl.DataFrame, score: str, texts: Collection[str]) -> list[Rollouts]:
    """The rollouts of each task, each with its score and the fields `texts`."""
    columns = [scored[FIELD + score].cast(pl.Float64).to_list()]
    columns += [decoded(scored[JSON + name]) for name in texts if name != score]
    lines = dicts([score, *(name for name in texts if name != score)], columns, gaps=False)
    tasks, start = [], 0
    for count in scored["task"].rle().struct.field("len").to_list():
        tasks.append(lines[start : start + count])
        start += count
    return tasks


def decoded(column: pl.Series) -> list[Any]:
    """The values of a column of JSON; equal ones are decoded once."""
    known = {text: orjson.loads(text) for text in column.unique() if text is not None}
    return [known.get(text) for text in column.to_list()]


def with_subsets(states: pl.DataFrame, stored: pl.DataFrame, key: str) -> pl.DataFrame:
    """States as of `core/coverage.py` with the subset of each task: the first truthy value of `key` on its rollouts."""
    first = stored.select("server", "task", "rollout", JSON + key).drop_nulls(JSON + key).sort("rollout")
    values = decoded(first[JSON + key])
    named = first.with_columns(subset=pl.Series([str(value) if value else None for value in values], dtype=pl.String))
    subsets = named.drop_nulls("subset").group_by("server", "task", maintain_order=True).agg(pl.col("subset").first())
    return states.join(subsets, on=["server", "task"], how="left", maintain_order="left")


def _values(frame: pl.DataFrame, name: str) -> int:
    return frame[name].count() if name in frame.columns else 0
