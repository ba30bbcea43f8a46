"""Stage environment: what the run needs to know of its servers, without their keys."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from rollmake.core.topology import ENVIRONMENT_VERSION, Environment, Topology, parse_topology, without_addresses
from rollmake.edge.files import write_atomic
from rollmake.edge.servers import environment_servers
from rollmake.edge.settings import environment_mapping
from rollmake.edge.topology import load_topology
from rollmake.environment.settings import embedded_settings
from rollmake.environment.topology import embedded_topology, identity

HELP = "Write down the servers of the environment: names, kinds, references, data sets and addresses."
KINDS = ("embedded", "head_server", "topology")


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """What the stage reads and writes."""

    environment: Annotated[str, msgspec.Meta(description="the config's `environment`, as YAML")]
    output: Annotated[Path, msgspec.Meta(description="environment.json, to be written")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """No option of the config beside `environment` itself."""


def run(files: Files, settings: Settings) -> None:
    """Ask for the topology, starting the servers for it where the config says how, and write it.

    Raises InputError for a config or topology file that cannot be used, ServerError for a server that does not answer.
    """
    mapping = environment_mapping(files.environment)
    kind = next(kind for kind in KINDS if kind in mapping)
    what = identity(embedded_settings(mapping["embedded"])) if kind == "embedded" else ""
    servers = current_topology(mapping, files.output.with_name("environment.log")).servers
    environment = Environment(version=ENVIRONMENT_VERSION, kind=kind, identity=what, servers=servers)
    write_atomic(files.output, msgspec.json.format(msgspec.json.encode(environment), indent=2) + b"\n")


def current_topology(mapping: dict[str, Any], log: Path) -> Topology:
    """The topology now; addresses are left out where every start gives new ones, so that the file does not change."""
    if "embedded" in mapping:
        return parse_topology(embedded_topology(None, None), where="environment.embedded")
    if "serve" not in mapping:
        return load_topology(mapping)
    with environment_servers(mapping, log=log) as head:
        return without_addresses(load_topology(mapping, head))
