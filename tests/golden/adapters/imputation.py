from operator import itemgetter

import polars as pl

from rollmake.core.contract import AGENT_REF, ROLLOUT, SERVER, TASK
from rollmake.core.coverage import numbers as coverage_numbers
from rollmake.core.errors import InputError
from rollmake.core.imputation import Scoring
from rollmake.core.routing import servers_by_agent
from rollmake.core.topology import parse_topology

BY_KEY = itemgetter(TASK, ROLLOUT)


def run(input: dict, topology: dict | None):
    """The shards are external ones: what is owed is what their materialized files say."""
    servers = servers_by_agent(parse_topology(topology, where="topology"))
    shards, config = input["shards"], input["config"]
    if not shards:
        raise InputError("there are no shards")
    count_missing = config.get("count_missing_rollouts_as_zero", False)
    classes = config.get("count_failure_classes_as_zero", [])
    scoring = Scoring(dict, count_classes=classes, count_missing=count_missing)
    routed = {kind: rows_of(shards, kind, servers) for kind in ("materialized", "rollouts", "failures")}
    for server, row in routed["rollouts"]:
        scoring.add_rollout(server, row)
    for server, row in routed["failures"]:
        scoring.outcomes.add_failure(server, row)
    owed = [
        (server, row[TASK], row[ROLLOUT], (row.get(AGENT_REF) or {}).get("name"))
        for server, row in routed["materialized"]
    ]
    schema = {"server": pl.String, "task": pl.Int64, "rollout": pl.Int64, "agent": pl.String}
    numbers = coverage_numbers(scoring.settle(pl.DataFrame(owed, schema=schema, orient="row")))
    for server, row in routed["materialized"]:
        scoring.impute(server, row)
    found = {
        "coverage/expected": numbers["recorded"] + sum(numbers["failed_by_class"].values()),
        "coverage/scored": numbers["recorded"],
        "coverage/missing": sum(numbers["failed_by_class"].values()),
    }
    return {
        "merged": sorted((row for _, row in routed["rollouts"]), key=BY_KEY),
        "metric_input": sorted((row for _, rows in scoring.items() for row in rows), key=BY_KEY),
        "coverage": found | ({"coverage/imputed": numbers["imputed_missing"]} if count_missing else {}),
    }


def rows_of(shards, kind, servers):
    rows = [row for shard in shards.values() for row in shard.get(kind, [])]
    return [(group_of(row, servers), row) for row in rows if SERVER in row or AGENT_REF in row]


def group_of(row, servers):
    """Nothing is sent anywhere here, so an agent that several servers front is as good as a server."""
    if SERVER in row:
        return row[SERVER]
    agent = row[AGENT_REF]["name"]
    fronting = servers.get(agent, [])
    return fronting[0] if len(fronting) == 1 else agent
