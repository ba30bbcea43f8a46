"""Where the rows of a run go: the names on a row -> agent and environment server, worked out once for each combination."""

from collections.abc import Mapping
from typing import NamedTuple

from rollmake.core.contract import AGENT_REF, SERVER, TASK_SOURCE
from rollmake.core.errors import InputError
from rollmake.core.routing import (
    agent_for_source,
    agent_of_server,
    agent_problems,
    pairing_problems,
    server_for_agent,
    server_problems,
)
from rollmake.core.topology import Topology

OVERRIDE = "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING"
NAME_KEYS = (SERVER, f"{AGENT_REF}.name", TASK_SOURCE)


class Names(NamedTuple):
    """What a row says about who answers it. `typed` marks a row that is sent as an episode."""

    server: str | None
    agent: str | None
    source: str | None
    typed: bool


class Route(NamedTuple):
    """Who answers: either may be None while nothing, or several, would do; `problems` says why."""

    agent: str | None
    server: str | None
    problems: tuple[InputError, ...] = ()


def row_names(row: dict, *, typed: bool) -> Names:
    """The names on a row. Raises InputError naming the key whose value cannot be one."""
    ref = row.get(AGENT_REF) or None
    if ref is not None and not isinstance(ref, dict):
        raise InputError(f"{AGENT_REF} is {ref!r}, not an object", remedy='Write {"name": "AGENT"}')
    names = Names(row.get(SERVER), ref and ref.get("name"), row.get(TASK_SOURCE), typed)
    for key, value in zip(NAME_KEYS, names, strict=False):
        if value is not None and (type(value) is not str or not value):
            raise InputError(f"{key} is {value!r}, not a name", remedy="Write a non-empty string or leave it out")
    return names


def unchecked_pairings(option: bool, variables: Mapping[str, str]) -> bool:
    """Whether pairings are allowed that a resources server does not list: by the option or an environment variable."""
    return option or variables.get(OVERRIDE, "").lower() not in ("", "0", "false")


class Router:
    """Routes rows by the topology."""

    def __init__(self, topology: Topology, *, allow_unsupported_pairing: bool) -> None:
        self.topology, self.unchecked_pairings = topology, allow_unsupported_pairing

    def route(self, names: Names) -> Route:
        """The route of all rows with these names (NeMo Gym contract 4.2, 2.1 step 6)."""
        try:
            agent = self.agent(names)
        except InputError as error:
            return Route(None, None, (error,))
        problems = self.agent_problems(agent, names.source)
        if names.server is not None:
            return Route(agent, names.server, (*server_problems(self.topology, names.server, agent), *problems))
        if agent is None or problems:
            return Route(agent, None, tuple(problems))
        try:
            return Route(agent, server_for_agent(self.topology, agent))
        except InputError as error:
            return Route(agent, None, (error,))

    def agent(self, names: Names) -> str | None:
        """The agent on the row, else the one that its server fronts or that answers its task source."""
        if names.agent is not None or names.typed:
            return names.agent
        if names.server is not None:
            return agent_of_server(self.topology, names.server)
        return agent_for_source(self.topology, names.source) if names.source is not None else None

    def agent_problems(self, agent: str | None, source: str | None) -> list[InputError]:
        """What keeps the agent from answering."""
        if agent is None:
            return []
        unknown = agent_problems(self.topology, agent)
        return unknown if unknown or self.unchecked_pairings else pairing_problems(self.topology, agent, source)
