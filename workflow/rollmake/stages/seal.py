"""`rollmake seal RUN`: publish what the journals hold, ask for nothing. What is owed stays owed, and coverage says so.

The next run of the workflow takes the shards as they are. After that, `snakemake --forcerun collect` goes on collecting.
"""

import logging
from pathlib import Path
from typing import Annotated

import msgspec

from rollmake.core.errors import InputError
from rollmake.core.progress import progress_line
from rollmake.core.shards import shard_names
from rollmake.edge.files import write_atomic
from rollmake.edge.plan import read_plan
from rollmake.edge.shard import SEALED_BY_HAND, Settling, open_shard

HELP = "Publish the shards of a run as they are, without asking for what is owed."
POSITIONAL = ("run",)
GO_ON = "`snakemake --forcerun collect`"
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What is sealed."""

    run: Annotated[Path, msgspec.Meta(description="folder of the run, results/RUN")]
    shard: Annotated[list[str], msgspec.Meta(description="only these shards, like 0000-of-0003")] = []


class Settings(Settling, frozen=True, kw_only=True):
    """The options of the config that decide what is settled."""


def run(files: Files, settings: Settings) -> None:
    """Publish every shard that is not published yet, or those that are named. Raises InputError for a shard unknown."""
    plan = files.run / "plan.json"
    digest = read_plan(plan).digest.encode()
    owed = 0
    for name in chosen_shards(plan, files.shard):
        output = files.run / "shards" / name / "rollouts.jsonl"
        if not files.shard and output.exists():
            continue
        with open_shard(plan, name, files.run / "journal", settings) as shard:
            write_atomic(shard.folder / SEALED_BY_HAND, digest)
            shard.publish(output)
            log.info(progress_line(shard.figures(shard.end)))
            owed += shard.ledger.owed
    if owed:
        log.info(
            "%d rollouts stay owed. Run snakemake to score what there is; later %s goes on collecting", owed, GO_ON
        )


def chosen_shards(plan: Path, named: list[str]) -> list[str]:
    """The shards of a plan, or those of them that are named. Raises InputError for a name that is none of them."""
    names = shard_names(read_plan(plan).shards)
    unknown = sorted(set(named) - set(names))
    if unknown:
        remedy = f"Its shards are {names[0]} to {names[-1]}"
        raise InputError(f"the run has no shard {', '.join(unknown)}", where=str(plan), remedy=remedy)
    return named or names
