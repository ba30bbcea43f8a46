"""Examples in memory become the rows that the stage would write for them."""

import copy
import json
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rollmake
from golden.adapters import materialize
from golden.test_golden import same
from helpers import chaos
from helpers.materialize import flat, typed
from rollmake.core.errors import InputError, Problems
from rollmake.library.examples import encoded

OWN_OPTIONS = {"agent_map", "fan_out", "num_repeats", "num_repeats_add_seed"}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "materialize.json").read_text())["cases"]
CASES = [case for case in GOLDEN if case["input"]["config"].keys() <= OWN_OPTIONS]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_golden_cases_of_its_options(case):
    given = copy.deepcopy(case["input"])
    if "error" in case:
        with pytest.raises(InputError):
            rollmake.preprocess_examples(given["rows"], **given["config"])
    else:
        rows = rollmake.preprocess_examples(given["rows"], **given["config"])
        assert same(rows, case["expected"])
        assert given == case["input"]


def test_there_are_golden_cases_of_each_option():
    used = {name for case in CASES for name in case["input"]["config"]}
    assert used == OWN_OPTIONS


def names():
    return st.sampled_from(["a", "b"])


examples = st.lists(
    st.builds(flat, question=st.sampled_from("qrs"), agent=names(), value=st.integers(0, 2)), max_size=6
)


@given(
    rows=examples,
    agent_map=st.dictionaries(names(), names(), max_size=2),
    fan_out=st.dictionaries(names(), st.lists(names(), min_size=1, max_size=2, unique=True), max_size=2),
    num_repeats=st.one_of(st.none(), st.integers(1, 3), st.fixed_dictionaries({"_default": st.integers(1, 3)})),
    num_repeats_add_seed=st.booleans(),
)
def test_rows_and_order_are_those_of_the_stage_and_examples_stay(rows, **options):
    before = copy.deepcopy(rows)
    made = rollmake.preprocess_examples(rows, **options)
    assert made == materialize.run({"rows": rows, "config": options}, None)
    assert rows == before


def test_rows_share_nothing_with_the_examples_or_each_other():
    example = flat(agent="a", tools=[{"name": "t"}])
    first, second = rollmake.preprocess_examples([example], num_repeats=2)
    first["tools"][0]["name"] = "changed"
    first["responses_create_params"]["input"] = "changed"
    assert second["tools"] == example["tools"] == [{"name": "t"}]
    assert second["responses_create_params"] == example["responses_create_params"]


def test_equal_examples_are_one_task_whatever_the_order_of_their_keys():
    example = flat(extra={"x": 1, "y": [2]})
    turned = {**dict(reversed(example.items())), "extra": OrderedDict(y=[2], x=1)}
    other = {**example, "extra": {"x": 1, "y": [3]}}
    rows = rollmake.preprocess_examples([example, turned, other])
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows] == [(0, 0), (0, 1), (1, 0)]
    assert list(rows[1]) == [*turned, "_ng_task_index", "_ng_rollout_index"]


def test_task_sources_are_left_for_later_without_a_topology_and_become_agents_with_one(tmp_path):
    example = flat(agent=None, task_source="chaos_resources")
    [row] = rollmake.preprocess_examples([example])
    assert "agent_ref" not in row
    servers = chaos.topology("127.0.0.1", 1)
    path = tmp_path / "servers.yaml"
    path.write_text(json.dumps(servers))
    for topology in (servers, path, str(path)):
        [row] = rollmake.preprocess_examples([example], topology=topology)
        assert row["agent_ref"] == {"name": chaos.AGENT}
    assert "agent_ref" not in example


def test_everything_wrong_is_told_at_once_by_place():
    wrong = [flat(agent="nobody"), "text", {"agent_ref": {"name": chaos.AGENT}}, flat(agent=chaos.AGENT), typed("t:x")]
    with pytest.raises(Problems) as refusal:
        rollmake.preprocess_examples(wrong, topology=chaos.topology("127.0.0.1", 1))
    told = str(refusal.value)
    for number, text in enumerate(["agent 'nobody'", "is str, not a dict", "has no responses_create_params"]):
        assert f"examples[{number}]: {text}" in told
    assert "examples[4]: no environment server is known for taskset 't:x'" in told
    assert len(refusal.value.problems) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_repeats": 0}, "num_repeats: 0 is no number of repeats"),
        ({"num_repeats": "2"}, "num_repeats"),
        ({"fan_out": {"a": []}}, "fan_out.a: an empty list"),
        ({"agent_map": {"a": 1}}, "agent_map"),
        ({"topology": ["servers"]}, "topology: a mapping of servers was expected, not list"),
        ({"topology": "nowhere.yaml"}, "nowhere.yaml: cannot be read"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InputError) as refusal:
        rollmake.preprocess_examples([flat()], **options)
    assert message in str(refusal.value)


def test_replaced_agents_are_told(caplog):
    [row] = rollmake.preprocess_examples([flat(agent="a")], agent_map={"a": "z"})
    assert row["agent_ref"] == {"name": "z"}
    assert "'a' -> 'z' (1 rows)" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", Path("x"), "\ud800"])
def test_what_json_has_not_is_refused(value):
    with pytest.raises(InputError, match=r"examples\[0\]: has no JSON"):
        rollmake.preprocess_examples([flat(field=value)])


def test_what_is_too_deep_is_refused():
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(InputError, match="nested deeper"):
        rollmake.preprocess_examples([flat(field=deep)])


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text('aé\u2028\n"')))
def test_encoded_reads_back_as_the_row_on_one_line(row):
    assert json.loads(encoded(row)) == row
    assert b"\n" not in encoded(row)


def test_the_package_has_what_the_library_has():
    import rollmake.library

    assert rollmake.run_examples is rollmake.library.run_examples
    assert rollmake.RolloutError is rollmake.library.RolloutError
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rollmake.nothing  # noqa: B018
