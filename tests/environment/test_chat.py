"""What becomes of a row in a chat completion, and of a chat completion in a response."""

import pytest

from rollmake.core.errors import InputError
from rollmake.environment.chat import answer_text, chat_request, response_from_chat
from rollmake.environment.rows import read_row

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": True}


def request(row, **params):
    return chat_request(read_row(row(params)), "m")


def test_a_text_is_a_message_of_the_user(row):
    assert request(row, input="hello") == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_messages_keep_their_order_and_parts_are_joined(row):
    parts = [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}]
    items = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": parts, "type": "message"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "c"}]},
        {"role": "system", "content": ""},
    ]
    assert request(row, input=items, instructions="first")["messages"] == [
        {"role": "system", "content": "first"},
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
        {"role": "system", "content": ""},
    ]


def test_parameters_get_their_chat_names(row):
    body = request(row, max_output_tokens=9, temperature=0.5, top_p=0.9, store=True, model="other", truncation=None)
    del body["messages"]
    assert body == {"model": "m", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9}


def test_extra_body_wins_and_metadata_stays_here(row):
    body = request(row, temperature=1, metadata={"extra_body": '{"seed": 4, "temperature": 0}', "note": "x"})
    assert (body["seed"], body["temperature"]) == (4, 0)
    assert "metadata" not in body


def test_tools_and_effort(row):
    body = request(row, tools=[TOOL], tool_choice={"type": "function", "name": "add"}, reasoning={"effort": "low"})
    assert body["tools"] == [
        {"type": "function", "function": {key: TOOL[key] for key in ("name", "parameters", "strict")}}
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert body["reasoning_effort"] == "low"
    assert "tools" not in request(row, tools=[], tool_choice="auto")


@pytest.mark.parametrize(
    ("params", "where"),
    [
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0"),
        ({"input": [{"role": "user", "content": "q"}, {"type": "function_call", "call_id": "1"}]}, "input.1"),
        ({"input": [{"role": "critic", "content": "q"}]}, "input.0"),
        ({"input": ["q"]}, "input.0"),
        ({"input": [{"role": "user"}]}, "input.0.content"),
        ({"input": "q", "tools": [{"type": "web_search"}]}, "tools.0"),
        ({"input": "q", "tools": {"type": "function"}}, "tools"),
        ({"input": "q", "tools": [TOOL], "tool_choice": ["add"]}, "tool_choice"),
        ({"input": "q", "reasoning": "high"}, "reasoning"),
        ({"input": "q", "text": {"format": {"type": "json_object"}}}, "text"),
        ({"input": "q", "previous_response_id": "r"}, "previous_response_id"),
    ],
)
def test_what_a_chat_cannot_say_is_named(row, params, where):
    with pytest.raises(InputError) as caught:
        request(row, **params)
    assert caught.value.where == f"responses_create_params.{where}"


def test_a_completion_is_a_response(chat_reply):
    response = response_from_chat(chat_reply("Answer: 42"))
    assert answer_text(response) == "Answer: 42"
    assert (response["object"], response["status"], response["model"]) == ("response", "completed", "m-1")
    assert response["incomplete_details"] is None
    assert {key: response["usage"][key] for key in ("input_tokens", "output_tokens", "total_tokens")} == {
        "input_tokens": 7,
        "output_tokens": 5,
        "total_tokens": 12,
    }


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_completion_that_was_cut_short(chat_reply, finish, reason):
    response = response_from_chat(chat_reply("Answ", finish))
    assert response["status"] == response["output"][0]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": reason}


def test_tool_calls_and_reasoning_are_kept(chat_reply):
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    response = response_from_chat(chat_reply(None, "tool_calls", tool_calls=[call], reasoning_content="hm"))
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert response["output"][1] | {"id": ""} == {
        "id": "",
        "type": "function_call",
        "call_id": "t1",
        "name": "add",
        "arguments": '{"a": 1}',
        "status": "completed",
    }
    assert answer_text(response) == ""


def test_usage_details_are_kept_and_usage_may_be_missing(chat_reply):
    completion = chat_reply("x")
    completion["usage"] |= {
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    usage = response_from_chat(completion)["usage"]
    assert usage["input_tokens_details"] == {"cached_tokens": 2}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 3}
    completion["usage"] = {"prompt_tokens": 3}
    assert response_from_chat(completion)["usage"] is None
    del completion["usage"]
    assert response_from_chat(completion)["usage"] is None


def test_the_answer_is_what_the_assistant_says_and_not_what_it_thinks():
    parts = [
        {"type": "output_text", "text": "a"},
        {"type": "refusal", "refusal": "no"},
        {"type": "output_text", "text": "b"},
    ]
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": parts},
    ]
    assert answer_text({"output": output}) == "ab"
    assert answer_text({"output": []}) == ""
