"""What the embedded environment says about itself."""

from typing import Any

import orjson

from rollmake.environment.settings import Embedded

SERVER = "question_answering"
AGENT = "question_answering_agent"
RESOURCES = "question_answering_resources_server"
MODEL = "policy_model"


def embedded_topology(host: str | None, port: int | None) -> dict[str, Any]:
    """The servers of the embedded environment by name, all at `host` and `port`; None where it does not run yet.

    NeMo Gym contract, sections 4.1 and 4.2. Neither an address of the model server nor a key is in it.
    """
    address = {"entrypoint": "app.py", "host": host, "port": port}
    agent = {"type": "responses_api_agents", "name": AGENT}
    resources = {"type": "resources_servers", "name": RESOURCES}
    model = {"type": "responses_api_models", "name": MODEL}
    return {
        "head_server": {"host": host, "port": port},
        SERVER: {"environment_servers": {"legacy_agent": {**address, "agent_server": agent}}},
        AGENT: {
            "responses_api_agents": {"simple_agent": {**address, "resources_server": resources, "model_server": model}}
        },
        RESOURCES: {"resources_servers": {"question_answering": {**address, "domain": "knowledge"}}},
        MODEL: {"responses_api_models": {"embedded_model": address}},
    }


def server_instances(host: str, port: int, pid: int, start_time: float) -> list[dict[str, Any]]:
    """The reply of `GET /server_instances` (section 4.1); `start_time` in seconds since 1970."""
    authority = f"[{host}]" if ":" in host else host
    found = []
    for name, kinds in embedded_topology(host, port).items():
        if name == "head_server":
            continue
        ((kind, implementations),) = kinds.items()
        ((implementation, block),) = implementations.items()
        found.append(
            {
                "process_name": name,
                "server_type": kind,
                "name": implementation,
                "host": host,
                "port": port,
                "url": f"http://{authority}:{port}",
                "entrypoint": block["entrypoint"],
                "pid": pid,
                "start_time": start_time,
                "status": "success",
            }
        )
    return found


def identity(settings: Embedded) -> str:
    """What a result depends on, as a string that stays the same when address or latency change."""
    if settings.model is not None:
        parts: dict[str, Any] = {"model": settings.model.name, "api": settings.model.api}
    else:
        parts = {"policy": settings.policy, "error_rate": settings.error_rate, "seed": str(settings.seed)}
    return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS).decode()
