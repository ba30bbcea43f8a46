"""Templates over the fields of a row."""

import pytest

from rollmake.core.errors import InputError
from rollmake.core.prompts import Prompt, apply_prompt, parse_prompt


def filled(user, **row):
    return apply_prompt(Prompt(user=user), row)["responses_create_params"]["input"][-1]["content"]


def test_format_templates():
    row = {"q": "why", "m": {"k": "v", "l": [1, 2]}, "n": 1.23456}
    assert filled("{q} {m[k]} {m[l][1]} {n:.2f} {{q}} {q!r:>6}", **row) == "why v 2 1.23 {q}  'why'"


def test_other_parameters_are_kept_and_an_empty_input_passes():
    row = {"q": "why", "responses_create_params": {"temperature": 1, "input": []}}
    assert apply_prompt(Prompt(user="{q}", system="s"), row) == {
        "q": "why",
        "responses_create_params": {
            "temperature": 1,
            "input": [{"role": "system", "content": "s"}, {"role": "user", "content": "why"}],
        },
    }
    assert row["responses_create_params"]["input"] == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"p": 1, "r": 2}, "has no field 'q' for the prompt; it has p, r"),
        ({"q": 1, "responses_create_params": {"input": "x"}}, "has responses_create_params.input already"),
        ({"q": 1, "responses_create_params": None}, "responses_create_params is no object"),
        ({"q": "text"}, "does not fit the prompt's format"),
        ({"q": None}, "does not fit the prompt's format"),
    ],
)
def test_rows_that_do_not_fit(row, message):
    with pytest.raises(InputError, match=message):
        apply_prompt(Prompt(user="{q:.2f}"), row)


@pytest.mark.parametrize("template", ["{m[z]}", "{m[k][0][0]}", "{l[9]}"])
def test_items_that_are_not_there(template):
    with pytest.raises(InputError, match=r"has no field|does not fit"):
        filled(template, m={"k": 1}, l=[1])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"p\.yaml: no prompt"),
        ({}, r"p\.yaml: no prompt: .*user"),
        ({"user": 5}, r"p\.yaml: no prompt: .*user"),
        ({"user": "{0}"}, r"p\.yaml: user: \{0\} names no field"),
        ({"user": "{}"}, r"p\.yaml: user: \{\} names no field"),
        ({"user": "{a.b}"}, r"p\.yaml: user: \{a\.b\} names no field"),
        ({"user": "x", "system": "{"}, r"p\.yaml: system: no format template"),
        ({"user": "}"}, r"p\.yaml: user: no format template"),
    ],
)
def test_prompts_that_cannot_be_used(value, message):
    with pytest.raises(InputError, match=message):
        parse_prompt(value, "p.yaml")


def test_prompts_that_can():
    assert parse_prompt({"user": "{q[a.b]}", "note": 1}, "p.yaml") == Prompt(user="{q[a.b]}")
    assert parse_prompt({"user": "u", "system": None}, "p.yaml") == Prompt(user="u")
