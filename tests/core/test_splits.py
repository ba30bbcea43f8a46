"""Which data sets a split is, and what is said if there is none."""

import pytest

from rollmake.core.splits import declared
from rollmake.core.topology import parse_topology


def topology(**servers):
    blocks = {name: {"resources_servers": {name: {"datasets": datasets}}} for name, datasets in servers.items()}
    return parse_topology(blocks, where="t")


def dataset(kind, path, **more):
    return {"type": kind, "jsonl_fpath": path, **more}


def test_all_data_sets_of_a_type_in_the_order_of_the_topology():
    found, problems = declared(
        topology(
            z=[dataset("train", "b.jsonl"), dataset("validation", "v.jsonl"), dataset("train", "a.jsonl", name="a")],
            a=[dataset("train", "b.jsonl")],
            m=[],
        ),
        "train",
    )
    assert problems == []
    assert [(one.server, one.path) for one in found] == [("z", "b.jsonl"), ("z", "a.jsonl"), ("a", "b.jsonl")]
    assert [one.place for one in found] == ["z.datasets.0", "z.datasets.2 (a)", "a.datasets.0"]


@pytest.mark.parametrize(
    ("servers", "known"),
    [
        ({}, "it declares none at all"),
        (
            {"z": [dataset("validation", "v"), dataset("validation", "w")], "a": [dataset("benchmark", "b")]},
            "there is validation (z), benchmark (a)",
        ),
    ],
)
def test_a_split_that_nobody_declares_is_told_with_those_that_are(servers, known):
    found, (problem,) = declared(topology(**servers), "train")
    assert found == []
    assert str(problem).startswith("split: no server of the environment declares a data set of type 'train'; " + known)
    assert "Declare one below `datasets` of a server, or use `input`" in str(problem)


def test_a_data_set_without_a_path_is_told_with_its_server():
    found, (problem,) = declared(topology(z=[{"type": "train", "name": "sums"}, dataset("train", "b")]), "train")
    assert [one.path for one in found] == ["b"]
    assert str(problem) == "z.datasets.0 (sums): has no jsonl_fpath. Add the path of its JSONL file"
