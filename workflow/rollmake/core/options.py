"""The options that say how input rows become rollouts (NeMo Gym contract 2.1)."""

from typing import Any, Literal

import msgspec

from rollmake.core.errors import InputError, raise_all

DEFAULT = "_default"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """By the names of the config; what each means and its default is in the config's schema."""

    limit: int | None
    num_repeats: int | dict[str, int] | None
    num_repeats_add_seed: bool
    interleave_repeats: bool
    agent_name: str | None
    agent_map: dict[str, str]
    fan_out: dict[str, list[str]]
    responses_create_params: dict[str, Any]
    environment_routing_mode: Literal["agent", "legacy", "taskset"]
    environment_server_name: str | None
    environment_server_routes: dict[str, str]

    @property
    def mapped(self) -> dict[str, str]:
        """`agent_map`, with `agent_name` as its default."""
        return self.agent_map if self.agent_name is None else {**self.agent_map, DEFAULT: self.agent_name}


def check_options(options: Options) -> None:
    """Raise InputError with everything in the options that contradicts itself, naming the keys."""
    problems = [*repeat_problems(options), *fan_out_problems(options), *routing_problems(options)]
    if options.limit is not None and options.limit < 0:
        problems.append(InputError(f"limit is {options.limit}", where="limit", remedy="Use null or 0 for no limit"))
    raise_all(problems)


def repeat_problems(options: Options) -> list[InputError]:
    """Numbers of repeats below 1."""
    given = options.num_repeats
    named = (
        {f"num_repeats.{key}": value for key, value in given.items()}
        if isinstance(given, dict)
        else {"num_repeats": given}
    )
    remedy = "A task has at least one rollout; leave its rows out of the input if you want none"
    return [
        InputError(f"{value} is no number of repeats", where=key, remedy=remedy)
        for key, value in named.items()
        if value is not None and value < 1
    ]


def fan_out_problems(options: Options) -> list[InputError]:
    """Lists of targets that are empty, or name one twice."""
    problems = []
    for key, targets in options.fan_out.items():
        twice = sorted({target for target in targets if targets.count(target) > 1})
        if not targets:
            remedy = "Name the agents, or leave the entry out"
            problems.append(InputError("an empty list would drop its rows", where=f"fan_out.{key}", remedy=remedy))
        if twice:
            remedy = "Use `num_repeats` for more rollouts"
            problems.append(InputError(f"{', '.join(twice)} stands twice", where=f"fan_out.{key}", remedy=remedy))
    return problems


def routing_problems(options: Options) -> list[InputError]:
    """Options that need another one, or contradict it."""
    problems = []
    default = options.agent_map.get(DEFAULT, options.agent_name)
    if options.agent_name is not None and default != options.agent_name:
        found = f"agent_name is {options.agent_name!r}, but agent_map has {default!r} as {DEFAULT}"
        problems.append(InputError(found, where=f"agent_map.{DEFAULT}", remedy="Leave one of them out"))
    if options.environment_routing_mode == "legacy" and not options.environment_server_name:
        found = (
            "environment_routing_mode is legacy, which sends every row to environment_server_name, but that is not set"
        )
        problems.append(InputError(found, where="environment_server_name", remedy="Name the environment server"))
    if options.environment_routing_mode == "taskset" and not options.environment_server_routes:
        found = "environment_routing_mode is taskset, which needs environment_server_routes, but that is not set"
        problems.append(
            InputError(found, where="environment_server_routes", remedy="Write `taskset: server` for each taskset")
        )
    return problems
