"""A subset is shown with what its score rests on."""

from rollmake.core.report import scores
from rollmake.core.subsets import subsets

NUMBERS = {"expected": 4, "scored": 2, "imputed": 0, "unscored": 0, "masked": 0, "unrouted": 0, "missing": 1}
NUMBERS |= {"failed_by_class": {"slow": 1}}
COVERAGE = {"servers": {"a": NUMBERS, "b": NUMBERS}, "subsets": {"hard": NUMBERS, "": NUMBERS, "hard/er": NUMBERS}}
METRICS = {
    "pass@1[avg-of-2]/accuracy": 70.0,
    "hard/pass@1[avg-of-1]/accuracy": 10.0,
    "hard/pass@1[avg-of-2]/accuracy": 20.0,
    "hard/pass@1[avg-of-2]/no_answer": 1.0,
    "hard/pass@1[avg-of-2]/accuracy/std_dev_across_runs": 3.0,
    "hard/pass@2/accuracy": 30.0,
    "hard/er/pass@1[avg-of-1]/f1": 40.0,
}


def entry(server, metrics):
    return {"_ng_environment_server": server, "agent_ref": {"name": f"agent {server}"}, "agent_metrics": metrics}


def shown(entries, coverage=COVERAGE):
    return subsets(entries, scores(entries, coverage), coverage)


def test_each_subset_has_its_mean_by_server_and_its_coverage():
    found = shown([entry("b", METRICS), entry("a", {"hard/pass@1[avg-of-1]/accuracy": 5.0})])
    assert [(one.name, one.scores) for one in found] == [
        ("", []),
        ("hard", [("agent b", "pass@1[avg-of-2]/accuracy", 20.0), ("agent a", "pass@1[avg-of-1]/accuracy", 5.0)]),
        ("hard/er", [("agent b", "pass@1[avg-of-1]/f1", 40.0)]),
    ]
    assert (found[0].basis.scored, found[0].basis.expected, found[0].missing, found[0].failed) == (2, 4, 1, 1)


def test_without_metrics_subsets_have_a_coverage_and_without_a_key_there_are_none():
    assert [one.scores for one in shown([])] == [[], [], []]
    assert shown([entry("a", METRICS)], {"servers": COVERAGE["servers"]}) == []
    assert shown([entry("a", {"hard/pass@1[avg-of-1]/accuracy": "high"})])[1].scores == []
