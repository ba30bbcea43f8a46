"""The files of one shard, whoever wrote them, become clean and sorted; what is taken out goes to quarantine.jsonl."""

import logging
import os
import tempfile
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
import orjson
import polars as pl

from rollmake.core.blocks import ScoreBlocks
from rollmake.core.errors import InputError
from rollmake.core.judge import JudgeMigration, must_move
from rollmake.core.lines import Reason
from rollmake.core.repair import file_facts, key_facts, owed_keys, settle_duplicates, take_out_not_owed
from rollmake.core.scan import LENGTH, RANK, REASONS, Kind, Scan, files_of, sorted_ranges
from rollmake.edge.deliverables import has_deliverable
from rollmake.edge.files import replacing_all
from rollmake.edge.ranges import Read, copy_lines, pieces, reader
from rollmake.edge.scan import same_record, scan_file, scan_rollouts

HELP = "Clean and sort the files of one shard; nothing is thrown away."
REPAIR_VERSION = 1
ROW_GROUP = 1 << 14
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What repair reads and writes."""

    rollouts: Annotated[
        Path, msgspec.Meta(description="rollouts file of the shard; its siblings are found by their names")
    ]
    output: Annotated[Path, msgspec.Meta(description="repaired rollouts file; everything else is written beside it")]
    texts: Annotated[
        list[str], msgspec.Meta(description="fields that scores.parquet gets whatever they hold, as JSON")
    ] = []


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options that repair reads."""

    retry_invalid_judge_responses: bool


class Shard:
    """The index of a shard's files, the scalars of its rollouts, and the rows that its sidecar gains."""

    def __init__(
        self, files: Mapping[Kind, Path], moved: IO[bytes], texts: Sequence[str], *, move_invalid_judges: bool
    ) -> None:
        """Read all files once; rows that move to the sidecar go to the file `moved` meanwhile."""
        self.scores = ScoreBlocks(texts)
        self.gained = Scan(Kind.FAILURES)
        self._moved = moved
        self._migration = JudgeMigration(has_deliverable) if move_invalid_judges else None
        self.scans = {
            Kind.MATERIALIZED: scan_file(files[Kind.MATERIALIZED], Kind.MATERIALIZED),
            Kind.FAILURES: scan_file(files[Kind.FAILURES], Kind.FAILURES, self._look_at_failures),
            Kind.ROLLOUTS: self._rollouts(files[Kind.ROLLOUTS]),
        }
        moved.flush()

    def parts(self, kind: Kind) -> list[Scan]:
        """The indices that together make one file."""
        return [self.scans[kind], self.gained] if kind is Kind.FAILURES else [self.scans[kind]]

    def settle(self, reads: Mapping[Kind, Read]) -> np.ndarray | None:
        """Take out duplicates and what is not owed; gives the owed keys, Int64 [keys, 2], or None if unknown."""
        for kind in (Kind.MATERIALIZED, Kind.ROLLOUTS):
            settle_duplicates(self.scans[kind], same_record(self.scans[kind], reads[kind]))
        answers = [*self.parts(Kind.ROLLOUTS), *self.parts(Kind.FAILURES)]
        owed = owed_keys(self.scans[Kind.MATERIALIZED], sum(len(scan.codes) for scan in answers))
        if owed is not None:
            for scan in answers:
                take_out_not_owed(scan, owed)
        return owed

    def _look_at_failures(self, rows: list[dict[str, Any]]) -> dict[int, Reason]:
        if self._migration is not None:
            for row in rows:
                self._migration.note(row)
        return {}

    def _rollouts(self, path: Path) -> Scan:
        if self._migration is None:
            return scan_rollouts(path, self.scores)
        migration = self._migration
        return scan_file(path, Kind.ROLLOUTS, lambda rows: self._look_at_rollouts(rows, migration))

    def _look_at_rollouts(self, rows: list[dict[str, Any]], migration: JudgeMigration) -> dict[int, Reason]:
        self.scores.add(rows)
        moving = {place: row for place, row in enumerate(rows) if must_move(row)}
        for row in moving.values():
            if (failure := migration.move(row)) is not None:
                line = msgspec.json.encode(failure) + b"\n"
                self._moved.write(line)
                self.gained.take(line)
        return dict.fromkeys(moving, Reason.INVALID_JUDGE)


