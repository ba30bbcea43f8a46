"""The `embedded` block of the config: who answers the questions."""

from typing import Annotated, Any, Literal

import msgspec
import yaml

from rollmake.core.errors import InputError


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI-compatible model server. The key itself is in the environment variable `api_key_env`, nowhere else."""

    base_url: Annotated[str, msgspec.Meta(pattern="^https?://[^@]+$")]
    name: Annotated[str, msgspec.Meta(min_length=1)]
    api: Literal["responses", "chat"] = "responses"
    api_key_env: Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$")] | None = None


class Embedded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The embedded environment: exactly one of `policy` and `model` is set. `latency_s` is in seconds."""

    policy: Literal["scripted"] | None = None
    model: Model | None = None
    error_rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.3
    latency_s: Annotated[float, msgspec.Meta(ge=0)] = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.policy is None) == (self.model is None):
            raise ValueError("exactly one of `policy` and `model` is needed")


def embedded_settings(block: dict[str, Any]) -> Embedded:
    """The settings in the `embedded` block of a config. Raises InputError naming the key and what it must be."""
    try:
        return msgspec.convert(block, Embedded)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where="environment.embedded") from None


def read_settings(text: str) -> Embedded:
    """The settings in YAML or JSON text: an `environment` mapping with `embedded`, or the embedded block itself.

    Raises InputError if it is neither.
    """
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"is no YAML: {getattr(error, 'problem', None) or error}", where="environment") from None
    if isinstance(value, dict) and ({"head_server", "topology", "serve"} & value.keys()):
        remedy = "Only the embedded environment can be served; these servers are started by their own command"
        raise InputError(f"holds {', '.join(value)}", where="environment", remedy=remedy)
    block = value["embedded"] if isinstance(value, dict) and value.keys() == {"embedded"} else value
    if not isinstance(block, dict):
        remedy = 'Give for instance {"embedded": {"policy": "scripted"}}'
        raise InputError(f"{block!r} is no mapping", where="environment", remedy=remedy)
    return embedded_settings(block)
