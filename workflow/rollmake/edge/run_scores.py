"""The scalars of all rollouts of a run, from the scores.parquet of its shards: the rollouts themselves are not read."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import polars as pl

from rollmake.core.blocks import ScoreBlocks, stack
from rollmake.core.chosen import with_subsets
from rollmake.core.contract import failures_path, materialized_path
from rollmake.core.errors import DataError
from rollmake.core.imputation import Outcomes, Record
from rollmake.core.scores import FIELD, JSON
from rollmake.edge.records import REPAIR, dealt, records

KEY = ("shard", "task", "rollout")


class RunScores:
    """What became of every rollout (`states`, see `core/coverage.py`), and the scores of each environment server."""

    def __init__(
        self,
        owed: pl.DataFrame,
        shards: Sequence[Path],
        *,
        count_classes: Collection[str] = (),
        count_missing: bool = False,
        retry_terminal_timeouts: bool = False,
        texts: Sequence[str] = (),
        subset_key: str | None = None,
    ) -> None:
        """`owed` as of `records.planned`, `shards` are the repaired rollouts files; `texts` fields with a column of JSON.

        With `subset_key`, one of them, the states have a column `subset`.

        Raises DataError for shards that are not what the plan owes.
        """
        self._owed, self._shards, self._texts = owed, shards, texts
        self._added: dict[str, pl.DataFrame] = {}
        self.outcomes = Outcomes(
            count_classes=count_classes, count_missing=count_missing, retry_terminal_timeouts=retry_terminal_timeouts
        )
        self._stored = _with_servers(
            stack([_scores(path, shard, texts) for shard, path in enumerate(shards)]), owed, shards
        )
        for shard, servers in dealt(owed, shards):
            for _, key, record in records(failures_path(shard), servers):
                self.outcomes.add_failure(servers[key], record)
        facts = self._stored.select("server", "task", "rollout", "masked", numeric=pl.col("reward").is_not_null())
        states = self.outcomes.settle(owed, facts)
        self.states = states if subset_key is None else with_subsets(states, self._stored, subset_key)

    def impute(self) -> list[str]:
        """Add what stands for rollouts without a result; the environment servers that have something to score, sorted.

        Only numbers and `texts` are filled from materialized rows, since nothing else is scored.
        """
        blocks: dict[str, ScoreBlocks] = {}
        if self.outcomes.waiting:
            parts = self._stored.partition_by("server", as_dict=True)
            self.outcomes.fields = {server: _fields(part) for (server,), part in parts.items()}
            for server, record in self._records():
                blocks.setdefault(server, ScoreBlocks(self._texts)).add([record])
        self._added = {server: block.frame() for server, block in blocks.items()}
        return sorted({*self._stored["server"].drop_nulls().unique(), *self._added})

    def scores(self, server: str) -> pl.DataFrame:
        """What an environment server scores, in the form of `core/scores.py`.

        There is one column more, `imputed`: whether the line stands for a rollout without a result.
        """
        stored = self._stored.filter(pl.col("server") == server).with_columns(imputed=pl.lit(False))
        added = [self._added[server].with_columns(imputed=pl.lit(True))] if server in self._added else []
        return stack([stored.drop("shard"), *added])

    def _records(self) -> Iterator[tuple[str, Record]]:
        for shard, servers in dealt(self._owed, self._shards):
            if any((server, *key) in self.outcomes.waiting for key, server in servers.items()):
                for _, key, row in records(materialized_path(shard), servers):
                    if (record := self.outcomes.impute(servers[key], row)) is not None:
                        yield servers[key], record
        yield from self.outcomes.impute_rest()


def _scores(path: Path, shard: int, texts: Sequence[str]) -> pl.DataFrame:
    """The scores of one shard, which has a line for each of its rollouts."""
    scores = path.with_name("scores.parquet")
    try:
        frame = pl.read_parquet(scores)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"cannot be read: {error}", where=str(scores), remedy=REPAIR) from None
    for name in texts:
        if JSON + name not in frame.columns:
            remedy = f"Repair that shard again, with `--texts {name}`"
            raise DataError(f"it was written without the field {name!r}", where=str(scores), remedy=remedy)
    wanted = [name for name in frame.columns if not name.startswith(JSON) or name.removeprefix(JSON) in texts]
    return frame.select(wanted).drop("offset", "length").with_columns(shard=pl.lit(shard, pl.Int32))


def _with_servers(stored: pl.DataFrame, owed: pl.DataFrame, shards: Sequence[Path]) -> pl.DataFrame:
    """The same with the environment servers of the plan. Raises DataError for a line that is not owed, or there twice."""
    planned = owed.select(*KEY, "server", planned=pl.lit(True))
    lines = stored.drop("server").with_columns(line=pl.int_range(1, pl.len() + 1).over("shard"))
    found = lines.join(planned, on=list(KEY), how="left", maintain_order="left")
    twice = pl.struct(KEY).is_duplicated() if len(found.unique(KEY)) < len(found) else pl.lit(False)
    wrong = found.filter(pl.col("planned").is_null() | twice).sort("shard", "line")
    if len(wrong):
        row = wrong.row(0, named=True)
        rollout = f"task {row['task']}, rollout {row['rollout']}"
        message = f"the plan does not deal {rollout} to this shard"
        if row["planned"]:
            message = f"the rollout of {rollout} is there twice"
        raise DataError(message, where=f"{shards[row['shard']]}:{row['line']}", remedy=REPAIR)
    return found.drop("planned", "line")


def _fields(stored: pl.DataFrame) -> set[str]:
    """The names of the fields that a record may be filled with."""
    columns = [name for name in stored.columns if name.startswith((FIELD, JSON)) and stored[name].count()]
    return {name.partition("/")[2] for name in columns}
