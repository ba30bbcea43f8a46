"""Which rows can be asked, what is said of those that cannot, and what comes back of a row."""

import pytest

from rollmake.core.errors import InputError
from rollmake.environment.rows import decode_object, explain, read_row, result


def locations(error):
    return [".".join(entry["loc"]) for entry in explain(error)["detail"]]


def test_a_usable_row(row):
    read = read_row(row({"metadata": {"extra_body": '{"seed": 3}'}}))
    assert read.extra_body == {"seed": 3}
    assert read.verify("it is 42").reward == 1.0
    assert read_row(row({"metadata": None})).extra_body == {}


@pytest.mark.parametrize(("expected", "text"), [(42, "42"), (0.5, "1/2"), (-3, "-3")])
def test_an_expected_answer_may_be_a_number(row, expected, text):
    assert read_row(row(expected_answer=expected)).verify(text).reward == 1.0


@pytest.mark.parametrize(
    ("fields", "location"),
    [
        ({"verifier": None}, "body.verifier"),
        ({"verifier": "vibes"}, "body.verifier"),
        ({"verifier": ["exact"]}, "body.verifier"),
        ({"expected_answer": None}, "body.expected_answer"),
        ({"expected_answer": True}, "body.expected_answer"),
        ({"expected_answer": "none"}, "body.expected_answer"),
        ({"verifier": "regex", "expected_answer": "["}, "body.expected_answer"),
        ({"responses_create_params": None}, "body.responses_create_params"),
        ({"responses_create_params": "q"}, "body.responses_create_params"),
        ({"responses_create_params": {}}, "body.responses_create_params.input"),
        ({"responses_create_params": {"input": []}}, "body.responses_create_params.input"),
        ({"responses_create_params": {"input": 3}}, "body.responses_create_params.input"),
        ({"responses_create_params": {"input": "q", "stream": True}}, "body.responses_create_params.stream"),
        ({"responses_create_params": {"input": "q", "metadata": 3}}, "body.responses_create_params.metadata"),
    ],
)
def test_a_row_that_is_not_usable_names_its_field(row, fields, location):
    with pytest.raises(InputError) as caught:
        read_row(row(**fields))
    assert locations(caught.value) == [location]


@pytest.mark.parametrize("extra", [{"seed": 1}, "{", "[1]", "", 3])
def test_extra_body_is_a_string_with_an_object(row, extra):
    with pytest.raises(InputError) as caught:
        read_row(row({"metadata": {"extra_body": extra}}))
    assert locations(caught.value) == ["body.responses_create_params.metadata.extra_body"]


def test_all_problems_are_named_at_once(row):
    with pytest.raises(InputError) as caught:
        read_row({"episode_id": {}, "task": {}})
    assert locations(caught.value) == ["body.responses_create_params", "body.verifier", "body.expected_answer"]
    assert "flat rows" in explain(caught.value)["detail"][0]["msg"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b'{"a": NaN}', b'{"a": "\xff"}'])
def test_a_body_that_is_no_object(body):
    with pytest.raises(InputError) as caught:
        decode_object(body)
    assert locations(caught.value) == ["body"]


def test_the_reply_has_the_rows_own_fields_and_the_verdict(row):
    read = read_row(row(subset="easy", ng_perf={}, skills_ref={}, task_source="s", reward=7, _ng_failure_class="x"))
    reply = result(read, {"output": []}, "41")
    assert reply == {
        "responses_create_params": read.params,
        "verifier": "numeric",
        "expected_answer": "42",
        "subset": "easy",
        "reward": 0.0,
        "response": {"output": []},
        "mask_sample": False,
        "extracted_answer": "41",
    }
