"""One check at a time on rows, by the functions that the router of materialize is made of."""

from rollmake.core import routing
from rollmake.core.episodes import taskset_of
from rollmake.core.errors import raise_all
from rollmake.core.router import row_names
from rollmake.core.topology import parse_topology


def names_of(row):
    return row_names(row, typed=taskset_of(row) is not None)


def with_agent(row, agent):
    return row if row.get("agent_ref") or agent is None else {**row, "agent_ref": {"name": agent}}


def resolve(row, topology):
    names = names_of(row)
    if names.agent or names.server or names.source is None:
        return row
    return with_agent(row, routing.agent_for_source(topology, names.source))


def stamp(row, topology):
    names = names_of(row)
    return row if names.typed or not names.server else with_agent(row, routing.agent_of_server(topology, names.server))


def check_name(row, topology):
    names = names_of(row)
    raise_all(routing.agent_problems(topology, names.agent) if names.agent else [])
    return row


def check_pairing(row, topology):
    names = names_of(row)
    raise_all(routing.pairing_problems(topology, names.agent, names.source) if names.agent else [])
    return row


def check_server(row, topology):
    names = names_of(row)
    raise_all(routing.server_problems(topology, names.server, names.agent) if names.server else [])
    return row


def server(row, topology):
    return routing.server_for_agent(topology, names_of(row).agent)


CHECKS = {
    "resolve_task_sources": resolve,
    "stamp_agent_refs": stamp,
    "validate_agent_names": check_name,
    "validate_agent_pairings": check_pairing,
    "validate_environment_servers": check_server,
    "server_for_agent": server,
}


def run(input, topology):
    if input["check"] == "label_runs":
        return routing.label_runs(input["agent_by_server"])
    parsed = parse_topology(topology, where="topology")
    return [CHECKS[input["check"]](row, parsed) for row in input["rows"]]
