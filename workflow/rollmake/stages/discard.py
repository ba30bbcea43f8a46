"""`rollmake discard RUN`: start over, explicitly. The journal moves aside; nothing is deleted."""

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from rollmake.edge.lock import exclusive
from rollmake.stages.seal import chosen_shards

HELP = "Move what was collected aside, so that it is asked for again."
POSITIONAL = ("run",)
# What does not rest on what was collected, and stays.
PLANNED = frozenset({"environment.json", "plan.json", "plan.parquet", "rollouts_materialized_inputs.jsonl"})
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What is discarded."""

    run: Annotated[Path, msgspec.Meta(description="folder of the run, results/RUN")]
    shard: Annotated[list[str], msgspec.Meta(description="only these shards, like 0000-of-0003")] = []


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """It reads no options."""


def run(files: Files, settings: Settings) -> None:
    """Move journals, shards and what rests on them to `discarded/TIME`; waits for collectors that still write.

    Raises InputError for a shard unknown.
    """
    names = chosen_shards(files.run / "plan.json", files.shard)
    aside = files.run / "discarded" / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    for name in names:
        with exclusive(files.run / "journal" / f"{name}.lock"):
            for part in ("journal", "shards", "repaired"):
                _move(files.run / part / name, aside / part / name)
    if not files.shard:
        for part in ("superseded.jsonl", "unreadable.bin", "retired"):
            _move(files.run / "journal" / part, aside / "journal" / part)
    for path in sorted(files.run.iterdir()):
        if path.is_file() and path.name not in PLANNED:
            _move(path, aside / path.name)
    log.info("%d shards moved to %s", len(names), aside)


def _move(path: Path, target: Path) -> None:
    if path.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
