"""Between the Responses interface, which rows are written for, and chat completions."""

from typing import Any

from rollmake.core import contract
from rollmake.core.errors import InputError
from rollmake.environment.rows import Row

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXT_PARTS = {"text", "input_text", "output_text"}
_RENAMED = {"max_output_tokens": "max_tokens"}
_SAME = {"temperature", "top_p", "parallel_tool_calls", "top_logprobs", "user", "service_tier"}
# No counterpart in chat completions, and no influence on what a single turn answers.
_IGNORED = {"input", "instructions", "model", "metadata", "store", "include", "truncation", "background", "stream"}
_CONVERTED = {"tools", "tool_choice", "reasoning"}
_CUT_SHORT = {"length": "max_output_tokens", "content_filter": "content_filter"}


def chat_request(row: Row, model: str) -> dict[str, Any]:
    """The chat completion to ask for: messages, parameters by their chat names, and the members of `extra_body`.

    Raises InputError naming the parameter or message that cannot be said in a chat completion.
    """
    params = {key: value for key, value in row.params.items() if value is not None}
    if unknown := params.keys() - _SAME - _IGNORED - _CONVERTED - _RENAMED.keys():
        name = sorted(unknown)[0]
        found = "has no counterpart in the chat interface; what the server knows can go into metadata.extra_body"
        raise InputError(found, where=f"{contract.PARAMS}.{name}")
    body: dict[str, Any] = {"model": model, "messages": _messages(params)}
    body |= {_RENAMED.get(key, key): value for key, value in params.items() if key in _SAME or key in _RENAMED}
    return body | _converted(params) | row.extra_body


def response_from_chat(completion: dict[str, Any]) -> dict[str, Any]:
    """A chat completion as a response. Raises KeyError, IndexError, TypeError or AttributeError if it is none."""
    choice = completion["choices"][0]
    message, reason = choice["message"], _CUT_SHORT.get(choice.get("finish_reason"))
    identifier = str(completion.get("id"))
    return {
        "id": identifier,
        "object": "response",
        "created_at": completion.get("created", 0),
        "model": completion.get("model"),
        "status": "incomplete" if reason else "completed",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": _output(message, identifier, "incomplete" if reason else "completed"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(completion.get("usage")),
    }


def text_message(identifier: str, text: str, status: str = "completed") -> dict[str, Any]:
    """An output item with a text of the assistant."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": f"msg_{identifier}", "type": "message", "role": "assistant", "status": status, "content": content}


def usage(input_tokens: int, output_tokens: int, *, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """The usage of a response, in tokens."""
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


def answer_text(response: dict[str, Any]) -> str:
    """All text that the assistant says in a response, without its reasoning."""
    messages = [item for item in response["output"] if isinstance(item, dict) and item.get("type") == "message"]
    parts = [part for message in messages for part in message.get("content") or [] if isinstance(part, dict)]
    return "".join(
        part["text"] for part in parts if part.get("type") == "output_text" and isinstance(part.get("text"), str)
    )


def _messages(params: dict[str, Any]) -> list[dict[str, str]]:
    asked = params["input"]
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    first = [{"role": "system", "content": params["instructions"]}] if params.get("instructions") else []
    return first + [_message(item, f"{contract.PARAMS}.input.{index}") for index, item in enumerate(items)]


def _message(item: Any, where: str) -> dict[str, str]:
    if not isinstance(item, dict) or item.get("type", "message") != "message" or item.get("role") not in _ROLES:
        raise InputError(
            f"is no message of {', '.join(_ROLES)}; others have no place in a single chat turn", where=where
        )
    content = item.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise InputError("must be a text or a list of parts", where=f"{where}.content")
    for index, part in enumerate(parts):
        if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS or not isinstance(part.get("text"), str):
            raise InputError("is no text; the chat interface is only used for text", where=f"{where}.content.{index}")
    return {"role": _ROLES[item["role"]], "content": "".join(part["text"] for part in parts)}


def _converted(params: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if tools := _typed(params, "tools", list, "a list"):
        body["tools"] = [_tool(tool, index) for index, tool in enumerate(tools)]
        choice = params.get("tool_choice", "auto")
        body["tool_choice"] = (
            choice if isinstance(choice, str) else _named(_typed(params, "tool_choice", dict, "an object"))
        )
    effort = _typed(params, "reasoning", dict, "an object").get("effort")
    return body | ({"reasoning_effort": effort} if effort else {})


def _typed(params: dict[str, Any], name: str, kind: type, called: str) -> Any:
    value = params.get(name, kind())
    if not isinstance(value, kind):
        raise InputError(f"must be {called}", where=f"{contract.PARAMS}.{name}")
    return value


def _tool(tool: Any, index: int) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not tool.get("name"):
        found = "only functions can be offered through the chat interface"
        raise InputError(found, where=f"{contract.PARAMS}.tools.{index}")
    return _named(tool)


def _named(function: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {key: value for key, value in function.items() if key != "type"}}


def _output(message: dict[str, Any], identifier: str, status: str) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        summary = [{"type": "summary_text", "text": thought}]
        output.append({"id": f"rs_{identifier}", "type": "reasoning", "summary": summary})
    calls = message.get("tool_calls") or []
    if message.get("content") or not calls:
        output.append(text_message(identifier, message.get("content") or message.get("refusal") or "", status))
    return output + [_call(call) for call in calls]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "id": call["id"],
        "type": "function_call",
        "call_id": call["id"],
        "name": function["name"],
        "arguments": function["arguments"],
        "status": "completed",
    }


def _usage(counted: dict[str, Any] | None) -> dict[str, Any] | None:
    if not counted or not {"prompt_tokens", "completion_tokens"} <= counted.keys():
        return None
    cached = (counted.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (counted.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return usage(counted["prompt_tokens"], counted["completion_tokens"], cached=cached, reasoning=reasoning)