def run(files: Files, settings: Settings) -> None:
    """Write the repaired files, quarantine.jsonl, repair.json and scores.parquet beside `files.output`.

    Raises InputError if there is no rollouts file, or if it would be overwritten. The rollouts appear last.
    """
    if not files.rollouts.is_file():
        raise InputError(
            "there is no such file", where=str(files.rollouts), remedy="Name the rollouts file of a shard."
        )
    if files.output.resolve().parent == files.rollouts.resolve().parent:
        raise InputError("input and output are in one folder", where=str(files.output), remedy="Name another folder.")
    sources, targets = files_of(files.rollouts), files_of(files.output)
    files.output.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        moved = stack.enter_context(tempfile.TemporaryFile(dir=files.output.parent))
        shard = Shard(sources, moved, files.texts, move_invalid_judges=settings.retry_invalid_judge_responses)
        opened = {kind: stack.enter_context(_open(path)) for kind, path in sources.items()}
        reads = {kind: reader(file, moved) for kind, file in opened.items()}
        owed = shard.settle(reads)
        facts = _facts(shard, sources, owed)
        beside = [files.output.with_name(name) for name in ("quarantine.jsonl", "scores.parquet", "repair.json")]
        last = (Kind.MATERIALIZED, Kind.FAILURES, Kind.ROLLOUTS)
        with replacing_all([*beside, *(targets[kind] for kind in last)]) as (quarantine, scores, report, *copies):
            _write_quarantine(shard, reads, sources, quarantine)
            _write_scores(shard, scores)
            report.write(orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n")
            for kind, copy in zip(last, copies, strict=True):
                copy_lines(reads[kind], *sorted_ranges(shard.parts(kind)), copy)
    _log_facts(facts, str(files.rollouts))


def _open(path: Path) -> IO[bytes]:
    """An open file; one that is not there is as good as empty."""
    return path.open("rb") if path.exists() else open(os.devnull, "rb")


def _write_quarantine(
    shard: Shard, reads: Mapping[Kind, Read], sources: Mapping[Kind, Path], target: IO[bytes]
) -> None:
    """One line for each part that was taken out: its file, line (from 1), byte offset, reason and bytes."""
    for kind in Kind:
        for line, offset, length, code in shard.scans[kind].removed.tolist():
            part = b"".join(pieces(reads[kind], 0, offset, length))
            place = {"file": sources[kind].name, "line": line, "offset": offset, "reason": REASONS[code - 1]}
            target.write(orjson.dumps(place | _bytes(part), option=orjson.OPT_APPEND_NEWLINE))


def _bytes(part: bytes) -> dict[str, str]:
    try:
        return {"text": part.decode()}
    except UnicodeDecodeError:
        return {"base64": b64encode(part).decode()}


def _write_scores(shard: Shard, target: IO[bytes]) -> None:
    """scores.parquet of the rollouts that stay, with their places in the repaired file."""
    scan = shard.scans[Kind.ROLLOUTS]
    order = scan.order()
    length = scan.rows[order, LENGTH]
    scores = shard.scores.frame()
    # Column by column, so that there are never two copies of the whole; an index of another type is cast each time.
    index = pl.Series(order, dtype=pl.UInt32)
    columns = [scores.drop_in_place(name).gather(index) for name in scores.columns]
    place = [pl.Series("offset", np.cumsum(length + 1) - length - 1), pl.Series("length", length)]
    pl.DataFrame([*columns, *place]).write_parquet(target, row_group_size=ROW_GROUP)


def _facts(shard: Shard, sources: Mapping[Kind, Path], owed: np.ndarray | None) -> dict[str, Any]:
    """The content of repair.json."""
    gained = {Kind.FAILURES: int((shard.gained.codes == 0).sum())}
    keys = {kind: [scan.rows[scan.codes == 0][:, :RANK] for scan in shard.parts(kind)] for kind in Kind}
    successes, failures = np.concatenate(keys[Kind.ROLLOUTS]), np.concatenate(keys[Kind.FAILURES])
    return {
        "version": REPAIR_VERSION,
        "source": str(sources[Kind.ROLLOUTS]),
        "files": {sources[kind].name: file_facts(shard.scans[kind], gained.get(kind, 0)) for kind in Kind},
        "keys": key_facts(successes, failures, owed),
    }


def _log_facts(facts: Mapping[str, Any], rollouts: str) -> None:
    for name, file in facts["files"].items():
        if file["removed"]:
            counts = ", ".join(f"{count} {reason}" for reason, count in file["removed"].items())
            log.warning("%s: taken out of %s, see quarantine.jsonl: %s", rollouts, name, counts)
    keys = ", ".join(f"{count} {name}" for name, count in facts["keys"].items() if count is not None)
    log.info("%s: rollouts: %s", rollouts, keys)
