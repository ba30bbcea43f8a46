"""Carrying the journals of a run over to a changed plan, once, before anything is asked.

`plan.json` and `plan.parquet` in the folder of the journals say under which plan these were written. If the plan is
another one now, new journals are built beside the old ones in `.carry`; renaming that to `carry.ready` decides, and
putting the new files in place can be repeated after a kill at any moment. Rows that fit nowhere are in
`superseded.jsonl`, and come back if a later plan has them again; lines without a key are in `unreadable.bin`. Folders of
shards that no longer exist move to `retired/`.
"""

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from rollmake.core.carry import SetAside, contents, moves, places, restamped, targets, unchanged, unwrapped, wrapped
from rollmake.core.contract import failures_path
from rollmake.core.plan import Plan
from rollmake.core.settlement import keys
from rollmake.core.shards import NAME, parse_shard, shard_name
from rollmake.edge.files import publish, sync_folder
from rollmake.edge.journal import Journal, lines
from rollmake.edge.lock import exclusive
from rollmake.edge.plan import read_plan, scan_table, table_path
from rollmake.edge.spread import Spreader

log = logging.getLogger(__name__)
COLUMNS = ["task", "rollout", "shard", "digest", "repeat"]
ROLLOUTS, FAILURES = "rollouts", "rollouts_failures"
SUPERSEDED, UNREADABLE = "superseded.jsonl", "unreadable.bin"
# A row that was ever journalled: its destination, its line, its place (`core.carry.TARGET`), and whether it was set aside.
Source = tuple[str, bytes, tuple, bool]


def written_under(journals: Path) -> Plan | None:
    """The plan under which the journals below `journals` were written, None before the first."""
    path = journals / "plan.json"
    return read_plan(path) if path.exists() else None


def carry_over(journals: Path, plan: Path) -> None:
    """Bring all journals of a run up to the plan in `plan`; waits for collectors that still write to one of them."""
    if not (journals / "carry.ready").exists() and _agree(journals, plan):
        return
    with exclusive(journals / "carry.lock"):
        _put_in_place(journals)
        if not _agree(journals, plan):
            _carry(journals, plan)


def _agree(journals: Path, plan: Path) -> bool:
    known = written_under(journals)
    return known is not None and known.digest == read_plan(plan).digest


def _carry(journals: Path, plan: Path) -> None:
    superseded = journals / SUPERSEDED
    if written_under(journals) is not None:
        old = pl.read_parquet(table_path(journals / "plan.json"), columns=COLUMNS)
        new = scan_table(plan).select(COLUMNS).collect()
        moved = moves(old, new)
        if not unchanged(moved, old) or (superseded.exists() and superseded.stat().st_size):
            _rebuild(journals, plan, moved, places(new))
            return
        log.info("the plan changed: everything that was collected still fits and is kept where it is")
    _adopt(plan, journals)


def _rebuild(journals: Path, plan: Path, moved: pl.DataFrame, placed: pl.DataFrame) -> None:
    folders = _shard_folders(journals)
    with ExitStack() as stack:
        for folder in folders:
            stack.enter_context(exclusive(folder.with_name(f"{folder.name}.lock")))
            Journal(folder).close()  # Ends both files with a whole line.
        shutil.rmtree(journals / ".carry", ignore_errors=True)
        _build(journals / ".carry", plan, _sources(journals, folders, moved, placed), folders)
        os.replace(journals / ".carry", journals / "carry.ready")
        sync_folder(journals)
        _put_in_place(journals)


def _build(target: Path, plan: Path, sources: Iterator[Source], folders: list[Path]) -> None:
    """Write into `target` what the journals hold under the new plan."""
    count = read_plan(plan).shards
    kept: Counter[str] = Counter()
    with Spreader(target) as out:
        for name in (SUPERSEDED, UNREADABLE, *_emptied(folders, count)):
            out.create(name)
        for destination, line, (shard, task, rollout, digest, repeat), aside in sources:
            if shard is not None:
                out.add(f"{shard_name(shard, count)}/{destination}.jsonl", restamped(line, task, rollout))
                kept[destination] += 1
            elif digest is not None:
                out.add(SUPERSEDED, wrapped(SetAside(digest, repeat, destination, line)))
                kept[SUPERSEDED] += not aside
            else:
                out.add(UNREADABLE, line)
    _adopt(plan, target)
    log.info(
        "the plan changed: %d rollouts and %d failed attempts still fit and are kept, "
        "%d rows no longer fit and are set aside now, in %s",
        kept[ROLLOUTS], kept[FAILURES], kept[SUPERSEDED], SUPERSEDED,
    )  # fmt: skip


def _sources(journals: Path, folders: list[Path], moved: pl.DataFrame, placed: pl.DataFrame) -> Iterator[Source]:
    """Every row that was ever journalled, see `Source`."""
    for folder in folders:
        rollouts = folder / f"{ROLLOUTS}.jsonl"
        for destination, path in ((ROLLOUTS, rollouts), (FAILURES, failures_path(rollouts))):
            for line, place in zip(lines(path), targets(keys(lines(path)), moved), strict=True):
                yield destination, line, place, False
    superseded = journals / SUPERSEDED
    back = targets(contents(map(unwrapped, lines(superseded))), placed)
    for row, place in zip(map(unwrapped, lines(superseded)), back, strict=True):
        yield row.destination, row.row, place, True
    for line in lines(journals / UNREADABLE):
        yield ROLLOUTS, line, (None,) * 5, True


def _emptied(folders: list[Path], count: int) -> Iterator[str]:
    """The files of shards that go on to exist: each is written anew, even if nothing is left in it."""
    for folder in folders:
        if parse_shard(folder.name)[1] == count:
            yield f"{folder.name}/{ROLLOUTS}.jsonl"
            yield f"{folder.name}/{FAILURES}.jsonl"


def _put_in_place(journals: Path) -> None:
    """Put a carry that is decided in place; each step does nothing if it was done before."""
    ready = journals / "carry.ready"
    if (ready / "plan.json").exists():
        for path in sorted([*ready.rglob("*.jsonl"), *ready.glob("*.bin")]):
            target = journals / path.relative_to(ready)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
            sync_folder(target.parent)
        count = read_plan(ready / "plan.json").shards
        for folder in _shard_folders(journals):
            if parse_shard(folder.name)[1] != count:
                _retire(folder)
        _adopt(ready / "plan.json", journals)
    shutil.rmtree(ready, ignore_errors=True)


def _adopt(plan: Path, journals: Path) -> None:
    """Note that the journals are written under `plan`. plan.json comes last, since it decides."""
    publish(table_path(plan), journals / "plan.parquet")
    publish(plan, journals / "plan.json")


def _shard_folders(journals: Path) -> list[Path]:
    return sorted(path for path in journals.iterdir() if path.is_dir() and NAME.fullmatch(path.name))


def _retire(folder: Path) -> None:
    """Move the folder of a shard that no longer exists aside; its rows are in the new journals."""
    for name in (ROLLOUTS, FAILURES):
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
    retired = folder.parent / "retired"
    retired.mkdir(exist_ok=True)
    number = sum(path.name.startswith(f"{folder.name}.") for path in retired.iterdir())
    os.replace(folder, retired / f"{folder.name}.{number}")
