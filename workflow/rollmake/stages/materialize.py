"""Stage materialize: input rows -> one line for each rollout that is owed, and the plan that deals them to shards."""

import gc
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Annotated

import msgspec
import numpy as np

from rollmake.core.errors import DataError, InputError, raise_all
from rollmake.core.expand import Expansion
from rollmake.core.findings import Findings
from rollmake.core.inputs import Reading
from rollmake.core.options import Options, check_options
from rollmake.core.planning import Planner
from rollmake.core.router import Router, unchecked_pairings
from rollmake.core.rows import parse_row
from rollmake.core.topology import Environment, decode_environment
from rollmake.edge.files import replacing
from rollmake.edge.plan import table_path
from rollmake.edge.plan_table import write_table
from rollmake.edge.templates import read_prompt, read_skills

HELP = "Write one row for each rollout that is owed, and the plan that deals them to shards."
# Bytes that are read or written at once.
BLOCK = 1 << 20
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    input: Annotated[list[Path], msgspec.Meta(description="JSONL files with the tasks, read in this order")]
    environment_file: Annotated[Path, msgspec.Meta(description="environment.json of the run")]
    output: Annotated[Path, msgspec.Meta(description="rollouts_materialized_inputs.jsonl, to be written")]
    plan: Annotated[Path, msgspec.Meta(description="plan.json, to be written, with plan.parquet beside it")]


class Settings(Options, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    shards: int
    prompt_config: str | None
    skills: str | None
    allow_unsupported_pairing: bool


def run(files: Files, settings: Settings) -> None:
    """Check and expand all rows; only if nothing is wrong, publish the rows, then plan.parquet, then plan.json.

    Raises InputError with every problem that was found, each with its places; nothing is written then.
    """
    check_options(settings)
    raise_all([unreadable(path, "there is no such file") for path in files.input if not path.exists()])
    environment = read_environment(files.environment_file)
    expansion = expansion_of(settings, environment)
    planner = Planner(settings.shards, environment.identity)
    table = table_path(files.plan)
    # Written inside out: the plan takes its name last, so that whoever sees it sees the rows that it is about.
    with replacing(files.plan) as plan_file, replacing(table) as table_file, replacing(files.output) as output:
        if settings.interleave_repeats:
            order = expand_interleaved(files, settings, expansion, planner, output)
        else:
            order = None
            expand_files(files, settings, expansion, planner, output)
        columns = planner.columns(order)
        write_table(table_file, columns, list(planner.names))
        plan = planner.plan(columns)
        plan_file.write(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
    for warning in expansion.dispatch.warnings():
        log.warning(warning)
    log.info("%d rollouts of %d tasks in %d shards", plan.rollouts, plan.tasks, plan.shards)


def read_environment(path: Path) -> Environment:
    """environment.json. Raises DataError if there is none, or none of this version."""
    try:
        return decode_environment(path.read_bytes(), str(path))
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="Run the stage environment"
        ) from None


def expansion_of(settings: Settings, environment: Environment) -> Expansion:
    """The expansion that the options ask for."""
    allowed = unchecked_pairings(settings.allow_unsupported_pairing, os.environ)
    return Expansion(
        settings,
        Router(environment.topology, allow_unsupported_pairing=allowed),
        prompt=read_prompt(Path(settings.prompt_config)) if settings.prompt_config else None,
        skills=read_skills(settings.skills) if settings.skills else None,
    )


def expand_files(files: Files, settings: Settings, expansion: Expansion, planner: Planner, output: IO[bytes]) -> None:
    """Write the lines of all rollouts to `output`, in the order of the input. Raises InputError with all problems."""
    broken = Findings()
    with uncollected():
        write_rollouts(files, settings, expansion, planner, output, broken)
    raise_all([*broken, *expansion.problems()])


def write_rollouts(
    files: Files, settings: Settings, expansion: Expansion, planner: Planner, output: IO[bytes], broken: Findings
) -> None:
    """Write the lines of all rollouts to `output`; what is no row is noted in `broken`."""
    for where, line in islice(read_lines(files.input), settings.limit or None):
        try:
            row, compact = parse_row(line)
        except InputError as error:
            broken.add_error(error, where)
            continue
        for copies in expansion.expand(line, row, compact, where):
            output.write(planner.add(copies))


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection: rows are trees, which are freed without it, and looking for cycles in them takes time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def expand_interleaved(
    files: Files, settings: Settings, expansion: Expansion, planner: Planner, output: IO[bytes]
) -> np.ndarray:
    """Like `expand_files`, with the first rollouts of all tasks in front of all second ones; returns that order."""
    with tempfile.TemporaryFile(dir=files.output.parent) as scratch:
        expand_files(files, settings, expansion, planner, scratch)
        scratch.flush()
        order = planner.interleaved()
        sizes = planner.lengths() + 1
        starts = np.cumsum(sizes) - sizes
        for start, size in zip(starts[order].tolist(), sizes[order].tolist(), strict=True):
            output.write(os.pread(scratch.fileno(), size, start))
    return order


def read_lines(paths: list[Path]) -> Iterator[tuple[str, bytes]]:
    """The place (`path:line`) and text of each line that is not blank; oddities of a file are said at its end."""
    for path in paths:
        reading, name = Reading(), str(path)
        with open_input(path) as file:
            while block := file.read(BLOCK) + file.readline():
                for number, line in reading.split(block):
                    yield f"{name}:{number}", line
        for remark in reading.remarks():
            log.warning("%s: %s", name, remark)


def open_input(path: Path) -> IO[bytes]:
    """The file at `path`. Raises InputError if it cannot be opened."""
    try:
        return path.open("rb", buffering=1 << 20)
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror}") from None


def unreadable(path: Path, found: str) -> InputError:
    """The problem of an input file that gives no rows."""
    return InputError(found, where=str(path), remedy="Correct `input` in the config")
