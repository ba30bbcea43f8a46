"""Rows of a run without a topology, expanded and planned as the stage does, with the schema's defaults."""

from itertools import islice

import msgspec
import orjson

from helpers.materialize import defaults
from rollmake.core.errors import InputError, raise_all
from rollmake.core.expand import Expansion
from rollmake.core.options import Options, check_options
from rollmake.core.planning import Planner


def run(input, topology):
    given = {name: value for name, value in input["config"].items() if value is not None}
    try:
        options = msgspec.convert({**defaults(), **given}, Options)
    except msgspec.ValidationError as error:
        raise InputError(str(error)) from None
    check_options(options)
    expansion, planner, lines = Expansion(options, None), Planner(1, ""), []
    for number, row in enumerate(islice(input["rows"], options.limit or None), 1):
        line = orjson.dumps(row)
        for copies in expansion.expand(line, row, line, f"tasks.jsonl:{number}"):
            lines += planner.add(copies).split(b"\n")[:-1]
    raise_all(expansion.problems())
    if options.interleave_repeats:
        lines = [lines[place] for place in planner.interleaved()]
    return [orjson.loads(line) for line in lines]
