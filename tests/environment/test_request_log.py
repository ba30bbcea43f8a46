"""The request log: every line whole and at once."""

import orjson

from rollmake.environment.request_log import RequestLog

ROW = {"_ng_task_index": 4, "_ng_rollout_index": 2, "_ng_attempt_index": 1, "other": "x"}


def lines(path):
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_each_line_is_in_the_file_when_its_call_returns(tmp_path):
    path, ticks = tmp_path / "logs" / "requests.jsonl", iter(range(9))
    log = RequestLog(path, clock=lambda: next(ticks))
    key = {"task": 4, "rollout": 2, "attempt": 1}
    assert log.arrived(ROW) == 1
    assert lines(path) == [{"request": 1, "time": 0, "event": "arrived", **key, "status": None}]
    assert log.arrived({}) == 2
    log.answered(1, ROW, 200)
    log.answered(2, {}, None)
    log.close()
    assert [(line["request"], line["event"], line["status"]) for line in lines(path)[1:]] == [
        (2, "arrived", None),
        (1, "answered", 200),
        (2, "abandoned", None),
    ]


def test_an_older_log_is_added_to(tmp_path):
    path = tmp_path / "requests.jsonl"
    for _ in range(2):
        log = RequestLog(path)
        log.arrived(ROW)
        log.close()
    assert [line["request"] for line in lines(path)] == [1, 1]


def test_without_a_file_requests_are_only_counted():
    log = RequestLog(None)
    assert [log.arrived({}), log.arrived({})] == [1, 2]
    log.close()
    assert log.descriptor == -1
