"""The plan of shards that something else collected: what their own files say is owed, and who answers it."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import orjson
import polars as pl

from rollmake.core.adopt import Answered, adopted_plan, plan_table, refuse_shared
from rollmake.core.contract import AGENT_REF, ROLLOUT, SERVER, TASK, failures_path, materialized_path
from rollmake.core.errors import DataError, InputError
from rollmake.core.lost import Row
from rollmake.core.plan import row_digest
from rollmake.core.routing import server_of_row
from rollmake.core.shards import shard_names
from rollmake.core.topology import Topology, decode_environment
from rollmake.edge.files import replacing, write_atomic
from rollmake.edge.lost import lost_rows
from rollmake.edge.plan import table_path
from rollmake.edge.records import REPAIR, repaired_lines
from rollmake.edge.run_files import required

HELP = "Say what is owed in repaired shards that something else collected."
SCHEMA = {"task": pl.Int64, "rollout": pl.Int64, "server": pl.String, "agent": pl.String}


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    repaired: Annotated[Path, msgspec.Meta(description="folder with one folder per repaired shard")]
    shards: Annotated[int, msgspec.Meta(description="how many shards there are")]
    environment_file: Annotated[Path, msgspec.Meta(description="environment.json of the run")]
    output: Annotated[Path, msgspec.Meta(description="rollouts_materialized_inputs.jsonl of the run, to be written")]
    plan: Annotated[Path, msgspec.Meta(description="plan.json, to be written; plan.parquet is written beside it")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The stage has no options."""


def run(files: Files, settings: Settings) -> None:
    """Write the materialized rows of all shards in one file, and the plan that they are.

    A rollout without a materialized row gets one that has no more than its indices, agent and server. Where no
    materialized inputs say what is owed, so do the lines that repair took out, if their keys can be read. Raises InputError
    for a row whose agent has no environment server or several, and, naming both files, for a rollout with a result in
    two shards of one server; then nothing is written.
    """
    environment = decode_environment(files.environment_file.read_bytes(), str(files.environment_file))
    shards = [files.repaired / name / "rollouts.jsonl" for name in shard_names(files.shards)]
    router = Router(environment.topology)
    results = [router.results(path) for path in shards]
    refuse_shared(results, [source(path) for path in shards])
    answered = Answered(results)
    with replacing(files.output) as target:
        written = [_Written(target.write, environment.identity) for _ in shards]
        for path, rows, shard in zip(shards, results, written, strict=True):
            for line, row in router.owed(path, rows, answered):
                shard.add(line, row)
    table = plan_table([shard.rows for shard in written])
    with replacing(table_path(files.plan)) as target:
        table.write_parquet(target)
    write_atomic(files.plan, msgspec.json.encode(adopted_plan(table, files.shards, environment.identity)))


def source(repaired: Path) -> str:
    """The file that a repaired shard was, for people."""
    return required(repaired.with_name("repair.json"))["source"]


class _Written:
    """The rows of one shard in the plan, written one by one."""

    def __init__(self, write: Any, environment: str) -> None:
        self._write, self._environment = write, environment
        self.rows: list[tuple[Any, ...]] = []

    def add(self, line: bytes, row: Row) -> None:
        """Write a line, without its newline, and note its row."""
        content = {key: value for key, value in orjson.loads(line).items() if key not in (TASK, ROLLOUT)}
        self._write(line + b"\n")
        self.rows.append((*row, len(line), row_digest(orjson.dumps(content), self._environment)))


class Router:
    """Finds the environment server of rows; what was found for an agent once is not looked for again."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._known: dict[tuple[str | None, str | None], str | None] = {}

    def results(self, shard: Path) -> pl.DataFrame:
        """Task, rollout, server and agent of each rollout of a repaired shard."""
        scores = shard.with_name("scores.parquet")
        try:
            frame = pl.read_parquet(scores, columns=list(SCHEMA))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise DataError(f"cannot be read: {error}", where=str(scores), remedy=REPAIR) from None
        pairs = frame.unique(["server", "agent"], maintain_order=True)
        servers = [self._server(shard, row) for row in pairs.select(list(SCHEMA)).iter_rows()]
        routed = pairs.select(stamp="server", agent="agent", server=pl.Series(servers, dtype=pl.String))
        joined = frame.rename({"server": "stamp"}).join(
            routed, on=["stamp", "agent"], how="left", nulls_equal=True, maintain_order="left"
        )
        return joined.select(list(SCHEMA))

    def owed(self, shard: Path, results: pl.DataFrame, answered: Answered) -> Iterator[tuple[bytes, Row]]:
        """A line and its row for each rollout that is owed in a shard, whose results are known.

        `answered` are those of all shards.
        """
        known: dict[tuple[int, int], Row] = {row[:2]: row for row in results.iter_rows()}
        for _, row in self._rows(failures_path(shard)):
            known.setdefault(row[:2], row)
        for row in answered.unknown(self._routed(lost_rows(shard))):
            known.setdefault(row[:2], row)
        for line, row in self._rows(materialized_path(shard)):
            found = known.pop(row[:2], row)
            yield line, row if found[2] is None else found
        for row in known.values():
            yield made_up(row), row

    def _routed(self, rows: Iterable[Row | None]) -> Iterator[Row]:
        """The rows with a key. Damage may have been to a name: who cannot be routed is nobody's, and owed all the same."""
        for task, rollout, stamp, agent in filter(None, rows):
            try:
                yield task, rollout, server_of_row(self._topology, stamp, agent), agent
            except InputError:
                yield task, rollout, None, None

    def _rows(self, path: Path) -> Iterator[tuple[bytes, Row]]:
        for line in repaired_lines(path):
            record = orjson.loads(line)
            reference = record.get(AGENT_REF)
            agent = reference.get("name") if isinstance(reference, dict) else None
            key = record[TASK], record[ROLLOUT]
            yield line, (*key, self._server(path, (*key, record.get(SERVER), agent)), agent)

    def _server(self, path: Path, row: Sequence[Any]) -> str | None:
        task, rollout, stamp, agent = row
        if (stamp, agent) not in self._known:
            try:
                self._known[stamp, agent] = server_of_row(self._topology, stamp, agent)
            except InputError as error:
                where = f"{source(path.with_name('rollouts.jsonl'))}: task {task}, rollout {rollout}"
                raise InputError(error.found, where=where, remedy=error.remedy) from None
        return self._known[stamp, agent]


def made_up(row: Row) -> bytes:
    """A materialized row that says no more than is known."""
    task, rollout, server, agent = row
    found: dict[str, Any] = {TASK: task, ROLLOUT: rollout}
    found |= {} if agent is None else {AGENT_REF: {"name": agent}}
    return orjson.dumps(found | ({} if server is None else {SERVER: server}))
