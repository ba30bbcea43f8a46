"""Rows of a library call -> requests: who answers each row, and what is sent."""

from collections.abc import Iterable
from typing import Any

from rollmake.core.contract import AGENT_REF, ROLLOUT, ROLLOUT_ID, SERVER, TASK
from rollmake.core.episodes import episode_request, taskset_of
from rollmake.core.errors import InputError, Problems, raise_all
from rollmake.core.findings import Findings
from rollmake.core.router import Names, Route, Router, row_names
from rollmake.core.topology import ENVIRONMENTS, Topology
from rollmake.edge.engine import Request
from rollmake.library.examples import encoded


class Addressing:
    """Routes rows by the topology (NeMo Gym contract 4.2), once for each combination of names."""

    def __init__(self, topology: Topology, *, allow_unsupported_pairing: bool) -> None:
        named = topology.named(ENVIRONMENTS)
        self.urls = {name: server.url for name, server in named.items() if server.url}
        self._router = Router(topology, allow_unsupported_pairing=allow_unsupported_pairing)
        self._routes: dict[Names, Route] = {}

    def check(self, rows: Iterable[dict[str, Any]]) -> None:
        """Raise InputError with everything that keeps one of `rows` from being sent, by place (`rows[3]`)."""
        findings = Findings()
        for position, row in enumerate(rows):
            try:
                self.request(position, row)
            except InputError as error:
                for problem in problems_in(error):
                    findings.add_error(problem, place(position))
        raise_all([*findings])

    def request(self, position: int, row: dict[str, Any]) -> Request:
        """The row with the server that answers it and what is sent: the row as it is, an episode, or with its agent.

        Raises InputError with all that is wrong.
        """
        if not isinstance(row, dict):
            raise InputError(f"is {type(row).__name__}, not a dict")
        typed = taskset_of(row) is not None
        names = row_names(row, typed=typed)
        route = self._routes.get(names)
        if route is None:
            route = self._routes[names] = self._route(names)
        raise_all(list(route.problems))
        assert route.server is not None
        if typed:
            content = _episode(row)
        elif names.agent is None and route.agent is not None:
            content = {**row, AGENT_REF: {"name": route.agent}}
        else:
            content = row
        return Request(position, row, route.server, encoded(content))

    def _route(self, names: Names) -> Route:
        """The route with all its problems; without any, it has a server with an address."""
        route = self._router.route(names)
        if route.problems:
            return route
        if route.server is None:
            ways = SERVER if names.typed else f"{AGENT_REF}, task_source or {SERVER}"
            return route._replace(
                problems=(InputError("names nobody who answers it", remedy=f"Write {ways} on the row"),)
            )
        if route.server not in self.urls:
            found = f"no address is known of environment server {route.server!r}"
            return route._replace(problems=(InputError(found, remedy="Give it a host and a port, or start it"),))
        return route


def problems_in(error: InputError) -> list[InputError]:
    """The problems that an error stands for."""
    return error.problems if isinstance(error, Problems) else [error]


def place(position: int, row: dict[str, Any] | None = None) -> str:
    """How messages name a row, with task and rollout index if it has them."""
    known = [f"{word} {row[key]}" for word, key in (("task", TASK), ("rollout", ROLLOUT)) if row and key in row]
    return f"rows[{position}]" + (f" ({', '.join(known)})" if known else "")


def _episode(row: dict[str, Any]) -> dict[str, Any]:
    if row.get(ROLLOUT_ID) is None and not (TASK in row and ROLLOUT in row):
        remedy = f"Write {ROLLOUT_ID}, or {TASK} and {ROLLOUT}, on the row"
        raise InputError("has nothing that would name its episode", remedy=remedy)
    return episode_request(row)
