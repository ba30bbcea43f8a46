"""The four verifiers: what they accept, what they read out of a text, and what they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollmake.core.errors import InputError
from rollmake.environment.verify import SEARCHED, find_choice, find_number, verifier


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("42", "42"),
        ("first 3, then 42", "42"),
        ("Answer: 42 (after 3 steps)", "42"),
        ("**Answer:** 42\nThat took 3 steps", "42"),
        ("The final answer is approximately -1.5e3 metres, see 7", "-1.5e3"),
        ("Answer: 1\nNo, wrong. Answer: 2, from 9", "2"),
        (r"so \boxed{17} and not 18", "17"),
        (r"\boxed{\frac{3}{4}}", "3/4"),
        (r"\boxed{\text{none}} but 5", "5"),
        ("it is 1,234,567.5 in all", "1,234,567.5"),
        ("it costs $1,200", "$1,200"),
        ("10-3", "3"),
        ("x = -3", "-3"),
        ("−7 degrees", "-7"),
        ("about .5", ".5"),
        ("85 %", "85 %"),
        ("version 1.2.3", "1.2"),
        ("Answer:\n\n12", "12"),
    ],
)
def test_the_number_in_a_text(text, written):
    assert find_number(text).written == written


@pytest.mark.parametrize("text", ["", "no idea", "H2O and x2", "1/0", "9" * 400, "Answer: none"])
def test_a_text_without_a_number(text):
    assert find_number(text) is None
    assert verifier("numeric", "1")(text) == (0.0, None)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("42", "42.0"),
        ("1234", "1,234"),
        ("0.75", "3/4"),
        ("1/3", "0.3333333333"),
        ("50%", "0.5"),
        ("50%", "50"),
        ("50", "50%"),
        ("0.5", "50%"),
        ("0", "-0.0"),
        ("1e6", "1,000,000"),
        ("-5", "it is -5."),
        ("1000000", "1000000.5"),
    ],
)
def test_numbers_that_are_the_same(expected, text):
    assert verifier("numeric", expected)(text).reward == 1.0


@pytest.mark.parametrize(
    ("expected", "text"),
    [("42", "-42"), ("42", "42.1"), ("50%", "5000%"), ("5", "0.5"), ("0", "1e-9"), ("1000000", "1000002")],
)
def test_numbers_that_are_not_the_same(expected, text):
    assert verifier("numeric", expected)(text).reward == 0.0


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "Answer: {}", "so it is {:,}.", r"\boxed{{{}}}"]))
def test_every_integer_is_found_as_it_was_written(value, form):
    assert verifier("numeric", str(value))(form.format(value)).reward == 1.0


@given(st.integers(-999, 999), st.integers(1, 999))
def test_a_fraction_equals_its_quotient(top, bottom):
    assert verifier("numeric", f"{top}/{bottom}")(repr(top / bottom)).reward == 1.0


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_different_integers_are_never_taken_for_each_other(one, other):
    assert verifier("numeric", str(one))(f"Answer: {other}").reward == float(one == other)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"),
        ("b.", "B"),
        ("**C**", "C"),
        ("(d)", "D"),
        ("The answer is (C), not (D).", "C"),
        ("Answer: B", "B"),
        ("**Answer:** B) the Danube", "B"),
        ("answer: b", "B"),
        ("the answer is option D", "D"),
        ("Answer: A\nAnswer: C", "C"),
        (r"\boxed{\text{B}}, although (C) is close", "B"),
        ("I weighed (A) against [B]", "B"),
        ("A) is wrong\nD) is right", "D"),
        ("I think it must be C", "C"),
        ("A dog is no fish, so D", "D"),
        ("The right one is A.", "A"),
    ],
)
def test_the_choice_in_a_text(text, letter):
    assert find_choice(text) == letter


@pytest.mark.parametrize("text", ["", "I am not sure", "A dog", "the answer is a triangle", "ABC", "it's", "42"])
def test_a_text_without_a_choice(text):
    assert find_choice(text) is None
    assert verifier("choice", "A")(text) == (0.0, None)


@given(
    st.sampled_from("ABCDEFGHIJ"),
    st.sampled_from("ABCDEFGHIJ"),
    st.sampled_from(["Answer: {}", "({})", "{}", "So {}."]),
)
def test_a_choice_is_right_exactly_when_the_letter_is(expected, said, form):
    assert verifier("choice", f"({expected.lower()})")(form.format(said)) == (float(expected == said), said)


def test_exact_compares_up_to_white_space():
    check = verifier("exact", " apple  fig\n")
    assert check("apple fig") == (1.0, "apple fig")
    assert check("\n apple\tfig ") == (1.0, "apple fig")
    assert check("Apple fig") == (0.0, "Apple fig")
    assert check("  ") == (0.0, None)


@given(st.text())
def test_exact_accepts_every_text_for_itself(text):
    assert verifier("exact", text)(text).reward == 1.0


def test_regex_says_what_it_found():
    assert verifier("regex", r"\d{4}")("in 2024, or 1999") == (1.0, "2024")
    assert verifier("regex", r"year (\d+)")("the year 2024") == (1.0, "2024")
    assert verifier("regex", r"x|(y)")("x") == (1.0, "x")
    assert verifier("regex", r"^\d+$")("none") == (0.0, None)


def test_only_the_end_of_a_long_text_is_searched():
    assert verifier("regex", "needle")("needle" + " " * SEARCHED) == (0.0, None)
    assert verifier("regex", "needle")(" " * SEARCHED + "needle") == (1.0, "needle")
    assert find_number("7" + " " * SEARCHED) is None
    assert find_choice("B" + " " * SEARCHED) is None


@given(st.text(alphabet=r"\boxed{}frac answer:is0123456789,./%$-eE()[]AB" + "\n", max_size=400))
def test_no_text_upsets_a_verifier(text):
    for kind, expected in (("numeric", "3"), ("choice", "B"), ("exact", "x"), ("regex", "[0-9]+")):
        reward, extracted = verifier(kind, expected)(text)
        assert reward in (0.0, 1.0)
        assert extracted is None or extracted != ""


@pytest.mark.parametrize(
    ("kind", "expected", "where"),
    [
        ("fuzzy", "x", "verifier"),
        ("numeric", "many", "expected_answer"),
        ("choice", "AB", "expected_answer"),
        ("choice", "", "expected_answer"),
        ("regex", "(", "expected_answer"),
    ],
)
def test_what_a_verifier_cannot_use_names_the_field(kind, expected, where):
    with pytest.raises(InputError) as caught:
        verifier(kind, expected)
    assert caught.value.where == where
    assert repr(kind if where == "verifier" else expected) in caught.value.found


def test_a_regex_that_explodes_is_ended_and_named():
    check = verifier("regex", r"(a|aa)+$")
    with pytest.raises(InputError, match=r"expected_answer: '\(a\|aa\)\+\$' takes too long"):
        check("a" * 60 + "b")
