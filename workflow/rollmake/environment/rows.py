"""A row as `POST /run` gets it: checked once, before anything is asked of a model."""

from typing import Any

import msgspec
import orjson

from rollmake.core import contract
from rollmake.core.errors import InputError, Problems, raise_all
from rollmake.environment.verify import Verifier, verifier

# The collector stamps these itself; every other field of a row comes back with its result.
_STAMPED = {contract.AGENT_REF, contract.TASK_SOURCE, contract.SKILLS_REF}


class Row(msgspec.Struct, frozen=True):
    """A usable row: all its fields, its model parameters, the members of `metadata.extra_body`, and its verifier."""

    fields: dict[str, Any]
    params: dict[str, Any]
    extra_body: dict[str, Any]
    kind: str
    expected: str
    verify: Verifier


def read_row(fields: dict[str, Any]) -> Row:
    """The row in a request's fields (NeMo Gym contract, section 4.3).

    Raises InputError whose `where` is the field, or several of them at once as Problems.
    """
    problems: list[InputError] = []
    params, extra_body = _params(fields.get(contract.PARAMS), problems)
    expected, check = _expected(fields, problems)
    raise_all(problems)
    assert check is not None
    return Row(fields, params, extra_body, fields["verifier"], expected, check)


def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises InputError for anything else."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"must be an object, not {type(value).__name__}")
    return value


def result(row: Row, response: dict[str, Any], text: str) -> dict[str, Any]:
    """The reply to a row: its own fields, the model's response, and the verdict on `text`."""
    own = {
        key: value for key, value in row.fields.items() if not key.startswith(("_ng_", "ng_")) and key not in _STAMPED
    }
    verdict = row.verify(text)
    return own | {
        contract.RESPONSE: response,
        contract.REWARD: verdict.reward,
        contract.MASK: False,
        "extracted_answer": verdict.extracted,
    }


def explain(error: InputError) -> dict[str, Any]:
    """The body of a 422: one entry per problem, with the field's path and what is wrong with it."""
    problems = error.problems if isinstance(error, Problems) else [error]
    return {
        "detail": [
            {"loc": ["body", *problem.where.split(".")] if problem.where else ["body"], "msg": problem.found}
            for problem in problems
        ]
    }


def _params(params: Any, problems: list[InputError]) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(params, dict):
        found = "is missing; this server answers flat rows" if params is None else "must be an object"
        problems.append(InputError(found, where=contract.PARAMS))
        return {}, {}
    asked = params.get("input")
    if not isinstance(asked, str | list) or not asked:
        problems.append(InputError("must be a text or a list of messages", where=f"{contract.PARAMS}.input"))
    if params.get("stream"):
        problems.append(InputError("streaming is not supported", where=f"{contract.PARAMS}.stream"))
    return params, _extra_body(params.get("metadata"), problems)


def _extra_body(metadata: Any, problems: list[InputError]) -> dict[str, Any]:
    where = f"{contract.PARAMS}.metadata"
    if metadata is not None and not isinstance(metadata, dict):
        problems.append(InputError("must be an object", where=where))
        return {}
    text = (metadata or {}).get("extra_body")
    if text is None:
        return {}
    try:
        return decode_object(text.encode() if isinstance(text, str) else b"")
    except InputError as error:
        problems.append(InputError(f"must be a string with a JSON object: {error.found}", where=f"{where}.extra_body"))
        return {}


def _expected(fields: dict[str, Any], problems: list[InputError]) -> tuple[str, Verifier | None]:
    kind, expected = fields.get("verifier"), fields.get("expected_answer")
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        expected = str(expected)
    before = len(problems)
    for name, value in (("verifier", kind), ("expected_answer", expected)):
        if not isinstance(value, str):
            found = "is missing" if value is None else f"must be a text, not {type(value).__name__}"
            problems.append(InputError(found, where=name))
    if len(problems) > before:
        return "", None
    try:
        return expected, verifier(kind, expected)
    except InputError as error:
        problems.append(error)
        return "", None
