"""Records of any shape become something to read, and no text can hide or reorder what stands around it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.excerpts import (
    FAILURE_LIMIT,
    FIELDS,
    TEXT_LIMIT,
    Excerpt,
    answer,
    example,
    excerpt,
    failure,
    one_line,
    question,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def test_a_long_text_says_how_much_was_cut():
    assert excerpt("x" * 30, 10) == Excerpt("x" * 10, 20)
    assert excerpt("x" * 10, 10) == Excerpt("x" * 10, 0)


def test_one_line_has_neither_ends_of_lines_nor_what_moves_a_terminal():
    assert one_line("a\r\n\tb \x1b[2J\u202ec\x85d", 99) == "a b \\u001b[2J\\u202ec d"
    assert one_line("x" * 30, 10) == "x" * 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\x00\x1b[31m\x07", "a\\u0000\\u001b[31m\\u0007"),
        ("a\u2028b\u2029c\x85d\r\ne\rf", "a\nb\nc\nd\ne\nf"),
        ("tab\tstays\nand newline", "tab\tstays\nand newline"),
        ("\ud800", "\\ud800"),
        ("\u200d\u0645", "\u200d\u0645"),
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_text_that_hides_or_reorders_is_shown_as_escapes(value, text):
    assert excerpt(value).text == text


@given(st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "L"]), max_size=50))
def test_no_control_or_bidirectional_character_survives(text):
    shown = excerpt(text).text
    assert not [sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") and sign not in "\n\t"]
    assert not [
        sign for sign in shown if unicodedata.bidirectional(sign) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI")
    ]
    shown.encode()


def test_a_question_is_a_text_or_messages_with_roles():
    asked = {"role": "user", "content": [{"type": "input_text", "text": "2 + 2"}, {"type": "input_image"}]}
    assert question({"responses_create_params": {"input": "plain"}}) == "plain"
    assert question({"responses_create_params": {"input": [asked]}}) == "2 + 2"
    conversation = [{"role": "system", "content": "be brief"}, asked]
    assert question({"responses_create_params": {"input": conversation}}) == "[system] be brief\n\n[user] 2 + 2"


def test_an_answer_is_the_last_text_and_says_what_was_before_it():
    message = {"type": "message", "content": [{"type": "output_text", "text": "4"}]}
    assert answer({"response": {"output": [message]}}) == "4"
    assert answer({"response": {"output": [{"type": "reasoning"}, message]}}) == "[after 1 other step]\n4"
    steps = [{"type": "reasoning"}, {"type": "function_call"}, message]
    assert answer({"response": {"output": steps}}) == "[after 2 other steps]\n4"
    refusal = {"content": [{"type": "refusal", "refusal": "no"}]}
    assert answer({"response": {"output": [refusal]}}) == "no"
    assert answer({"response": {"output": [{"type": "function_call"}]}}) == ""
    assert answer({"response": None}) == ""


@given(JSON)
def test_records_of_any_shape_can_be_read(value):
    for record in ({"response": value}, {"response": {"output": value}}, {"responses_create_params": {"input": value}}):
        shown = example(record | {"reward": value, "agent_ref": value, "extra": value}, {})
        assert isinstance(shown.question.text + shown.answer.text, str)
        assert shown.reward is None or isinstance(shown.reward, float)
        assert failure(record | {"_ng_failure_message": value, "_ng_failure_http_status": value}, {}).message.cut == 0


def test_an_example_tells_the_fields_that_people_can_read():
    record = {
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "_ng_environment_server": "s",
        "reward": 1,
        "response": {},
        "extracted_answer": "B",
        "correct": True,
        "detail": {"not": "shown"},
        "_hidden": 1,
    }
    shown = example(record, {"responses_create_params": {"input": "from the row"}})
    assert (shown.task, shown.rollout, shown.server.text, shown.reward) == (3, 1, "s", 1.0)
    assert shown.question.text == "from the row"
    assert [(name.text, value.text) for name, value in shown.fields] == [("extracted_answer", "B"), ("correct", "true")]


def test_the_question_of_the_record_wins_and_fields_are_limited():
    record = {"responses_create_params": {"input": "own"}} | {f"field{i}": i for i in range(40)}
    shown = example(record, {"responses_create_params": {"input": "row"}})
    assert shown.question.text == "own"
    assert len(shown.fields) == FIELDS


def test_a_failure_tells_kind_message_status_and_body():
    record = {
        "_ng_failure_type": "ClientError",
        "_ng_failure_message": "m" * 1000,
        "_ng_failure_http_status": 503,
        "_ng_failure_response_body": "busy",
        "agent_ref": {"name": "a"},
    }
    shown = failure(record, {})
    assert shown.message.text.startswith("ClientError: mmm")
    assert shown.message.cut == len("ClientError: ") + 1000 - FAILURE_LIMIT
    assert (shown.status, shown.body.text, shown.server.text) == (503, "busy", "a")
    assert failure({"failure_reason": "timed out"}, {}).message.text == "timed out"
    assert TEXT_LIMIT > FAILURE_LIMIT
