"""What tests of materialize share: the defaults of its options, and a topology with an agent or two."""

from functools import cache
from pathlib import Path

import msgspec
import orjson
import yaml

from rollmake.core.expand import Expansion
from rollmake.core.options import Options
from rollmake.core.planning import Planner

SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.yaml"


@cache
def defaults():
    """The options of materialize, as the schema has them."""
    options = yaml.safe_load(SCHEMA.read_text())["$defs"]["options"]["properties"]
    return {
        name: option["default"]
        for name, option in options.items()
        if option.get("x-stage") == "materialize" and "default" in option
    }


def options(**given):
    """Options of materialize, the schema's where nothing is given."""
    return msgspec.convert({**defaults(), **given}, Options)


def flat(question="q", agent="a", **fields):
    """A flat row."""
    row = {"responses_create_params": {"input": question}, **fields}
    return row if agent is None else {**row, "agent_ref": {"name": agent}}


def typed(taskset="env:math", **fields):
    """A typed row."""
    return {"task_id": {"taskset": taskset, "task_id": "t1"}, "task_input": {"question": "1+1"}, **fields}


def expand(rows, *, router=None, prompt=None, skills=None, **given):
    """The expansion of rows that stand in `tasks.jsonl`, and the rows of the rollouts."""
    expansion = Expansion(options(**given), router, prompt=prompt, skills=skills)
    planner = Planner(1, "")
    lines = []
    for number, row in enumerate(rows, 1):
        line = orjson.dumps(row)
        for copies in expansion.expand(line, row, line, f"tasks.jsonl:{number}"):
            lines.append(planner.add(copies))
    return expansion, [orjson.loads(line) for line in b"".join(lines).split(b"\n")[:-1]]
