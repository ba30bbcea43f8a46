"""`rollmake watch RUN`: the status, again and again, until every shard is sealed. It reads only, from any node."""

import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from rollmake.core.status import SEALED, screen, table
from rollmake.stages.status import statuses

HELP = "Show the status of a run again and again while it is collected."
POSITIONAL = ("run",)
CLEAR = "\x1b[H\x1b[J"


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What is watched."""

    run: Annotated[Path, msgspec.Meta(description="folder of the run, results/RUN")]
    every: Annotated[float, msgspec.Meta(description="seconds between two looks")] = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """It reads no options."""


def run(files: Files, settings: Settings) -> None:
    """Print the table until all shards are sealed. Raises InputError if the folder holds no planned run."""
    while True:
        shards = statuses(files.run, datetime.now(UTC))
        if sys.stdout.isatty():
            print(CLEAR + "\n".join(screen(shards, *shutil.get_terminal_size())), flush=True)
        else:
            print("\n".join(table(shards)) + "\n", flush=True)
        if all(shard.state == SEALED for shard in shards):
            return
        time.sleep(files.every)
