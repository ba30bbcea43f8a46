"""The proof that rollouts are owed and each of them has a result, for runs that must be complete."""

from pathlib import Path
from typing import Annotated

import msgspec
import orjson

from rollmake.core.coverage import incomplete
from rollmake.core.errors import DataError
from rollmake.edge.files import write_atomic
from rollmake.edge.run_files import required

AGAIN = "`snakemake --forcerun collect`, with accept_partial off, asks for what is missing; the sidecar says why others failed"
LINES = "Put materialized inputs that say what is owed beside the rollouts, or take out of these the lines that are no rollout"
INPUT = "Is the input empty? See `input` or `input_glob` of the run in the config"
HELP = "Fail unless every rollout of a run has a result."


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the check reads and writes."""

    coverage: Annotated[Path, msgspec.Meta(description="coverage.json of the run")]
    output: Annotated[Path, msgspec.Meta(description="complete.json, written only if the run is complete")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The check has no options."""


def run(files: Files, settings: Settings) -> None:
    """Write `files.output`. Raises DataError, and removes an older one, if a rollout is owed that has no result.

    So it does if none is owed, or if damaged lines may be rollouts that nothing else says to be owed. What counts for the
    score although it failed or left no row has no result.
    """
    numbers = required(files.coverage)
    try:
        lacking = incomplete(numbers)
    except (KeyError, TypeError) as error:
        found = f"it does not hold what it must ({error!r})"
        raise DataError(found, where=str(files.coverage), remedy="Run the stage coverage again") from None
    if lacking:
        files.output.unlink(missing_ok=True)
        remedy = LINES if numbers["unreadable_lines"] else INPUT if not numbers["expected"] else AGAIN
        raise DataError(f"the run is not complete: {lacking}", where=str(files.coverage), remedy=remedy)
    facts = {"version": 1, "expected": numbers["expected"], "answered": numbers["answered"]}
    write_atomic(files.output, orjson.dumps(facts, option=orjson.OPT_INDENT_2) + b"\n")
