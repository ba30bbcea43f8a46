"""The data sets that an environment declares for a split: training, validation or benchmark."""

from typing import NamedTuple

from rollmake.core.errors import InputError
from rollmake.core.topology import Topology

REMEDY = "Declare one below `datasets` of a server, or use `input`"


class Declared(NamedTuple):
    """A data set and the server that declares it, whose tasks they are; `place` says so to a reader."""

    server: str
    path: str
    place: str


def declared(topology: Topology, split: str) -> tuple[list[Declared], list[InputError]]:
    """The data sets of a type, in the order of the topology, and what is wrong: none of that type, or one without a path."""
    found, problems = [], []
    types: dict[str, list[str]] = {}
    for name, server in topology.servers.items():
        for number, dataset in enumerate(server.datasets):
            place = f"{name}.datasets.{number}" + (f" ({dataset.name})" if dataset.name else "")
            if dataset.type != split:
                types.setdefault(str(dataset.type), []).append(name)
            elif dataset.jsonl_fpath:
                found.append(Declared(name, dataset.jsonl_fpath, place))
            else:
                problems.append(InputError("has no jsonl_fpath", where=place, remedy="Add the path of its JSONL file"))
    if not found and not problems:
        others = ", ".join(f"{kind} ({', '.join(dict.fromkeys(names))})" for kind, names in types.items())
        known = f"there is {others}" if others else "it declares none at all"
        text = f"no server of the environment declares a data set of type {split!r}; {known}"
        problems.append(InputError(text, where="split", remedy=REMEDY))
    return found, problems
