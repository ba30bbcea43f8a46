"""One shard while this process holds its lock: its rows, its journal, how far it is, and how it is published."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rollmake.core.contract import MATERIALIZED_NAME, materialized_path
from rollmake.core.errors import DataError, OwedError
from rollmake.core.latency import LatencySummary
from rollmake.core.ledger import Ledger
from rollmake.core.progress import progress
from rollmake.core.settlement import failure_facts, max_attempts, success_facts
from rollmake.core.tally import Tally
from rollmake.edge import jobs
from rollmake.edge.carry import carry_over, written_under
from rollmake.edge.files import replacing, write_atomic
from rollmake.edge.journal import Journal, lines
from rollmake.edge.judges import move_invalid_judges
from rollmake.edge.lock import exclusive
from rollmake.edge.plan import ShardRows, read_plan, read_shard

COLLECTION_VERSION = 1
SEALED, PARTIAL, OWED = "sealed", "accepted partial", "owed"
# In the journal of a shard that `rollmake seal` published with rollouts owed; it holds the digest of the plan.
SEALED_BY_HAND = "sealed_by_hand"
log = logging.getLogger(__name__)


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """What decides whether a rollout is settled: options of the stage collect, by their names."""

    max_attempts: int | None
    retry_terminal_timeouts: bool
    retry_invalid_judge_responses: bool
    dispatch_longest_first: bool


@contextmanager
def open_shard(plan: Path, name: str, journals: Path, settling: Settling) -> Iterator["Shard"]:
    """The shard `name` of a run, its journal brought up to the plan; waits for whoever holds it.

    Raises InputError for a shard that the plan does not have and OwedError if the plan changes meanwhile.
    """
    known, planned = read_plan(plan), read_shard(plan, name)
    carry_over(journals, plan)
    with ExitStack() as stack:
        holder = stack.enter_context(exclusive(journals / f"{name}.lock"))
        if written_under(journals) != known:
            remedy = "Run the workflow again"
            raise OwedError("the plan changed while the shard was waited for", where=f"shard {name}", remedy=remedy)
        rows = stack.enter_context(ShardRows(planned, plan.with_name(MATERIALIZED_NAME)))
        shard = Shard(name, journals / name, planned.select("task", "rollout"), rows, settling)
        del planned  # Not to be held as long as the shard is.
        shard.sealed_by_hand = _sealed_by_hand(shard.folder) == known.digest
        job = jobs.start(shard.history, holder)
        try:
            yield shard
        finally:
            shard.journal.close()
            shard.write_progress(shard.end)
            jobs.finish(shard.history, job, shard.end, shard.tally.requests)


class Shard:
    """Rows, journal, ledger and tally of a shard; `end` is how the job ends, once it is known."""

    def __init__(self, name: str, folder: Path, keys: pl.DataFrame, rows: ShardRows, settling: Settling) -> None:
        self.name, self.folder, self.rows = name, folder, rows
        self.history = folder / "jobs.jsonl"
        self.journal = Journal(folder)
        if settling.retry_invalid_judge_responses:
            moved = move_invalid_judges(self.journal.rollouts, self.journal.failures)
            log.info("%s: %d rows without a valid verdict of their judge are tried again", name, moved)
            self.journal = Journal(folder)
        successes = success_facts(lines(self.journal.rollouts))
        failures = failure_facts(lines(self.journal.failures), settling.retry_terminal_timeouts)
        limit = max_attempts(settling.max_attempts, os.environ)
        self.ledger = Ledger(
            keys,
            successes,
            failures,
            limit,
            longest_first=settling.dispatch_longest_first,
            retry_terminal_timeouts=settling.retry_terminal_timeouts,
        )
        self.tally = Tally(_earlier_latency(folder / "progress.json"))
        self.tally.begin(successes)
        self.end = OWED
        self.sealed_by_hand = False
        self._started = time.monotonic()

    def figures(self, state: str) -> dict[str, Any]:
        """How far the shard is, see `core.progress`."""
        elapsed_s = time.monotonic() - self._started
        return progress(self.name, self.ledger, self.tally, elapsed_s=elapsed_s, state=state)

    def write_progress(self, state: str) -> dict[str, Any]:
        """Replace progress.json, unless the disk is full, and return what it says."""
        figures = self.figures(state)
        last_row = max(path.stat().st_mtime_ns for path in (self.journal.rollouts, self.journal.failures))
        figures |= {"updated": jobs.now(), "last_row": jobs.iso(last_row)}
        try:
            write_atomic(self.folder / "progress.json", msgspec.json.encode(figures) + b"\n")
        except OSError as error:
            log.warning("%s: cannot write progress.json: %s", self.name, error)
        return figures

    def publish(self, output: Path) -> None:
        """Make the shard appear at `output`: what was asked, collection.json, the sidecar, and its rows last."""
        self.end = PARTIAL if self.ledger.owed else SEALED
        self.journal.close()
        with replacing(materialized_path(output)) as file:
            self.rows.copy(file)
        collection = msgspec.json.encode(self._collection()) + b"\n"
        write_atomic(output.with_name("collection.json"), collection)
        self.journal.publish(output)

    def _collection(self) -> dict[str, Any]:
        figures = self.figures(self.end)
        *earlier, this = jobs.read(self.history)
        this.ended, this.end, this.requests = jobs.now(), self.end, self.tally.requests
        history = [*earlier, this]
        return {
            "version": COLLECTION_VERSION,
            "shard": self.name,
            "owed": figures["owed"],
            "succeeded": figures["done"],
            "failed_by_class": figures["failed_by_class"],
            "gated": figures["gated"],
            "missing": figures["unsettled"],
            "requests": sum(job.requests for job in history),
            "latency": figures["latency"],
            "jobs": history,
        }


def _sealed_by_hand(folder: Path) -> str | None:
    """The digest of the plan under which the shard was sealed by hand and not collected since, if it was."""
    path = folder / SEALED_BY_HAND
    return path.read_text() if path.exists() else None


def _earlier_latency(path: Path) -> LatencySummary | None:
    """The latencies that earlier jobs saw; a killed job loses those since it last wrote them down."""
    try:
        return LatencySummary.from_dict(msgspec.json.decode(path.read_bytes())["latency"])
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        return None
    except DataError as error:
        log.warning("%s: %s; the latencies of earlier jobs are left out", path, error)
        return None
