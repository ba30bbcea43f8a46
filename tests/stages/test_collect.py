"""Stage collect against a server on loopback that misbehaves on demand and logs every request."""

import itertools
import json
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial

import orjson
import pytest
from jsonschema import validate

from helpers.chaos import SERVER, reward, row
from helpers.runs import Run, json_lines, rollmake
from helpers.servers import ChaosServer, chaos_server, wait_until
from rollmake.core.outcome import STAMPS
from rollmake.edge.settings import schema
from rollmake.stages.status import statuses

WORDS = [
    "ok", "500", "reset", "cut", "misframed", "garbage", "nan", "list", "empty", "text", "null", "masked", "newline", "reserved",
    "duplicate", "class:judge_failed", "class:", "terminal", "503", "404",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with chaos_server(tmp_path_factory.mktemp("server")) as running:
        yield running


def keys(rows):
    return sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows)


def test_a_shard_is_cleaned_as_repair_does_and_a_failure_of_that_costs_no_rollout(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row(number=i) for i in range(5)], repeats=2)
    (tmp_path / "blocked").touch()
    assert run.collect(repaired=tmp_path / "blocked" / "rollouts.jsonl") == 1
    assert "blocked" in capfd.readouterr().err
    asked = sum(server.arrived().values())
    assert run.collect(repaired=tmp_path / "a" / "rollouts.jsonl", texts="question") == 0
    assert sum(server.arrived().values()) == asked
    assert rollmake("repair", "--rollouts", run.output(), "--output", tmp_path / "b" / "rollouts.jsonl",
                    "--texts", "question") == 0  # fmt: skip
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(names) == 6
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


def test_a_shard_is_collected_sealed_and_sealed_again_at_once(tmp_path, server):
    run = Run(tmp_path, server.address, [row(number=i) for i in range(5)], repeats=3)
    before = sum(server.arrived().values())
    assert run.collect() == 0
    assert keys(run.rollouts()) == [(task, rollout) for task in range(5) for rollout in range(3)]
    assert all(r["reward"] == reward(r["_ng_task_index"], r["_ng_rollout_index"]) for r in run.rollouts())
    assert run.failures() == []
    materialized = run.output().with_name("rollouts_materialized_inputs.jsonl").read_bytes()
    assert materialized == (tmp_path / "rollouts_materialized_inputs.jsonl").read_bytes()
    first = run.output().read_bytes()
    run.output().unlink()
    assert run.collect() == 0
    assert run.output().read_bytes() == first
    assert sum(server.arrived().values()) - before == 15
    collection = run.collection()
    validate(collection, schema("collection"))
    assert (collection["owed"], collection["succeeded"], collection["requests"]) == (15, 15, 15)
    assert [job["end"] for job in collection["jobs"]] == ["sealed", "sealed"]
    assert collection["latency"]["count"] == 15


def test_every_kind_of_reply_has_its_place(tmp_path, server):
    run = Run(tmp_path, server.address, [row([word], i) for i, word in enumerate(WORDS)])
    assert run.collect(max_attempts=1, gateway_retries=0) == 0
    stored = {WORDS[r["_ng_task_index"]]: r for r in run.rollouts()}
    failed = {WORDS[r["_ng_task_index"]]: r for r in run.failures()}
    assert stored.keys() == {"ok", "text", "null", "masked", "newline", "reserved", "duplicate"}
    assert failed.keys() == set(WORDS) - stored.keys()
    assert {word: r["_ng_failure_class"] for word, r in failed.items()} == {
        "500": "agent_run_error",
        "404": "agent_run_error",
        "503": "agent_request_failed",
        "reset": "agent_request_failed",
        "cut": "agent_run_error",
        "misframed": "agent_run_error",
        "garbage": "agent_run_error",
        "nan": "agent_run_error",
        "list": "agent_run_error",
        "empty": "agent_run_error",
        "class:judge_failed": "judge_failed",
        "class:": "",
        "terminal": "given_up",
    }
    assert run.collection()["failed_by_class"]["agent_run_error"] == 8


