"""Options that contradict themselves are refused together, by key."""

import pytest

from helpers.materialize import options
from rollmake.core.errors import InputError, Problems
from rollmake.core.options import check_options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_repeats": 0}, r"num_repeats: 0 is no number of repeats"),
        ({"num_repeats": {"a": 2, "b": -1}}, r"num_repeats\.b: -1 is no number of repeats"),
        ({"fan_out": {"a": []}}, r"fan_out\.a: an empty list would drop its rows"),
        ({"fan_out": {"a": ["x", "y", "x"]}}, r"fan_out\.a: x stands twice.*num_repeats"),
        (
            {"agent_name": "a", "agent_map": {"_default": "b"}},
            r"agent_map\._default: agent_name is 'a', but agent_map has 'b'",
        ),
        ({"environment_routing_mode": "legacy"}, r"environment_server_name: .*legacy"),
        ({"environment_routing_mode": "taskset"}, r"environment_server_routes: .*taskset"),
        ({"limit": -1}, r"limit: limit is -1"),
    ],
)
def test_refused(given, message):
    with pytest.raises(InputError, match=message):
        check_options(options(**given))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"num_repeats": None},
        {"num_repeats": {"_default": 1}},
        {"agent_name": "a", "agent_map": {"_default": "a", "b": "c"}},
        {"environment_routing_mode": "legacy", "environment_server_name": "s"},
        {"environment_routing_mode": "taskset", "environment_server_routes": {"t": "s"}},
        {"limit": 0},
    ],
)
def test_accepted(given):
    check_options(options(**given))


def test_all_at_once():
    with pytest.raises(Problems) as refusal:
        check_options(options(num_repeats=0, fan_out={"a": [], "b": ["x", "x"]}, environment_routing_mode="legacy"))
    assert len(refusal.value.problems) == 4


def test_agent_name_is_the_default_of_agent_map():
    assert options(agent_name="a", agent_map={"b": "c"}).mapped == {"b": "c", "_default": "a"}
    assert options(agent_map={"b": "c"}).mapped == {"b": "c"}
