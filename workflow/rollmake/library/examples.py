"""Examples that a caller holds -> the rows of their rollouts (NeMo Gym contract 2.1)."""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import orjson

from rollmake.core.contract import ROLLOUT, TASK
from rollmake.core.errors import InputError, raise_all
from rollmake.core.expand import Copies, Expansion
from rollmake.core.findings import Findings
from rollmake.core.options import Options, check_options
from rollmake.core.router import Router, unchecked_pairings
from rollmake.core.rows import parse_row
from rollmake.core.topology import Topology, parse_topology
from rollmake.edge.topology import file_topology

Row = dict[str, Any]
# The options of the stage materialize that a caller does himself where he needs them.
PLAIN: dict[str, Any] = {
    "limit": None,
    "interleave_repeats": False,
    "agent_name": None,
    "responses_create_params": {},
    "environment_routing_mode": "agent",
    "environment_server_name": None,
    "environment_server_routes": {},
}
ENCODER = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
log = logging.getLogger(__name__)


def preprocess_examples(
    examples: Iterable[Row],
    *,
    agent_map: Mapping[str, str] | None = None,
    fan_out: Mapping[str, list[str]] | None = None,
    num_repeats: int | Mapping[str, int] | None = None,
    num_repeats_add_seed: bool = False,
    topology: Mapping[str, Any] | str | Path | None = None,
) -> list[Row]:
    """One row for each rollout that the options ask for, stamped with task and rollout index, in the order of `examples`.

    The options mean what they do in the config. Examples that are equal are one task, whatever the order of their keys.
    What is returned shares nothing with `examples`, which are left as they are. With a `topology` (a mapping, or the
    path of a YAML file) names are checked and task sources become agents; without one that is left to `run_examples`.

    Raises InputError with everything that is wrong, by place (`examples[3]`).
    """
    given = {"agent_map": agent_map or {}, "fan_out": fan_out or {}, "num_repeats": num_repeats}
    options = _options({**given, "num_repeats_add_seed": num_repeats_add_seed})
    expansion = Expansion(options, None if topology is None else _router(topology))
    rows: list[Row] = []
    broken = Findings()
    for number, example in enumerate(examples):
        where = f"examples[{number}]"
        try:
            row, compact = parse_row(encoded(example))
        except InputError as error:
            broken.add_error(error, where)
            continue
        # Rows in memory have no text that could tell equal ones apart.
        identity = orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
        for copies in expansion.expand(identity, row, compact, where):
            rows += stamped(copies)
    raise_all([*broken, *expansion.problems()])
    for warning in expansion.dispatch.warnings():
        log.warning(warning)
    return rows


def stamped(copies: Copies) -> Iterator[Row]:
    """The rows of the rollouts, each an object of its own."""
    for rollout in range(copies.first, copies.first + copies.count):
        yield {**orjson.loads(copies.row), TASK: copies.task, ROLLOUT: rollout}


def encoded(row: object) -> bytes:
    """Compact JSON of a row. Raises InputError for what has none, or would be read back as something else."""
    if not isinstance(row, dict):
        raise InputError(f"is {type(row).__name__}, not a dict")
    try:
        return ENCODER.encode(row).encode()
    except (TypeError, ValueError, RecursionError) as error:
        remedy = "Rows hold what JSON has: dicts, lists, texts, finite numbers, truth values and None"
        raise InputError(f"has no JSON: {error}", remedy=remedy) from None


def given_topology(topology: Mapping[str, Any] | str | Path) -> Topology:
    """The servers in a mapping or in a YAML file. Raises InputError."""
    if isinstance(topology, (str, Path)):
        return file_topology(Path(topology))
    return parse_topology(topology, where="topology")


def _router(topology: Mapping[str, Any] | str | Path) -> Router:
    allowed = unchecked_pairings(False, os.environ)
    return Router(given_topology(topology), allow_unsupported_pairing=allowed)


def _options(given: dict[str, Any]) -> Options:
    """The checked options. Raises InputError."""
    try:
        options = msgspec.convert({**PLAIN, **given}, Options)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where="preprocess_examples") from None
    check_options(options)
    return options