def test_what_is_stored_is_what_was_answered_but_for_the_stamps(tmp_path, server):
    run = Run(tmp_path, server.address, [row([word], i, salt=str(tmp_path)) for i, word in enumerate(WORDS)], repeats=2)
    assert run.collect(max_attempts=2, gateway_retries=0) == 0
    answers = server.answers()
    for stored in [*run.rollouts(), *(r for r in run.failures() if "_ng_failure_type" not in r)]:
        key = (stored["_ng_task_index"], stored["_ng_rollout_index"], stored.get("_ng_attempt_index", 0))
        sent = [{k: v for k, v in json.loads(body).items() if k not in STAMPS} for body in answers[key]]
        assert {k: v for k, v in stored.items() if k not in STAMPS} in sent


def test_failures_are_tried_again_in_the_same_job_with_their_attempt_number(tmp_path, server):
    run = Run(tmp_path, server.address, [row(["500", "reset"], 1, salt="again")])
    assert run.collect() == 0
    assert [r.get("_ng_attempt_index") for r in run.failures()] == [None, 1]
    assert [r["_ng_attempt_index"] for r in run.rollouts()] == [2]


def test_a_timeout_that_is_to_be_retried_is_retried_in_the_same_job_whatever_its_flag_says(tmp_path, server):
    run = Run(tmp_path, server.address, [row(["late", "ok"], 1)])
    assert run.collect(retry_terminal_timeouts="true") == 0
    assert [r["_ng_failure_class"] for r in run.failures()] == ["timeout_exceeded"]
    assert [r["_ng_attempt_index"] for r in run.rollouts()] == [1]


def test_once_everything_is_answered_ctrl_c_is_no_longer_kept_from_the_process(tmp_path, server):
    assert Run(tmp_path, server.address, [row()]).collect() == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_row_out_of_attempts_is_given_up_and_more_attempts_take_it_up_again(tmp_path, server):
    run = Run(tmp_path, server.address, [row(["500"] * 3, 1)])
    assert run.collect(max_attempts=2) == 0
    assert (len(run.failures()), run.rollouts(), run.collection()["gated"]) == (2, [], 1)
    published = run.output().with_name("rollouts_failures.jsonl").read_bytes()
    assert run.collect(max_attempts=4) == 0
    assert len(run.failures()) == 3
    assert run.output().with_name("rollouts_failures.jsonl").read_bytes().startswith(published)
    assert (run.rollouts()[0]["_ng_attempt_index"], run.collection()["gated"]) == (3, 0)


def test_a_row_not_to_be_stored_is_owed_and_the_exit_code_says_run_me_again(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row(["no_persist"] * 9, 1), row(number=2)])
    assert run.collect() == 75
    assert not run.output().exists()
    assert len(json_lines(run.journal() / "rollouts.jsonl")) == 1
    assert "1 of 2 rollouts are still owed: 1 answered, but not to be stored" in capfd.readouterr().err
    assert json.loads((run.journal() / "progress.json").read_text())["state"] == "owed"


def test_accepting_a_partial_shard_publishes_it_and_turning_it_off_goes_on(tmp_path, server):
    rows = [row(number=1), row(number=2)]
    run = Run(tmp_path, server.address, rows)
    run.journal().mkdir(parents=True)
    (run.journal() / "rollouts.jsonl").write_bytes(b'{"reward":1,"_ng_task_index":0,"_ng_rollout_index":0}\n')
    assert run.collect(accept_partial="true") == 0
    assert keys(run.rollouts()) == [(0, 0)]
    assert (run.collection()["missing"], run.collection()["jobs"][-1]["end"]) == (1, "accepted partial")
    published = run.output().read_bytes()
    assert run.collect() == 0
    assert keys(run.rollouts()) == [(0, 0), (1, 0)]
    assert run.output().read_bytes().startswith(published)


