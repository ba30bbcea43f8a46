"""The servers of an environment: what routing and addressing need of a config, and nothing else of it."""

import re
from collections.abc import Iterator, Mapping

import msgspec

from rollmake.core.errors import DataError, InputError

ENVIRONMENTS, AGENTS = "environment_servers", "responses_api_agents"
RESOURCES, MODELS = "resources_servers", "responses_api_models"
KINDS = (ENVIRONMENTS, AGENTS, RESOURCES, MODELS)
ENVIRONMENT_VERSION = 1
# Keys that name a server by themselves, without a `type` beside the name.
UNTYPED = ("agent_server", "resources_server")
ANYWHERE = ("0.0.0.0", "::", "")
CREDENTIALS = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)(?:[^/?#]*@)?([^?#]*).*$", re.DOTALL)


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A server's key that names another server, as in `agent_server: {type: responses_api_agents, name: solver}`."""

    field: str
    kind: str | None
    name: str


class DataSet(msgspec.Struct, frozen=True, kw_only=True):
    """A data set of a server; `agent` pins who answers its tasks."""

    name: str | None = None
    type: str | None = None
    jsonl_fpath: str | None = None
    agent: str | None = None


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """One named server. `url` is null where the address is not known or not fixed."""

    kind: str
    implementation: str
    url: str | None = None
    references: tuple[Reference, ...] = ()
    datasets: tuple[DataSet, ...] = ()
    allowed_agents: tuple[str, ...] | None = None


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of an environment by name, in the order of the config."""

    servers: dict[str, Server]

    def named(self, kind: str) -> dict[str, Server]:
        """The servers of one kind."""
        return {name: server for name, server in self.servers.items() if server.kind == kind}


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """environment.json. `identity` is what a result depends on beside the rows; `servers` as in `Topology`."""

    version: int
    kind: str
    identity: str
    servers: dict[str, Server]

    @property
    def topology(self) -> Topology:
        """The servers alone."""
        return Topology(servers=self.servers)


def decode_environment(content: bytes, where: str) -> Environment:
    """The content of an environment.json. Raises DataError if it is none, or of another version."""
    try:
        environment = msgspec.json.decode(content, type=Environment)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(
            f"no environment of rollmake: {error}", where=where, remedy="Run the stage environment"
        ) from None
    if environment.version != ENVIRONMENT_VERSION:
        found = f"version {environment.version}, not {ENVIRONMENT_VERSION}"
        raise DataError(found, where=where, remedy="Run the stage environment again")
    return environment


def parse_topology(config: object, *, where: str, unspecified_host: str = "127.0.0.1") -> Topology:
    """The servers in a config `{name: {kind: {implementation: block}}}` (NeMo Gym contract 4.2).

    Values that are no server are passed over; `${...}` stays text. A server that listens on all interfaces is reached
    at `unspecified_host`. Raises InputError if `config` is no mapping.
    """
    if not isinstance(config, Mapping):
        found = f"a mapping of servers was expected, not {type(config).__name__}"
        raise InputError(found, where=where, remedy="It holds `name: {kind: {implementation: {host: ..., port: ...}}}`")
    found = ((str(name), parse_server(value, unspecified_host)) for name, value in config.items())
    return Topology(servers={name: server for name, server in found if server is not None})


def parse_server(value: object, unspecified_host: str) -> Server | None:
    """The server in a value of the config, or None if it holds none."""
    if not isinstance(value, Mapping):
        return None
    kind = next((kind for kind in KINDS if isinstance(value.get(kind), Mapping) and value[kind]), None)
    if kind is None:
        return None
    implementation, block = next(iter(value[kind].items()))
    block = block if isinstance(block, Mapping) else {}
    allowed = block.get("allowed_agents")
    return Server(
        kind=kind,
        implementation=str(implementation),
        url=server_url(block.get("host"), block.get("port"), unspecified_host),
        references=tuple(references(block)),
        datasets=tuple(datasets(block.get("datasets"))),
        allowed_agents=tuple(map(str, allowed)) if isinstance(allowed, list) else None,
    )


def server_url(host: object, port: object, unspecified_host: str) -> str | None:
    """`http://host:port`, or None while one of them is unknown or an interpolation."""
    port = int(port) if isinstance(port, str) and port.isascii() and port.isdigit() else port
    if (
        isinstance(port, bool)
        or not isinstance(port, int)
        or (host is not None and not isinstance(host, str))
        or "${" in (host or "")
    ):
        return None
    name = (host or "").rpartition("@")[2].strip("[]")
    name = unspecified_host if name in ANYWHERE else name
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def references(block: Mapping) -> Iterator[Reference]:
    """The keys of a server's block that name another server."""
    for field, value in block.items():
        if isinstance(value, Mapping) and isinstance(value.get("name"), str):
            kind = value.get("type")
            if kind in KINDS or (kind is None and field in UNTYPED):
                yield Reference(field=str(field), kind=kind, name=value["name"])


def datasets(listed: object) -> Iterator[DataSet]:
    """The data sets of a server, by the four things that rollmake needs to know of each."""
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, Mapping):
            known = {key: entry[key] for key in DataSet.__struct_fields__ if isinstance(entry.get(key), str)}
            if "jsonl_fpath" in known:
                known["jsonl_fpath"] = without_credentials(known["jsonl_fpath"])
            yield DataSet(**known)


def without_credentials(address: str) -> str:
    """A path as it is; a URL without user, password, query and fragment."""
    return CREDENTIALS.sub(r"\1\2", address)


def without_addresses(topology: Topology) -> Topology:
    """The topology of servers that get a new address at every start."""
    return Topology(
        servers={name: msgspec.structs.replace(server, url=None) for name, server in topology.servers.items()}
    )
