"""Where the rows of a run go, and how often (NeMo Gym contract 2.1 steps 4 and 6): decided once for each combination of names."""

from typing import Any, NamedTuple

from rollmake.core.contract import AGENT_REF, SERVER, TASK_SOURCE
from rollmake.core.errors import InputError
from rollmake.core.findings import Findings
from rollmake.core.options import DEFAULT, Options
from rollmake.core.router import Names, Router, row_names


class Sent(NamedTuple):
    """Rollouts of a row at one agent: the keys that are set on the row, and how many are owed."""

    stamps: dict[str, Any]
    repeats: int
    server: str | None
    agent: str | None


class Decision(NamedTuple):
    """What becomes of all rows with the same names. `replaced` is the name that `agent_map` overrides, and its successor."""

    sent: tuple[Sent, ...]
    problems: tuple[InputError, ...]
    replaced: tuple[str | None, str] | None


class Dispatch:
    """Decides by the options and, if there is a router, by the topology; remembers what is wrong, and where."""

    def __init__(self, options: Options, router: Router | None) -> None:
        self.options, self.router = options, router
        self.decisions: dict[tuple[str | None, ...], Decision] = {}
        self.findings = Findings()
        self.replaced: dict[tuple[str | None, str], int] = {}
        self.used: set[tuple[str, str]] = set()

    def sent(self, row: dict, taskset: str | None, where: str) -> tuple[Sent, ...]:
        """Where a row goes; nowhere if there is a problem, which is noted. Raises InputError for a name that is none."""
        ref = row.get(AGENT_REF)
        try:
            key = (row.get(SERVER), ref["name"] if ref else None, row.get(TASK_SOURCE), taskset)
            decision = self.decisions.get(key)
        except (KeyError, TypeError):
            decision = None
        if decision is None:
            names = row_names(row, typed=taskset is not None)
            decision = self.decisions[*names[:3], taskset] = self.decide(names, taskset)
        for problem in decision.problems:
            self.findings.add_error(problem, where)
        if decision.replaced:
            self.replaced[decision.replaced] = self.replaced.get(decision.replaced, 0) + 1
        return decision.sent

    def decide(self, names: Names, taskset: str | None) -> Decision:
        """The decision for all rows with these names."""
        replaced = None
        try:
            stamp = self.stamp(taskset)
            if stamp is not None:
                basis = taskset or names.source or stamp
                ways = [({SERVER: stamp}, names._replace(server=stamp), None)]
            else:
                basis = names.agent or names.source
                mapped = self.mapped(names)
                replaced = (basis, mapped) if mapped is not None and mapped != basis else None
                ways = self.ways(basis, names, mapped)
        except InputError as error:
            return Decision((), (error,), None)
        problems: list[InputError] = []
        sent = [self.way(stamps, to, target, basis, problems) for stamps, to, target in ways]
        return Decision(() if problems else tuple(sent), tuple(problems), replaced)

    def stamp(self, taskset: str | None) -> str | None:
        """The environment server that the options, not the row, name. Raises InputError if they should and do not."""
        options = self.options
        if taskset is not None:
            if taskset not in options.environment_server_routes:
                remedy = f"Add `environment_server_routes: {{{taskset}: SERVER}}`"
                raise InputError(f"no environment server is known for taskset {taskset!r}", remedy=remedy)
            return options.environment_server_routes[taskset]
        if options.environment_routing_mode == "taskset":
            remedy = "Add task_id.taskset and task_input to the row, or set another `environment_routing_mode`"
            raise InputError("is no typed task, which environment_routing_mode taskset needs", remedy=remedy)
        return options.environment_server_name if options.environment_routing_mode == "legacy" else None

    def mapped(self, names: Names) -> str | None:
        """What `agent_map` has for the row's agent, its task source or `_default`, in this order."""
        mapped = self.options.mapped
        key = next((key for key in (names.agent, names.source, DEFAULT) if key in mapped), None)
        if key is None:
            return None
        self.used.add(("agent_map", key))
        return mapped[key]

    def ways(self, basis: str | None, names: Names, mapped: str | None) -> list[tuple[dict, Names, str | None]]:
        """The keys to set, the names then, and the agent, for each agent that a row goes to. Raises InputError for nowhere."""
        stamps = {} if mapped is None else {AGENT_REF: {"name": mapped}}
        names = names if mapped is None else names._replace(agent=mapped)
        if basis in self.options.fan_out:
            self.used.add(("fan_out", basis))
            targets = self.options.fan_out[basis]
        elif names.agent is None and names.source is None and names.server is None:
            remedy = "Set `agent_name` (or `agent_map._default`), or write agent_ref or task_source on the row"
            raise InputError("names no agent and no task source", remedy=remedy)
        else:
            return [(stamps, names, names.agent)]
        return [
            (stamps if target == names.agent else {AGENT_REF: {"name": target}}, names._replace(agent=target), target)
            for target in targets
        ]

    def way(
        self, stamps: dict, names: Names, target: str | None, basis: str | None, problems: list[InputError]
    ) -> Sent:
        """One way of a row with its repeats and route; what is wrong with them is added to `problems`."""
        repeats = 0
        try:
            repeats = self.repeats(target, basis)
        except InputError as error:
            problems.append(error)
        if self.router is None:
            return Sent(stamps, repeats, names.server, names.agent)
        route = self.router.route(names)
        problems.extend(route.problems)
        if names.agent is None and route.agent is not None:
            stamps = {**stamps, AGENT_REF: {"name": route.agent}}
        return Sent(stamps, repeats, route.server, route.agent)

    def repeats(self, target: str | None, basis: str | None) -> int:
        """How many rollouts the options ask for. Raises InputError if they do not say."""
        given = self.options.num_repeats
        if not isinstance(given, dict):
            return given or 1
        key = next((key for key in (target, basis, DEFAULT) if key in given), None)
        if key is None:
            remedy = f"Add it or `{DEFAULT}` to num_repeats"
            raise InputError(
                f"num_repeats has no entry for {target or basis!r} (it has {', '.join(given)})", remedy=remedy
            )
        self.used.add(("num_repeats", key))
        return given[key]

    def warnings(self) -> list[str]:
        """What the reader should know although it is allowed: agents that were replaced, entries that no row used."""
        told = []
        if self.replaced:
            pairs = ", ".join(f"{old!r} -> {new!r} ({count} rows)" for (old, new), count in self.replaced.items())
            told.append(f"agent_map replaces what rows name: {pairs}")
        options = self.options
        entries = {"agent_map": options.agent_map, "fan_out": options.fan_out, "num_repeats": options.num_repeats}
        for option, keys in entries.items():
            named = [key for key in keys if key != DEFAULT] if isinstance(keys, dict) else []
            unused = [key for key in named if (option, key) not in self.used]
            if unused:
                told.append(f"{option} has entries that no row uses: {', '.join(unused)}")
        return told
