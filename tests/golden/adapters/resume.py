"""What is on disk -> the rows that a collector still dispatches, as it sends them."""

import json

import polars as pl

from rollmake.core.contract import ROLLOUT, TASK
from rollmake.core.ledger import Ledger
from rollmake.core.settlement import KEY, failure_facts, max_attempts, success_facts
from rollmake.edge.shard_work import request


def lines(rows):
    return [json.dumps(row).encode() for row in rows or []]


def run(input, topology):
    config = input["config"]
    rows = input["materialized"]
    owed = pl.DataFrame([(row[TASK], row[ROLLOUT]) for row in rows], schema=KEY, orient="row")
    failures = failure_facts(lines(input["failures"]), config.get("retry_terminal_timeouts", False))
    ledger = Ledger(
        owed,
        success_facts(lines(input["rollouts"])),
        failures,
        max_attempts(config.get("max_attempts"), input["env"]),
        longest_first=config.get("dispatch_longest_first", False),
    )
    sent = [request(json.dumps(rows[position]).encode(), ledger, position) for position in ledger.to_dispatch()]
    return {"dispatch": [json.loads(body) for _, body in sent]}
