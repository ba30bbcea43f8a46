"""The history of a shard survives every kill."""

from datetime import datetime

from rollmake.edge import jobs
from rollmake.edge.lock import Holder


def test_a_job_is_killed_until_it_says_otherwise(tmp_path):
    path = tmp_path / "jobs.jsonl"
    assert jobs.read(path) == []
    first = jobs.start(path, Holder("node1", 1, "7"))
    assert [(job.end, job.ended) for job in jobs.read(path)] == [("killed", None)]
    jobs.finish(path, first, "owed", 12)
    jobs.start(path, Holder("node2", 1))
    history = jobs.read(path)
    assert [(job.host, job.job_id, job.end, job.requests) for job in history] == [
        ("node1", "7", "owed", 12),
        ("node2", None, "killed", 0),
    ]
    assert datetime.fromisoformat(history[0].started) <= datetime.fromisoformat(history[0].ended)


def test_a_line_that_was_cut_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "jobs.jsonl"
    jobs.start(path, Holder("a", 1))
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        jobs.start(path, Holder("b", 2))
        assert [job.host for job in jobs.read(path)][-1] == "b"