def test_a_torn_tail_is_cut_and_its_row_asked_again_without_an_attempt(tmp_path, server):
    run = Run(tmp_path, server.address, [row(number=i) for i in range(3)])
    run.journal().mkdir(parents=True)
    main, side = run.journal() / "rollouts.jsonl", run.journal() / "rollouts_failures.jsonl"
    main.write_bytes(
        b'{"_ng_task_index":0,"_ng_rollout_index":0,"reward":1}\n{"_ng_task_index":1,"_ng_rollout_index":0,"rew'
    )
    side.write_bytes(b'{"_ng_task_index":2,"_ng_rollout_index":0,"_ng_failure_class":"x"}\n{"_ng_task_in')
    assert run.collect() == 0
    assert {r["_ng_task_index"]: r.get("_ng_attempt_index") for r in run.rollouts()} == {0: None, 1: None, 2: 1}
    torn = (run.journal() / "torn.bin").read_bytes()
    assert torn == b'{"_ng_task_index":1,"_ng_rollout_index":0,"rew\n{"_ng_task_in\n'


def test_without_routing_the_job_ends_at_the_first_failure_and_keeps_what_was_answered(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row(number=0), row(["500"], 1), row(number=2)])
    assert run.collect(route_failures_to_sidecar="false", num_samples_in_parallel=1) == 1
    assert "task 1, rollout 0: status 500" in capfd.readouterr().err
    assert keys(json_lines(run.journal() / "rollouts.jsonl")) == [(0, 0)]
    assert (run.journal() / "rollouts_failures.jsonl").read_bytes() == b""
    assert not run.output().exists()


def test_a_server_that_is_down_at_the_start_is_waited_for(tmp_path):
    server = ChaosServer(tmp_path).start()
    run = Run(tmp_path / "run", server.address, [row(number=i) for i in range(4)])
    server.stop()
    collector = run.start()
    try:
        wait_until((run.journal() / "jobs.jsonl").exists, "the collector's start")
        server.start()
        assert collector.wait(60) == 0, collector.stderr.read()
    finally:
        collector.kill()
        server.stop()
    assert keys(run.rollouts()) == [(i, 0) for i in range(4)]
    assert run.failures() == []
    assert max(server.arrived().values()) == 1


def test_a_server_that_stays_down_leaves_everything_owed_and_spends_nothing(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row(number=i) for i in range(4)])
    run.environment = json.dumps({"head_server": "http://127.0.0.1:9"})
    assert run.collect(outage_patience_s=0.3) == 75
    assert "waited 0.3 s for it" in capfd.readouterr().err
    assert (run.journal() / "rollouts_failures.jsonl").read_bytes() == b""


def test_a_server_that_stands_still_for_a_while_costs_nothing(tmp_path):
    with chaos_server(tmp_path) as server:
        run = Run(tmp_path / "run", server.address, [row(["slow:0.05"], i) for i in range(40)])
        collector = run.start(num_samples_in_parallel=4)
        try:
            wait_until(partial(has_lines, run.journal() / "rollouts.jsonl", 4), "rows in the journal")
            server.process.send_signal(signal.SIGSTOP)
            stored = (run.journal() / "rollouts.jsonl").read_bytes().count(b"\n")
            assert collector.poll() is None
            server.process.send_signal(signal.SIGCONT)
            assert collector.wait(60) == 0, collector.stderr.read()
        finally:
            collector.kill()
        assert stored < 40
        assert keys(run.rollouts()) == [(i, 0) for i in range(40)]
        assert run.failures() == []
        assert max(server.arrived().values()) == 1


