"""Reading the config, and what the command line makes of it."""

import shlex
from collections.abc import Hashable, Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml

from rollmake.core.config import Json, filled, problems, resolve, stage_options
from rollmake.core.errors import InputError, raise_all


class _StrictLoader(yaml.SafeLoader):
    """PyYAML lets the last of two equal keys win without a word, so that a run can vanish; here it is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            place = f"{key_node.start_mark.name}:{key_node.start_mark.line + 1}"
            if not isinstance(key, str):
                raise InputError(f"the key {key!r} is no text", where=place, remedy=f'Write it in quotes: "{key}"')
            if key in seen:
                raise InputError(f"the key {key!r} stands twice", where=place, remedy="Remove or rename one of the two")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(text: str, name: str) -> Any:
    """The value of a YAML text. Raises InputError with `name` and line for bad YAML and for a key that stands twice."""
    loader = _StrictLoader(text)
    loader.name = name
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{name}:{mark.line + 1}" if mark else name
        raise InputError(f"this is no YAML: {getattr(error, 'problem', error)}", where=place) from None
    finally:
        loader.dispose()


@cache
def schema(name: str) -> Json:
    """The JSON Schema of the file kind `name`, like `config`."""
    text = files("rollmake.schemas").joinpath(f"{name}.schema.yaml").read_text(encoding="utf-8")
    # The loader in C is ten times as fast, and every job reads the schema when it starts.
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def load_config(config: Json, sources: Iterable[Path]) -> Json:
    """The resolved config; `sources` are the files that Snakemake read it from, looked at again for keys that stand twice."""
    for source in sources:
        read_yaml(source.read_text(encoding="utf-8"), str(source))
    return resolve(config, schema("config"))


def environment_mapping(text: str) -> Json:
    """The `environment` of the config given as YAML text, checked and with its defaults."""
    value = read_yaml(text, "--environment")
    part = {"$ref": "#/$defs/environment"}
    raise_all(problems(value, part, root=schema("config"), where="environment"))
    return filled(value, part, schema("config"))


def option_value(name: str, text: str, option: Json) -> Any:
    """The value of an option given as YAML text on the command line. Raises InputError."""
    value = read_yaml(text, f"--{name.replace('_', '-')}")
    raise_all(problems(value, option, root=schema("config"), where=name))
    return value


def flags(options: Json, stage: str, *, result: bool) -> str:
    """The options of a run as flags of a stage's command, quoted for the shell; those that do, or do not, change a result."""
    wanted = stage_options(schema("config"), stage, result=result)
    words = []
    for name in wanted:
        if name in options:
            words += [f"--{name.replace('_', '-')}", as_text(options[name])]
    return shlex.join(words)


def as_text(value: Any) -> str:
    """A value as YAML (JSON) on one line; plain text stays plain where that reads the same."""
    if isinstance(value, str) and value and read_yaml_or_none(value) == value:
        return value
    return msgspec.json.encode(value).decode()


def read_yaml_or_none(text: str) -> Any:
    """The value of a YAML text, None for one that is none."""
    try:
        return read_yaml(text, "")
    except InputError:
        return None
