"""Stage materialize: input rows -> one line for each rollout that is owed, and the plan that deals them to shards."""

import logging
import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Literal

import msgspec
import numpy as np
import orjson

from rollmake.core.contract import TASK_SOURCE
from rollmake.core.errors import InputError, raise_all
from rollmake.core.expand import Expansion
from rollmake.core.findings import Findings
from rollmake.core.options import Options, check_options
from rollmake.core.planning import Planner
from rollmake.core.router import Router, unchecked_pairings
from rollmake.core.rows import parse_row
from rollmake.core.topology import Environment, Topology
from rollmake.edge.files import BUFFER, replacing
from rollmake.edge.memory import no_cycle_search
from rollmake.edge.plan import table_path
from rollmake.edge.plan_table import write_table
from rollmake.edge.tasks import TaskFile, input_files, read_environment, read_lines, split_files
from rollmake.edge.templates import read_prompt, read_skills

HELP = "Write one row for each rollout that is owed, and the plan that deals them to shards."
log = logging.getLogger(__name__)


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    input: Annotated[
        list[Path], msgspec.Meta(description="JSONL files with the tasks, read in this order; none with --split")
    ] = []
    environment_file: Annotated[Path, msgspec.Meta(description="environment.json of the run")]
    output: Annotated[Path, msgspec.Meta(description="rollouts_materialized_inputs.jsonl, to be written")]
    plan: Annotated[Path, msgspec.Meta(description="plan.json, to be written, with plan.parquet beside it")]


class Settings(Options, frozen=True, kw_only=True):
    """The options of the config that this stage reads."""

    split: Literal["train", "validation", "benchmark"] | None
    shards: int
    prompt_config: str | None
    skills: str | None
    allow_unsupported_pairing: bool


def run(files: Files, settings: Settings) -> None:
    """Check and expand all rows; only if nothing is wrong, publish the rows, then plan.parquet, then plan.json.

    Raises InputError with every problem that was found, each with its places; nothing is written then.
    """
    check_options(settings)
    environment = read_environment(files.environment_file)
    tasks = task_files(files, settings, environment.topology)
    expansion = expansion_of(settings, environment)
    planner = Planner(settings.shards, environment.identity)
    table = table_path(files.plan)
    # Written inside out: the plan takes its name last, so that whoever sees it sees the rows that it is about.
    with replacing(files.plan) as plan_file, replacing(table) as table_file, replacing(files.output) as output:
        if settings.interleave_repeats:
            order = expand_interleaved(tasks, settings, expansion, planner, output)
        else:
            order = None
            expand_files(tasks, settings, expansion, planner, output)
        columns = planner.columns(order)
        write_table(table_file, columns, list(planner.names))
        plan = planner.plan(columns)
        plan_file.write(msgspec.json.format(msgspec.json.encode(plan), indent=2) + b"\n")
    for warning in expansion.dispatch.warnings():
        log.warning(warning)
    if expansion.repeated:
        log.warning("%d rows are the same as one before: they add repeats to its task", expansion.repeated)
    if not plan.tasks:
        log.warning("there is no task in the input, so nothing is owed")
    log.info("%d rollouts of %d tasks in %d shards", plan.rollouts, plan.tasks, plan.shards)


def task_files(files: Files, settings: Settings, topology: Topology) -> list[TaskFile]:
    """The files with the tasks. Raises InputError with all that are missing, and unless exactly one option names them."""
    if bool(files.input) == (settings.split is not None):
        found = "both input and split are given" if files.input else "neither input nor split is given"
        remedy = "Name JSONL files with `input`, or with `split` the data sets that the environment declares"
        raise InputError(found, where="materialize", remedy=remedy)
    tasks, problems = input_files(files.input) if settings.split is None else split_files(topology, settings.split)
    raise_all(problems)
    return tasks


def expansion_of(settings: Settings, environment: Environment) -> Expansion:
    """The expansion that the options ask for."""
    allowed = unchecked_pairings(settings.allow_unsupported_pairing, os.environ)
    return Expansion(
        settings,
        Router(environment.topology, allow_unsupported_pairing=allowed),
        prompt=read_prompt(Path(settings.prompt_config)) if settings.prompt_config else None,
        skills=read_skills(settings.skills) if settings.skills else None,
    )


def expand_files(
    tasks: list[TaskFile], settings: Settings, expansion: Expansion, planner: Planner, output: IO[bytes]
) -> None:
    """Write the lines of all rollouts to `output`, in the order of the input. Raises InputError with all problems."""
    broken = Findings()
    with no_cycle_search():
        write_rollouts(tasks, settings, expansion, planner, output, broken)
    raise_all([*broken, *expansion.problems()])


def write_rollouts(
    tasks: list[TaskFile],
    settings: Settings,
    expansion: Expansion,
    planner: Planner,
    output: IO[bytes],
    broken: Findings,
) -> None:
    """Write the lines of all rollouts to `output`; what is no row is noted in `broken`."""
    for where, line, source in islice(sourced_lines(tasks), settings.limit or None):
        try:
            row, compact = parse_row(line)
        except InputError as error:
            broken.add_error(error, where)
            continue
        if source is not None and row.get(TASK_SOURCE) is None:
            row = {**row, TASK_SOURCE: source}
            # Equal lines of two servers are two tasks: what tells tasks apart is the row with its source.
            line = compact = orjson.dumps(row)
        for copies in expansion.expand(line, row, compact, where):
            output.write(planner.add(copies))


def sourced_lines(tasks: list[TaskFile]) -> Iterator[tuple[str, bytes, str | None]]:
    """Place and text of each line of all files, and the server that declares its file."""
    for path, source in tasks:
        for where, line in read_lines(path):
            yield where, line, source


def expand_interleaved(
    tasks: list[TaskFile], settings: Settings, expansion: Expansion, planner: Planner, output: IO[bytes]
) -> np.ndarray:
    """Like `expand_files`, with the first rollouts of all tasks in front of all second ones; returns that order."""
    with tempfile.TemporaryFile(dir=Path(output.name).parent, buffering=BUFFER) as scratch:
        expand_files(tasks, settings, expansion, planner, scratch)
        scratch.flush()
        order = planner.interleaved()
        sizes = planner.lengths() + 1
        starts = np.cumsum(sizes) - sizes
        for start, size in zip(starts[order].tolist(), sizes[order].tolist(), strict=True):
            output.write(os.pread(scratch.fileno(), size, start))
    return order
