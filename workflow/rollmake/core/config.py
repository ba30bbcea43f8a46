"""The config: checked against its schema, defaults filled in, the options of each run resolved."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from rollmake.core.errors import InputError, raise_all

Json = dict[str, Any]
# What may name the tasks of a run.
TASKS = ("input", "split", "input_glob")


def resolve(config: Json, schema: Json) -> Json:
    """The config with every default in place and each run's options complete.

    A run's options are the schema's defaults, then `defaults`, then its own, each replacing the one before as a whole.
    Raises InputError (Problems if there are several) that names the key, what was found and the nearest known key.
    """
    raise_all(problems(config, schema))
    options = schema["$defs"]["options"]["properties"]
    standard = {name: option["default"] for name, option in options.items() if "default" in option}
    runs = {}
    for name, own in config["runs"].items():
        run = {**standard, "environment": config.get("environment"), **config.get("defaults", {}), **own}
        if run["environment"] is None:
            raise InputError(
                "the run has no environment", where=f"runs.{name}", remedy="Add `environment`, at the top or to the run"
            )
        run |= _tasks(own, run, f"runs.{name}")
        runs[name] = run | {"environment": filled(run["environment"], {"$ref": "#/$defs/environment"}, schema)}
    pairs = config.get("compare", [])
    raise_all([problem for place, pair in enumerate(pairs) for problem in _compared(pair, runs, f"compare.{place}")])
    results = config.get("results", schema["properties"]["results"]["default"])
    return {"results": results, "runs": runs, "compare": pairs, "job": config.get("job", {})}


def _tasks(own: Json, run: Json, where: str) -> Json:
    """The options that name the tasks, null but for one: a run's own replaces another that it has from `defaults`."""
    given = [key for key in TASKS if own.get(key) is not None] or [key for key in TASKS if run.get(key) is not None]
    if len(given) != 1:
        found = f"the run has both {' and '.join(given)}" if given else "the run has no input"
        choice = (
            "`input`, JSONL files of tasks, `split`, data sets of the environment, or `input_glob`, existing rollouts"
        )
        remedy = "Keep one of them" if given else f"Add {choice}"
        raise InputError(found, where=where, remedy=remedy)
    return {key: run[key] if key in given else None for key in TASKS}


def _compared(pair: list[str], runs: Mapping[str, Json], where: str) -> list[InputError]:
    """What is wrong with two runs that are to be compared."""
    problems = []
    for name in pair:
        if name not in runs:
            remedy = f"Runs are {', '.join(sorted(runs))}"
            problems.append(InputError(f"there is no run {name!r}", where=where, remedy=remedy))
        elif runs[name]["disable_aggregation"]:
            remedy = "Turn `disable_aggregation` off for it"
            problems.append(InputError(f"the run {name!r} has no scores to compare", where=where, remedy=remedy))
    return problems


def problems(value: Any, schema: Json, *, root: Json | None = None, where: str = "") -> list[InputError]:
    """Everything in `value` that its schema refuses; `root` holds the definitions if `schema` is a part of it."""
    whole = root or schema
    validator = Draft202012Validator({**schema, "$defs": whole.get("$defs", {})})
    found = sorted(validator.iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path])
    return [problem for error in found for problem in _explain(error, where)]


def filled(value: Json, schema: Json, root: Json) -> Json:
    """`value` with the defaults of its objects' keys filled in, below parents that are there."""
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    result = dict(value)
    for key, part in schema.get("properties", {}).items():
        if key in result and isinstance(result[key], dict):
            result[key] = filled(result[key], part, root)
        elif key not in result and "default" in part and _applies(key, result):
            result[key] = part["default"]
    return result


def stage_options(schema: Json, stage: str, *, result: bool | None = None) -> Json:
    """The options that `stage` reads, by name; with `result` only those that do, or do not, change a result."""
    options = schema["$defs"]["options"]["properties"]
    return {
        name: option
        for name, option in options.items()
        if stage in _stages(option) and (result is None or option["x-result"] == result)
    }


def _stages(option: Json) -> list[str]:
    named = option.get("x-stage", [])
    return [named] if isinstance(named, str) else named


def _applies(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a default means anything here: those of the scripted policy do not apply to a model."""
    return not ("model" in settings and key in {"error_rate", "latency_s", "seed"})


def _explain(error: ValidationError, where: str) -> Iterator[InputError]:
    place = ".".join([where] * bool(where) + [str(part) for part in error.absolute_path]) or "the top level"
    match error.validator:
        case "additionalProperties":
            yield from _unknown(error, place)
        case "type":
            wanted = error.validator_value
            wanted = wanted if isinstance(wanted, str) else " or ".join(wanted)
            yield InputError(f"{error.instance!r} is {_kind(error.instance)}, not {wanted}", where=place)
        case "oneOf":
            choices = [part["required"][0] for part in error.validator_value]
            given = [name for name in choices if isinstance(error.instance, dict) and name in error.instance]
            found = f"it has {' and '.join(given)}" if given else "it has none of them"
            yield InputError(f"{found}; exactly one of {', '.join(choices)} is needed", where=place)
        case "pattern" if "x-secret" in error.schema:
            # What stands there may be a key: it is not repeated.
            yield InputError(error.schema["x-secret"], where=place)
        case "pattern" if "propertyNames" in error.absolute_schema_path:
            yield InputError(
                f"{error.instance!r} is no name of a run", where=place, remedy="Names match " + error.validator_value
            )
        case "enum" if isinstance(error.instance, str) and error.instance in error.schema.get("x-refused", {}):
            reason = error.schema["x-refused"][error.instance]
            yield InputError(f"{error.instance!r} is refused", where=place, remedy=reason)
        case "required":
            missing = sorted(set(error.validator_value) - error.instance.keys())
            yield InputError(f"the key {', '.join(missing)} is missing", where=place)
        case _:
            yield InputError(error.message, where=place)


def _unknown(error: ValidationError, place: str) -> Iterator[InputError]:
    known = error.schema.get("properties", {})
    for key in error.instance.keys() - known.keys():
        near = get_close_matches(str(key), known, n=1)
        remedy = f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(known))}"
        yield InputError(f"unknown key {key!r}", where=place, remedy=remedy)


def _kind(value: Any) -> str:
    names = {
        dict: "a mapping",
        list: "a list",
        str: "text",
        bool: "a truth value",
        int: "an integer",
        float: "a number",
    }
    return names.get(type(value), "nothing")
