"""A run that must be complete is, or fails with what it lacks."""

import json

import pytest

from rollmake.core.errors import DataError, InputError
from rollmake.stages.check import Files, Settings, run

NUMBERS = {"expected": 4, "answered": 4, "missing": 0, "imputed": 0, "failed_by_class": {}, "missing_keys": []}
NUMBERS |= {"unreadable_lines": {}}


def check(folder, **numbers):
    (folder / "coverage.json").write_text(json.dumps(NUMBERS | numbers))
    run(Files(coverage=folder / "coverage.json", output=folder / "complete.json"), Settings())


def test_a_complete_run_says_so(tmp_path):
    check(tmp_path)
    assert json.loads((tmp_path / "complete.json").read_text()) == {"version": 1, "expected": 4, "answered": 4}


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        (
            {"answered": 2, "missing": 2, "missing_keys": [[3, 0], [3, 1]]},
            "2 of 4 .*2 left no row.*task 3 rollout 0, task 3 rollout 1",
        ),
        ({"answered": 3, "failed_by_class": {"judge_failed": 1}}, r"1 of 4 .*\(failed: judge_failed 1\)"),
        ({"answered": 3, "imputed": 1}, "1 of 4 .*1 only count as zero"),
        ({"expected": 0, "answered": 0}, "no rollout is owed. Is the input empty.*`input_glob`"),
        (
            {"unreadable_lines": {"0000-of-0001": 2}},
            r"damaged lines .*\(2 in all\).*of 0000-of-0001 2.*Put materialized inputs",
        ),
    ],
)
def test_what_a_run_lacks_is_named_and_an_older_proof_goes(tmp_path, numbers, found):
    check(tmp_path)
    with pytest.raises(DataError, match=rf"coverage.json: the run is not complete: {found}"):
        check(tmp_path, **numbers)
    assert not (tmp_path / "complete.json").exists()


@pytest.mark.parametrize("content", ["{}", "[]", "3"])
def test_a_coverage_that_is_none_is_named(tmp_path, content):
    (tmp_path / "coverage.json").write_text(content)
    with pytest.raises(DataError, match="does not hold what it must"):
        run(Files(coverage=tmp_path / "coverage.json", output=tmp_path / "out.json"), Settings())


def test_without_coverage_there_is_no_verdict(tmp_path):
    with pytest.raises(InputError, match=r"coverage.json is missing"):
        run(Files(coverage=tmp_path / "coverage.json", output=tmp_path / "out.json"), Settings())
