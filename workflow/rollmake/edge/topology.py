"""Where an environment's topology comes from: a head server or a YAML file."""

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import yaml

from rollmake.core.errors import InputError, RollmakeError, ServerError
from rollmake.core.topology import ENVIRONMENTS, Topology, parse_topology

TIMEOUT_S = 60
# Head servers are neighbours: a proxy of the environment cannot reach them.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
START = "Start the servers, or correct `head_server` in the config"


def load_topology(environment: dict, head: str | None = None) -> Topology:
    """The topology of the config's `environment` mapping, asked for now.

    `head` is the address of a head server that was started for the occasion; it replaces `head_server`. Raises
    InputError for a file and ServerError for a server that has no topology.
    """
    if "topology" in environment:
        return file_topology(Path(environment["topology"]))
    if not head and "head_server" not in environment:
        raise ServerError("no head server is running", where="environment", remedy="Start the environment first")
    return head_topology(head or environment["head_server"])


def server_addresses(environment: dict, head: str | None) -> dict[str, str]:
    """Environment server name -> URL, asked for now since servers move; those without an address are left out."""
    named = load_topology(environment, head).named(ENVIRONMENTS)
    return {name: server.url for name, server in named.items() if server.url}


def file_topology(path: Path) -> Topology:
    """The topology in a YAML file. Raises InputError with the path and, for YAML, the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Correct `topology` in the config"
        raise InputError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}", where=str(path), remedy=remedy
        ) from None
    return parse_topology(parse_yaml(text, str(path), InputError), where=str(path))


def head_topology(head: str) -> Topology:
    """The topology that a head server reports (NeMo Gym contract 4.1). Raises ServerError with the URL."""
    url = f"{head.rstrip('/')}/global_config_dict_yaml"
    config = parse_yaml(yaml_text(fetch(url), url), url, ServerError)
    try:
        return parse_topology(config, where=url, unspecified_host=urlsplit(url).hostname or "127.0.0.1")
    except InputError as error:
        raise ServerError(error.found, where=url, remedy="Is this the address of a head server?") from None


def fetch(url: str) -> bytes:
    """The body of a successful GET. Raises ServerError for every other end."""
    try:
        with OPENER.open(url, timeout=TIMEOUT_S) as reply:
            return reply.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise ServerError(f"answered with status {error.code}", where=url, remedy=START) from None
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise ServerError(f"no answer ({reason})", where=url, remedy=START) from None


def yaml_text(body: bytes, url: str) -> str:
    """YAML in a JSON string, as the reference's head server answers, or as it is."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, str):
        return value
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise ServerError(
            "the answer is no UTF-8 text", where=url, remedy="Is this the address of a head server?"
        ) from None


def parse_yaml(text: str, where: str, kind: type[RollmakeError]) -> object:
    """The value of a YAML text. The message names the line and quotes nothing: configs hold keys."""
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        raise kind("is no YAML", where=place, remedy="Correct it there; quote text that YAML gives a meaning") from None
