"""Many rows with one problem make one message."""

from rollmake.core.errors import InputError
from rollmake.core.findings import FINDINGS_SHOWN, Findings


def test_the_same_problem_is_told_once_with_its_first_places():
    findings = Findings()
    for number in range(1, 1001):
        findings.add("names no agent", f"t.jsonl:{number}", "Name one")
    findings.add_error(InputError("is no row", remedy="Remove it"), "t.jsonl:7")
    assert [str(problem) for problem in findings] == [
        "t.jsonl:1, t.jsonl:2, t.jsonl:3, t.jsonl:4, t.jsonl:5 and 995 more: names no agent. Name one",
        "t.jsonl:7: is no row. Remove it",
    ]


def test_different_problems_are_told_up_to_a_limit():
    findings = Findings()
    for number in range(FINDINGS_SHOWN + 3):
        findings.add(f"problem {number}", "t.jsonl:1")
    findings.add("problem 0", "t.jsonl:2")
    told = [str(problem) for problem in findings]
    assert len(told) == FINDINGS_SHOWN + 1
    assert told[0] == "t.jsonl:1, t.jsonl:2: problem 0"
    assert told[-1] == "3 more problems, not listed"


def test_nothing_found():
    assert list(Findings()) == []
