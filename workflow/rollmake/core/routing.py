"""Who answers a row: task source -> agent -> environment server (NeMo Gym contract 4.2), for one name at a time."""

from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from rollmake.core.errors import InputError, raise_all
from rollmake.core.topology import AGENTS, ENVIRONMENTS, RESOURCES, Server, Topology

REMAP = "Correct the name, or send these rows elsewhere with `agent_map` or `agent_name`"
TOPOLOGY = "or give the run an `environment` whose `topology` has the servers of these rows"
UNCHECKED = "Send these rows to an accepted agent, or set `allow_unsupported_pairing: true`"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; the nearest is 'x'`, or which names there are, for a name that is not known."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1)
    if close:
        return f"; the nearest is {close[0]!r}"
    listed = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return f"; known are {listed}" if known else "; the environment has none"


def referenced(server: Server, kind: str, field: str) -> list[str]:
    """The servers of `kind` that a server names; `field` is the key that implies the kind."""
    return [ref.name for ref in server.references if ref.kind == kind or (ref.kind is None and ref.field == field)]


def bound_agents(server: Server) -> list[str]:
    """The agents that an environment server fronts."""
    return referenced(server, AGENTS, "agent_server")


def verifiers(agent: Server) -> list[str]:
    """The resources servers that an agent runs against."""
    return [ref.name for ref in agent.references if ref.field == "resources_server"]


def agent_for_source(topology: Topology, source: str) -> str:
    """The agent that answers the tasks of `source`: the pin of its data sets, itself, or the one agent that uses it.

    Raises InputError if that is nobody or not unique.
    """
    server = topology.servers.get(source)
    sources = topology.named(RESOURCES) | topology.named(AGENTS)
    if server is None or source not in sources:
        what = "is not in the environment" if server is None else f"is one of the {server.kind}, which have no tasks"
        raise InputError(f"task_source {source!r} {what}{nearest(source, sources)}", remedy=REMAP)
    pins = sorted({dataset.agent for dataset in server.datasets if dataset.agent})
    users = [name for name, agent in topology.named(AGENTS).items() if source in verifiers(agent)]
    candidates = [source] if server.kind == AGENTS else users
    remedy = f"Pick one with `agent_map: {{{source}: AGENT}}`"
    if len(pins) > 1:
        raise InputError(
            f"the data sets of task_source {source!r} pin different agents ({', '.join(pins)})", remedy=remedy
        )
    if pins and pins[0] not in candidates:
        found = f"task_source {source!r} pins agent {pins[0]!r}, which does not use it{nearest(pins[0], candidates)}"
        raise InputError(found, remedy=remedy)
    if not pins and len(candidates) != 1:
        found = f"task_source {source!r} is used by {len(users)} agents ({', '.join(users) or 'none'})"
        raise InputError(found, remedy=f"{remedy}, or pin one with `agent:` on its data set")
    return (pins or candidates)[0]


def agent_problems(topology: Topology, name: str) -> list[InputError]:
    """A problem if `name` is no agent of the environment."""
    known = topology.named(AGENTS)
    if name in known:
        return []
    what = "is not in the environment"
    if name in topology.servers:
        what = f"is one of the {topology.servers[name].kind}, not an agent"
    return [InputError(f"agent {name!r} {what}{nearest(name, known)}", remedy=REMAP)]


def pairing_problems(topology: Topology, name: str, source: str | None) -> list[InputError]:
    """A problem for each resources server that accepts other agents than `name` only.

    Looked at are the task source and the resources servers that the agent runs against; an empty list accepts all.
    """
    agent, resources, problems = topology.servers[name], topology.named(RESOURCES), []
    for verifier in dict.fromkeys([source, *verifiers(agent)]):
        accepted = resources[verifier].allowed_agents if verifier in resources else None
        if accepted and agent.implementation not in accepted:
            found = f"{verifier!r} accepts {', '.join(accepted)} only, but agent {name!r} is a {agent.implementation}"
            problems.append(InputError(found, remedy=UNCHECKED))
    return problems


def server_problems(topology: Topology, name: str, agent: str | None) -> list[InputError]:
    """A problem if `name` is no environment server, or if it does not front the agent of its row."""
    known = topology.named(ENVIRONMENTS)
    remedy = "Correct `environment_server_name`, `environment_server_routes` or the row"
    if name not in known:
        return [
            InputError(f"environment server {name!r} is not in the environment{nearest(name, known)}", remedy=remedy)
        ]
    fronted = bound_agents(known[name])
    if agent is None or not fronted or agent in fronted:
        return []
    return [InputError(f"environment server {name!r} fronts {', '.join(fronted)}, not agent {agent!r}", remedy=remedy)]


def agent_of_server(topology: Topology, server: str) -> str | None:
    """The agent that an environment server fronts, for rows that name the server only; None if it fronts none."""
    known = topology.named(ENVIRONMENTS).get(server)
    return next(iter(bound_agents(known)), None) if known else None


def servers_by_agent(topology: Topology) -> dict[str, list[str]]:
    """Agent -> the environment servers that front it."""
    servers: dict[str, list[str]] = {}
    for name, server in topology.named(ENVIRONMENTS).items():
        for agent in dict.fromkeys(bound_agents(server)):
            servers.setdefault(agent, []).append(name)
    return servers


def server_for_agent(topology: Topology, agent: str) -> str:
    """The one environment server that fronts `agent`. Raises InputError if there is none, or several."""
    by_agent = servers_by_agent(topology)
    fronting = by_agent.get(agent, [])
    if len(fronting) == 1:
        return fronting[0]
    if fronting:
        remedy = "Name the server on the row as `_ng_environment_server`"
        raise InputError(f"agent {agent!r} is fronted by several servers: {', '.join(fronting)}", remedy=remedy)
    found = f"no environment server fronts agent {agent!r}{nearest(agent, by_agent)}"
    raise InputError(found, remedy=f"Add an environment server with `agent_server: {{name: ...}}` for it, {TOPOLOGY}")


def server_of_row(topology: Topology, stamp: str | None, agent: str | None) -> str | None:
    """The environment server of a row that something else collected: its stamp, else the one that fronts its agent.

    None for a row that names neither. Raises InputError for a stamp or an agent that leads to no server, or to several.
    """
    if stamp is not None:
        unknown = server_problems(topology, stamp, None)
        raise_all([InputError(problem.found, remedy=f"Correct the row, {TOPOLOGY}") for problem in unknown])
        return stamp
    return None if agent is None else server_for_agent(topology, agent)


def label_runs(agent_by_server: Mapping[str, str | None]) -> dict[str, str]:
    """Environment server -> its label in the aggregate file (NeMo Gym contract 5.5).

    The label is the agent's name where only one server fronts it, and the server's own name where labels would clash.
    """
    fronts = Counter(agent for agent in agent_by_server.values() if agent is not None)
    labels = {server: agent if fronts[agent] == 1 else server for server, agent in agent_by_server.items()}
    while True:
        uses = Counter(labels.values())
        clashing = [server for server, label in labels.items() if label != server and uses[label] > 1]
        if not clashing:
            return labels
        labels |= {server: server for server in clashing}