def test_sigterm_lets_what_is_in_flight_end_and_leaves_the_rest_owed(tmp_path, server):
    rows = [row(["slow:0.5"], i, salt="term") for i in range(40)]
    run = Run(tmp_path, server.address, rows)
    before = len(server.log())
    collector = run.start(num_samples_in_parallel=4, grace_s=30)
    try:
        wait_until(lambda: len(server.log()) - before >= 4, "requests in flight")
        collector.send_signal(signal.SIGTERM)
        said = collector.communicate(timeout=60)[1]
    finally:
        collector.kill()
    assert collector.returncode == 75
    assert "rollouts are still owed: received SIGTERM" in said
    stored = json_lines(run.journal() / "rollouts.jsonl")
    events = Counter(e["event"] for e in server.log()[before:])
    assert len(stored) == events["answered"] == events["arrived"]
    assert 4 <= len(stored) < 40


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_rollouts_that_take_longer_than_the_grace_leave_no_row_and_spend_nothing(tmp_path, server, number):
    run = Run(tmp_path, server.address, [row(["slow:600"], i, salt=str(tmp_path)) for i in range(6)])
    before = server.arrived()
    collector = run.start(num_samples_in_parallel=4, grace_s=0.2)
    try:
        wait_until(lambda: sum((server.arrived() - before).values()) == 4, "requests in flight")
        collector.send_signal(number)
        said = collector.communicate(timeout=60)[1]
    finally:
        collector.kill()
    assert collector.returncode == 75
    assert f"6 of 6 rollouts are still owed: received {number.name}" in said
    assert (run.journal() / "rollouts.jsonl").read_bytes() == b""
    assert (run.journal() / "rollouts_failures.jsonl").read_bytes() == b""


def test_a_clock_that_jumps_changes_no_wait_and_no_figure(tmp_path, server, monkeypatch):
    jumps = itertools.cycle([0, 86_400, -400_000, 3600 * 24 * 365, -7])
    monkeypatch.setattr("time.time_ns", lambda: 1_800_000_000_000_000_000 + next(jumps) * 1_000_000_000)
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0 + next(jumps))
    words = [["ok"], ["503", "ok"], ["500", "ok"], ["reset", "slow:0.1"]]
    run = Run(tmp_path, server.address, [row(word, i) for i, word in enumerate(words * 3)])
    started = time.monotonic()
    options = {"dispatch_budget_s": 3000, "progress_interval_s": 0.02, "fsync_interval_s": 0.01, "gateway_retries": 0}
    assert run.collect(num_samples_in_parallel=2, **options) == 0
    elapsed_s = time.monotonic() - started
    assert keys(run.rollouts()) == [(i, 0) for i in range(12)]
    collection = run.collection()
    validate(collection, schema("collection"))
    assert 0 <= collection["latency"]["min_s"] <= collection["latency"]["max_s"] < elapsed_s
    progress = json.loads((run.journal() / "progress.json").read_text())
    assert progress["rate_per_s"] > 1 / elapsed_s
    assert (progress["eta_s"], progress["state"]) == (0, "sealed")
    assert len(statuses_of(run, tmp_path)) == 1


def statuses_of(run, folder):
    """The status as somebody sees it whose clock is a year behind and ahead."""
    for year in (2020, 2040):
        [status] = statuses(folder, datetime(year, 1, 1, tzinfo=UTC))
        assert (status.state, status.done) == ("sealed", 12)
        assert status.age_s >= 0
    return [status]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_while_the_servers_are_waited_for_ends_the_job_in_good_order(tmp_path, server, number):
    run = Run(tmp_path, server.address, [row()])
    run.environment = json.dumps({"head_server": "http://127.0.0.1:9"})
    collector = run.start()
    try:
        said = next(line for line in collector.stderr if "waiting for it" in line)
        collector.send_signal(number)
        said = collector.communicate(timeout=60)[1]
    finally:
        collector.kill()
    assert collector.returncode == 75, said
    assert f"received {number.name} before anything was asked" in said
    assert "Traceback" not in said


def test_the_budget_runs_while_the_servers_are_waited_for(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row()])
    run.environment = json.dumps({"head_server": "http://127.0.0.1:9"})
    assert run.collect(dispatch_budget_s=0.2, outage_patience_s=3600) == 75
    assert "no answer" in capfd.readouterr().err


