"""Each row gets the server that answers it and exactly the bytes that are sent."""

import json

import pytest

from helpers import chaos
from rollmake.core.errors import InputError, Problems
from rollmake.core.topology import parse_topology
from rollmake.library.addressing import Addressing, place


def addressing(allow=False, **changes):
    servers = chaos.topology("127.0.0.1", 7) | changes
    return Addressing(parse_topology(servers, where="test"), allow_unsupported_pairing=allow)


def test_a_row_is_sent_as_it_is_with_its_keys_in_their_order():
    row = {
        "z": "é\u2028",
        "agent_ref": {"name": chaos.AGENT, "more": 1},
        "_ng_rollout_index": 5,
        "a": [1.5, None, True],
    }
    request = addressing().request(3, row)
    assert (request.position, request.server) == (3, chaos.SERVER)
    assert request.row is row
    assert list(json.loads(request.body).items()) == list(row.items())
    assert request.body.count(b"\n") == 0


def test_only_what_lacks_its_agent_gets_one_and_not_on_the_row():
    by_source = {"task_source": "chaos_resources"}
    request = addressing().request(0, by_source)
    assert json.loads(request.body) == {"task_source": "chaos_resources", "agent_ref": {"name": chaos.AGENT}}
    assert request.row == {"task_source": "chaos_resources"}
    by_server = {"_ng_environment_server": chaos.SERVER}
    assert json.loads(addressing().request(0, by_server).body)["agent_ref"] == {"name": chaos.AGENT}


def test_urls_are_those_of_environment_servers_that_have_one():
    homeless = {"environment_servers": {"legacy_agent": {"host": "h"}}}
    assert addressing(homeless=homeless).urls == {chaos.SERVER: "http://127.0.0.1:7"}


def test_every_problem_of_a_row_is_told_and_the_same_problem_once():
    row = {"agent_ref": {"name": "nobody"}, "_ng_environment_server": "nowhere"}
    with pytest.raises(Problems) as refusal:
        addressing().request(0, row)
    assert len(refusal.value.problems) == 2
    with pytest.raises(Problems) as refusal:
        addressing().check([chaos.row(), row, row])
    assert [problem.where for problem in refusal.value.problems] == ["rows[1], rows[2]"] * 2
    addressing().check([chaos.row()] * 3)


@pytest.mark.parametrize("row", [{}, {"agent_ref": None}, {"agent_ref": {}}])
def test_a_row_that_names_nobody_is_told_what_it_may_name(row):
    with pytest.raises(InputError, match="Write agent_ref, task_source or _ng_environment_server on the row"):
        addressing().request(0, row)


@pytest.mark.parametrize("identity", [{}, {"_ng_task_index": 1}, {"_ng_rollout_id": "a b"}, {"_ng_rollout_id": "x-a1"}])
def test_an_episode_needs_a_name_that_servers_take(identity):
    row = {"task_id": {"taskset": "t", "task_id": "1"}, "task_input": {}, "_ng_environment_server": chaos.SERVER}
    with pytest.raises(InputError, match="_ng_rollout_id"):
        addressing().request(0, {**row, **identity})


def test_messages_name_a_row_by_its_place_and_what_it_has_of_indices():
    assert place(2) == place(2, {}) == "rows[2]"
    assert place(2, {"_ng_task_index": 0}) == "rows[2] (task 0)"
    assert place(2, {"_ng_task_index": 0, "_ng_rollout_index": 4}) == "rows[2] (task 0, rollout 4)"
