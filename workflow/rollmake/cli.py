"""The command `rollmake`: one subcommand a stage, its flags derived from the stage's `Files` and the config's schema."""

import argparse
import logging
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from rollmake import __version__
from rollmake.core.config import stage_options
from rollmake.core.errors import OwedError, RollmakeError
from rollmake.edge.settings import option_value, schema
from rollmake.edge.terminal import StderrHandler

STAGES = (
    "environment",
    "materialize",
    "collect",
    "seal",
    "discard",
    "repair",
    "concatenate",
    "adopt",
    "coverage",
    "aggregate",
    "statistics",
    "compare",
    "check",
    "report",
    "serve",
    "status",
    "plan",
    "doctor",
    "watch",
    "fsck",
)
# Exit codes: 0 done, 1 a problem, 2 a wrong command line, 75 (EX_TEMPFAIL) in good order, but rollouts are still owed.
FAILED, STILL_OWED = 1, 75


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    # Only the module of the stage that is asked for is imported, since some are slow to import.
    stages = {name: _module(name) for name in (words[:1] if words and words[0] in STAGES else STAGES)}
    parsed = _parser(stages).parse_args(words)
    _start_log(parsed.log)
    stage = stages[parsed.stage]
    try:
        stage.run(_files(stage, parsed), _settings(stage, parsed))
    except OwedError as error:
        logging.getLogger("rollmake").error("%s", error)
        return STILL_OWED
    except RollmakeError as error:
        logging.getLogger("rollmake").error("%s", error)
        return FAILED
    except OSError as error:
        logging.getLogger("rollmake").error("%s: %s", error.filename or parsed.stage, error.strerror or error)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


def _module(name: str) -> ModuleType:
    return import_module(f"rollmake.stages.{name}")


def _parser(stages: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rollmake", description="Collect agent rollouts at scale and score them honestly."
    )
    parser.add_argument("--version", action="version", version=f"rollmake {__version__}")
    commands = parser.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for name, stage in stages.items():
        command = commands.add_parser(name, help=stage.HELP, description=stage.__doc__)
        command.add_argument("--log", type=Path, metavar="PATH", help="file that gets a copy of what is logged")
        for field in msgspec.structs.fields(stage.Files):
            _add_file(command, field, positional=field.name in getattr(stage, "POSITIONAL", ()))
        for option, details in stage_options(schema("config"), name).items():
            text = f"{details['description']} Default: {msgspec.json.encode(details.get('default')).decode()}."
            command.add_argument(_flag(option), metavar="YAML", help=text.replace("%", "%%"), dest=option)
    return parser


def _add_file(command: argparse.ArgumentParser, field: msgspec.structs.FieldInfo, *, positional: bool) -> None:
    kind, text = get_args(field.type)[0], get_args(field.type)[1].description
    many = get_origin(kind) is list
    convert = _scalar(get_args(kind)[0] if many else kind)
    required = field.required
    details: dict[str, Any] = {"type": convert, "help": text.replace("%", "%%"), "metavar": field.name.upper()}
    if many:
        details["nargs"] = "+"
    if positional:
        command.add_argument(field.name, **details)
    else:
        default = None if field.default is msgspec.NODEFAULT else field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        command.add_argument(_flag(field.name), dest=field.name, required=required, default=default, **details)


def _scalar(kind: Any) -> type:
    if get_origin(kind) in (UnionType, Union):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return kind


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _files(stage: ModuleType, parsed: argparse.Namespace) -> Any:
    return stage.Files(**{field.name: getattr(parsed, field.name) for field in msgspec.structs.fields(stage.Files)})


def _settings(stage: ModuleType, parsed: argparse.Namespace) -> Any:
    """The stage's options: what the command line says, else the schema's defaults. Raises InputError."""
    values = {}
    for name, option in stage_options(schema("config"), parsed.stage).items():
        text = getattr(parsed, name)
        if text is not None:
            values[name] = option_value(name, text, option)
        elif "default" in option:
            values[name] = option["default"]
    return msgspec.convert(values, stage.Settings, strict=False)


def _start_log(path: Path | None) -> None:
    handlers: list[logging.Handler] = [StderrHandler()]
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(path, encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=handlers, force=True
    )