def test_two_collectors_take_turns_and_ask_nothing_twice(tmp_path, server):
    run = Run(tmp_path, server.address, [row(["slow:0.1"], i, salt="two") for i in range(12)])
    before = server.arrived()
    first, second = (run.start(num_samples_in_parallel=2) for _ in range(2))
    try:
        said = [collector.communicate(timeout=60)[1] for collector in (first, second)]
    finally:
        first.kill()
        second.kill()
    assert (first.returncode, second.returncode) == (0, 0), said
    assert any("waiting for process" in text for text in said)
    assert sum((server.arrived() - before).values()) == 12
    assert keys(run.rollouts()) == [(i, 0) for i in range(12)]


def has_lines(path, count):
    return path.exists() and path.read_bytes().count(b"\n") >= count


def test_a_killed_collector_loses_nothing_and_repeats_only_what_was_in_flight(tmp_path, server):
    # They take differently long, so that at no moment all of them end together.
    run = Run(tmp_path, server.address, [row([f"slow:{0.1 + i % 7 * 0.04:.2f}"], i, salt="kill") for i in range(60)])
    before, parallel = server.arrived(), 5
    for _ in range(3):
        journal = run.journal() / "rollouts.jsonl"
        stored = journal.read_bytes().count(b"\n") if journal.exists() else 0
        collector = run.start(num_samples_in_parallel=parallel)
        wait_until(partial(has_lines, journal, stored + 6), "rows in the journal")
        collector.kill()
        collector.wait()
        arrived = sum((server.arrived() - before).values())
        assert arrived > journal.read_bytes().count(b"\n"), "requests were in flight"
    assert run.collect(num_samples_in_parallel=parallel) == 0
    assert keys(run.rollouts()) == [(i, 0) for i in range(60)]
    repeated = Counter((server.arrived() - before).values())
    assert sum((server.arrived() - before).values()) <= 60 + 3 * parallel, repeated
    assert [job["end"] for job in run.collection()["jobs"]] == ["killed"] * 3 + ["sealed"]


def test_a_shard_that_the_plan_does_not_have_is_refused(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row()])
    assert run.collect("0000-of-0002") == 1
    assert "0000-of-0002 is no shard of a plan with 1" in capfd.readouterr().err
    assert run.collect("0-of-1") == 1
    assert "'0-of-1' is no shard; shards are called like 0003-of-0016" in capfd.readouterr().err


def test_an_empty_shard_is_sealed_at_once(tmp_path, server):
    run = Run(tmp_path, server.address, [row()], shards=2)
    assert run.collect("0001-of-0002") == 0
    assert (run.rollouts("0001-of-0002"), run.collection("0001-of-0002")["owed"]) == ([], 0)


def test_a_server_that_was_renamed_is_named_before_anything_is_sent(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row(salt="renamed")])
    topology = tmp_path / "topology.yaml"
    topology.write_text("other: {environment_servers: {x: {host: 127.0.0.1, port: 9}}}\n")
    run.environment = json.dumps({"topology": str(topology)})
    assert run.collect() == 1
    said = capfd.readouterr().err
    assert f"no address is known of the environment server {SERVER}" in said
    assert "Known now: other" in said


def test_the_journal_is_accepted_by_a_strict_reader_and_holds_no_secret(tmp_path, server):
    run = Run(tmp_path, server.address, [row([word], i) for i, word in enumerate(WORDS)])
    assert run.collect(max_attempts=1, gateway_retries=0) == 0
    for path in run.journal().glob("*.jsonl"):
        assert all(orjson.loads(line) for line in path.read_bytes().split(b"\n") if line)
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and b"secret-of-the-head-server" in path.read_bytes()
    ]


def test_the_command_line_is_read_as_yaml_and_refused_with_the_options_name(tmp_path, server, capfd):
    run = Run(tmp_path, server.address, [row()])
    assert rollmake(*run.words(num_samples_in_parallel="many")) == 1
    assert "num_samples_in_parallel: 'many' is text, not integer" in capfd.readouterr().err
