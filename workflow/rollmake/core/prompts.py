"""Prompt templates over the fields of a row (NeMo Gym contract, section 8)."""

from string import Formatter

import msgspec

from rollmake.core.contract import PARAMS
from rollmake.core.errors import InputError


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Python format templates; `system` may be left out."""

    user: str
    system: str | None = None


def parse_prompt(value: object, where: str) -> Prompt:
    """The prompt in the value of a YAML file. Raises InputError naming the key, or the replacement field at fault."""
    try:
        prompt = msgspec.convert(value, Prompt)
    except msgspec.ValidationError as error:
        remedy = "It holds `user`, and `system` if you want one, both text"
        raise InputError(f"no prompt: {error}", where=where, remedy=remedy) from None
    for key in ("system", "user"):
        check_template(getattr(prompt, key) or "", f"{where}: {key}")
    return prompt


def check_template(template: str, where: str) -> None:
    """Raise InputError for a template that cannot be filled by name: bad braces, positions, attributes."""
    try:
        fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise InputError(f"no format template ({error})", where=where, remedy="Write {{ and }} for braces") from None
    for field in fields:
        name = field.split("[", 1)[0]
        if not name or name.isdigit() or "." in name:
            remedy = "Name a field of the row, as in {question} or {meta[level]}"
            raise InputError(f"{{{field}}} names no field of a row", where=where, remedy=remedy)


def apply_prompt(prompt: Prompt, row: dict) -> dict:
    """The row with the filled templates as its `responses_create_params.input`; other parameters are kept.

    Raises InputError if the row has an input already, lacks a field, or holds a value that the format does not fit.
    """
    params = row.get(PARAMS, {})
    if not isinstance(params, dict):
        raise InputError(f"{PARAMS} is no object", remedy="Leave it out, or write an object")
    if params.get("input"):
        remedy = f"Leave out {PARAMS}.input or `prompt_config`"
        raise InputError(f"has {PARAMS}.input already, which `prompt_config` would replace", remedy=remedy)
    messages = [
        {"role": role, "content": fill(template, row)}
        for role, template in (("system", prompt.system), ("user", prompt.user))
        if template is not None
    ]
    return {**row, PARAMS: {**params, "input": messages}}


def fill(template: str, row: dict) -> str:
    """A template with the fields of a row. Raises InputError."""
    try:
        return template.format_map(row)
    except KeyError as error:
        fields = ", ".join(row)
        raise InputError(f"has no field {error.args[0]!r} for the prompt; it has {fields}") from None
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"does not fit the prompt's format ({error})") from None
