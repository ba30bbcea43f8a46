"""The engine asks for each rollout once an attempt, and everything has one place. A scripted transport, no network."""

import asyncio
import json
import random

import polars as pl
import pytest

from rollmake.core.deadline import Deadline
from rollmake.core.errors import DataError
from rollmake.core.ledger import Ledger
from rollmake.core.outcome import Answered, Broken, Destination, NeverSent
from rollmake.core.settlement import KEY, failure_facts, success_facts
from rollmake.core.tally import Tally
from rollmake.edge.engine import MOST_KINDS, Engine, Limits, unknown_servers
from rollmake.edge.gate import Gate
from rollmake.edge.journal import DiskFullError
from rollmake.edge.shard_work import ShardWork

OK = Answered(200, b'{"reward":1.0}')


class Rows:
    def __init__(self, count):
        self.count = count
        self.read = []

    def line(self, position):
        self.read.append(position)
        return json.dumps({"_ng_task_index": position, "_ng_rollout_index": 0, "agent_ref": {"name": "a"}}).encode()

    def server(self, position):
        return "s"


class Store:
    def __init__(self, full=0):
        self.kept, self.full = [], full

    def append(self, destination, *parts):
        if self.full:
            self.full -= 1
            raise DiskFullError("here")
        self.kept.append((destination, json.loads(b"".join(parts))))

    def of(self, destination):
        return [row for where, row in self.kept if where is destination]


class Bench:
    """An engine over `count` rows; `script` maps a task to the answers of its requests in order, `OK` beyond them."""

    def __init__(
        self,
        count,
        script=None,
        *,
        limit=3,
        parallel=4,
        grace_s=0.0,
        route=True,
        retries=2,
        full=0,
        failures=(),
        budget=None,
        margin=None,
    ):
        owed = pl.DataFrame([(i, 0) for i in range(count)], schema=KEY, orient="row")
        self.ledger = Ledger(owed, success_facts([]), failure_facts(failures), limit)
        self.rows, self.store, self.tally = Rows(count), Store(full), Tally()
        self.script = {task: list(answers) for task, answers in (script or {}).items()}
        self.asked, self.in_flight, self.most = [], 0, 0
        self.now = 0.0
        self.up = True
        self.gate = Gate(
            "http://s", self.probe, patience_s=60, clock=lambda: self.now, sleep=self.sleep, chance=random.Random(1)
        )
        limits = Limits(num_samples_in_parallel=parallel, gateway_retries=retries, grace_s=grace_s)
        self.work = ShardWork(self.rows, self.ledger, self.tally, self.store, route_failures_to_sidecar=route)
        self.engine = Engine(
            self.work,
            self.tally,
            {"s": self.gate},
            self.send,
            limits,
            Deadline(budget, margin),
            lambda: self.now,
        )

    async def probe(self):
        return self.up

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)

    async def send(self, name, body):
        row = json.loads(body)
        task = row["_ng_task_index"]
        self.asked.append((task, row.get("_ng_attempt_index", 0)))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(0)
            answer = self.script[task].pop(0) if self.script.get(task) else OK
            if callable(answer):
                answer = await answer()
            return answer
        finally:
            self.in_flight -= 1


async def test_every_rollout_is_asked_once_and_no_more_than_allowed_at_once():
    bench = Bench(50, parallel=7)
    await bench.engine.run()
    assert sorted(bench.asked) == [(task, 0) for task in range(50)]
    assert bench.most == 7
    assert bench.ledger.owed == 0
    assert len(bench.store.of(Destination.ROLLOUTS)) == 50
    assert bench.tally.requests == 50


async def test_rows_are_read_only_when_they_are_needed():
    started = asyncio.Event()

    async def hang():
        started.set()
        await asyncio.Event().wait()

    bench = Bench(1000, {task: [hang] for task in range(1000)}, parallel=3)
    running = asyncio.create_task(bench.engine.run())
    await started.wait()
    await asyncio.sleep(0.01)
    assert len(bench.rows.read) == 3
    bench.engine.stop("enough")
    await running


async def test_failures_go_to_the_sidecar_and_are_tried_again_up_to_the_limit():
    bench = Bench(3, {0: [Answered(500, b"boom")], 1: [Broken("Reset", "gone")] * 5})
    await bench.engine.run()
    assert sorted(bench.asked) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0)]
    sidecar = bench.store.of(Destination.SIDECAR)
    assert [(row["_ng_task_index"], row.get("_ng_attempt_index")) for row in sidecar] == [
        (0, None),
        (1, None),
        (1, 1),
        (1, 2),
    ]
    assert bench.ledger.failed_by_class() == {"agent_request_failed": 1}
    assert bench.ledger.owed == 0


async def test_what_a_failed_attempt_left_behind_is_reused_by_the_next_in_the_same_job():
    failed = Answered(200, b'{"_ng_failure_class":"judge_failed","reuse_cached_deliverable":true}')
    bench = Bench(1, {0: [failed]})
    reply, sent = bench.send, []

    async def send(name, body):
        sent.append(json.loads(body).get("reuse_cached_deliverable"))
        return await reply(name, body)

    bench.engine._send = send
    await bench.engine.run()
    assert sent == [None, True]


async def test_earlier_attempts_count():
    bench = Bench(
        1,
        {0: [Answered(500, b"")] * 5},
        failures=[b'{"_ng_task_index":0,"_ng_rollout_index":0,"_ng_failure_class":"x"}'] * 2,
    )
    await bench.engine.run()
    assert bench.asked == [(0, 2)]


async def test_a_row_that_is_not_to_be_stored_stays_owed_and_is_not_asked_again():
    bench = Bench(2, {0: [Answered(200, b'{"_ng_no_persist":true}')] * 5})
    await bench.engine.run()
    assert sorted(bench.asked) == [(0, 0), (1, 0)]
    assert bench.ledger.owed == 1
    assert len(bench.store.kept) == 1


async def test_what_never_reached_the_server_spends_nothing():
    bench = Bench(3, {0: [NeverSent("Refused", "no")] * 3})
    await bench.engine.run()
    assert bench.asked.count((0, 0)) == 4
    assert bench.store.of(Destination.SIDECAR) == []
    assert bench.ledger.owed == 0
    assert bench.tally.requests == 3


async def test_a_server_that_stays_down_leaves_its_rows_owed_and_says_so():
    bench = Bench(5, {task: [NeverSent("Refused", "no")] * 1000 for task in range(5)})
    bench.up = False
    await bench.engine.run()
    assert bench.ledger.owed == 5
    assert bench.store.kept == []
    assert "did not answer for 60 s (Refused: no)" in bench.gate.gave_up


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_gateway_status_is_waited_out_within_the_attempt(status):
    bench = Bench(1, {0: [Answered(status, b"busy", "30"), Answered(status, b"busy")]})
    await bench.engine.run()
    assert bench.asked == [(0, 0)] * 3
    assert bench.store.of(Destination.SIDECAR) == []
    assert bench.now >= 30


async def test_a_gateway_status_that_does_not_end_becomes_one_row_an_attempt():
    bench = Bench(1, {0: [Answered(503, b"busy")] * 100}, retries=2, limit=2)
    await bench.engine.run()
    assert bench.asked == [(0, 0)] * 3 + [(0, 1)] * 3
    assert [row["_ng_failure_class"] for row in bench.store.of(Destination.SIDECAR)] == ["agent_request_failed"] * 2


async def test_a_server_that_only_says_gateway_statuses_and_is_not_well_is_an_outage_and_spends_nothing():
    bench = Bench(3, {task: [Answered(503, b"no model")] * 1000 for task in range(3)}, retries=2)
    bench.up = False
    await bench.engine.run()
    assert bench.store.kept == []
    assert bench.ledger.owed == 3
    assert "did not answer for 60 s (status 503" in bench.gate.gave_up


async def test_an_outage_of_a_minute_in_the_middle_costs_the_requests_that_were_in_flight_and_no_more():
    bench = Bench(60, parallel=4)
    reply = bench.send

    async def send(name, body):
        if len(bench.asked) < 20 or bench.now >= 60:
            bench.now += 0.1
            return await reply(name, body)
        bench.down = True
        return NeverSent("Refused", "no")

    async def probe():
        return bench.now >= 60

    bench.engine._send, bench.gate._probe = send, probe
    await bench.engine.run()
    assert bench.down
    assert 60 <= bench.now < 90, "within seconds after the server is back"
    assert len(bench.asked) == len(bench.store.of(Destination.ROLLOUTS)) == 60
    assert bench.store.of(Destination.SIDECAR) == []


async def test_an_outage_behind_a_gateway_ends_when_the_server_is_well_again():
    bench = Bench(2, {0: [Answered(502, b"")] * 4}, retries=2, parallel=1)
    bench.up = False

    async def sleep(seconds):
        bench.now += seconds
        bench.up = bench.now > 20
        await asyncio.sleep(0)

    bench.gate._sleep = sleep
    await bench.engine.run()
    assert bench.store.of(Destination.SIDECAR) == []
    assert bench.ledger.owed == 0


async def test_the_first_failure_of_each_kind_is_logged_with_what_the_server_said(caplog):
    bench = Bench(5, {task: [Answered(500, b'"wrong key"\n')] for task in range(5)}, limit=1)
    await bench.engine.run()
    said = [record.getMessage() for record in caplog.records if "status 500" in record.getMessage()]
    assert said == [
        'status 500 from http://s: class agent_run_error; it said: "wrong key"',
        "status 500 from http://s: 5 times in all",
    ]


async def test_failures_of_one_kind_are_counted_together_whatever_they_say(caplog):
    broken = {task: [Broken("ClientPayloadError", f"got {task} bytes\n\x1b[31m")] for task in range(3)}
    garbage = {task: [Answered(200, b"<html>%d" % task)] for task in range(3, 6)}
    bench = Bench(9, broken | garbage | {7: [Answered(429, b"slow", "0")]}, limit=1)
    await bench.engine.run()
    said = [record.getMessage() for record in caplog.records]
    assert sum("ClientPayloadError" in text for text in said) == 2
    assert [text for text in said if "got" in text] == [
        "ClientPayloadError: got 0 bytes \\u001b[31m from http://s: class agent_request_failed"
    ]
    assert "ClientPayloadError from http://s: 3 times in all" in said
    assert "JSONDecodeError from http://s: 3 times in all" in said
    assert any(text.startswith("JSONDecodeError: the reply is no JSON") and "<html>3" in text for text in said)
    assert sum("status 429" in text for text in said) == 1, "what came once is not summed up"


async def test_a_server_with_ever_new_kinds_of_failures_does_not_fill_log_and_memory(caplog):
    bench = Bench(300, {task: [Broken(f"Error{task}", "x")] for task in range(0, 300, 2)}, limit=1, parallel=1)
    await bench.engine.run()
    assert sum("class agent_request_failed" in record.getMessage() for record in caplog.records) == MOST_KINDS


async def test_stopping_starts_nothing_new_and_lets_what_is_in_flight_end():
    bench = Bench(100, parallel=5, grace_s=60)

    async def stopping():
        bench.engine.stop("received SIGTERM")
        await asyncio.sleep(0.01)
        return OK

    bench.script = {2: [stopping]}
    await bench.engine.run()
    assert len(bench.asked) == len(bench.store.kept) < 100
    assert (2, 0) in bench.asked
    assert bench.engine.stopped_by == "received SIGTERM"


async def test_after_the_grace_what_is_in_flight_leaves_no_row():
    async def hang():
        bench.engine.stop("received SIGTERM")
        await asyncio.Event().wait()

    bench = Bench(3, {0: [hang]}, grace_s=0.0, parallel=1)
    await bench.engine.run()
    assert bench.store.kept == []
    assert bench.ledger.owed == 3
    assert bench.in_flight == 0


async def test_without_routing_the_first_failure_ends_the_run_and_is_named():
    bench = Bench(10, {3: [Answered(500, b"boom")]}, route=False, parallel=1)
    await bench.engine.run()
    assert "task 3, rollout 0: status 500 from http://s" in bench.work.refused
    assert [row["_ng_task_index"] for row in bench.store.of(Destination.ROLLOUTS)] == [0, 1, 2]
    assert bench.store.of(Destination.SIDECAR) == []


async def test_a_failure_that_the_server_names_is_routed_even_without_routing():
    bench = Bench(2, {0: [Answered(200, b'{"_ng_failure_class":"skipped","_ng_failure_terminal":true}')]}, route=False)
    await bench.engine.run()
    assert bench.work.refused is None
    assert len(bench.store.of(Destination.SIDECAR)) == 1


async def test_a_full_disk_holds_the_answer_until_there_is_room(monkeypatch):
    monkeypatch.setattr("rollmake.edge.shard_work.DISK_FIRST_S", 0.001)
    bench = Bench(3, parallel=1, full=2)
    await bench.engine.run()
    assert len(bench.store.kept) == 3
    assert len(bench.asked) == 3


def takes(bench, seconds):
    async def answer():
        bench.now += seconds
        return OK

    return answer


async def test_a_spent_budget_starts_nothing_and_leaves_no_row():
    bench = Bench(2, budget=0.0)
    await bench.engine.run()
    assert (bench.asked, bench.store.kept, bench.ledger.owed) == ([], [], 2)
    assert "dispatch_budget_s" in bench.engine.stopped_by


async def test_nothing_is_started_that_would_not_end_in_time():
    bench = Bench(100, budget=100.0, margin=25.0, parallel=1)
    bench.script = {task: [takes(bench, 10)] for task in range(100)}
    await bench.engine.run()
    assert len(bench.asked) == len(bench.store.kept) == 8


async def test_the_margin_is_learned_from_what_finished():
    bench = Bench(100, budget=100.0, parallel=1)
    bench.script = {task: [takes(bench, 9)] for task in range(100)}
    await bench.engine.run()
    assert len(bench.store.kept) == 11
    assert bench.now == 99


async def test_what_is_in_flight_when_the_budget_ends_is_waited_for():
    bench = Bench(5, budget=10.0, parallel=2, grace_s=0.0)
    bench.script = {0: [takes(bench, 50)]}
    await bench.engine.run()
    assert {row["_ng_task_index"] for row in bench.store.of(Destination.ROLLOUTS)} == {0, 1}


class Closed(Bench):
    """A bench whose server is down and whose gate waits for ever."""

    def __init__(self, count, **options):
        super().__init__(count, {task: [NeverSent("Refused", "no")] * 9 for task in range(count)}, **options)
        self.up = False
        self.waiting = asyncio.Event()

    async def sleep(self, seconds):
        self.waiting.set()
        await asyncio.Event().wait()


async def test_who_waits_for_a_server_is_called_back_when_the_engine_is_stopped():
    bench = Closed(3, grace_s=3600)
    running = asyncio.create_task(bench.engine.run())
    await bench.waiting.wait()
    bench.engine.stop("received SIGTERM")
    await asyncio.wait_for(running, 30)
    assert (bench.ledger.owed, bench.store.kept) == (3, [])


async def test_who_waits_for_a_server_is_called_back_when_the_budget_ends(monkeypatch):
    monkeypatch.setattr("rollmake.edge.engine.WATCH_S", 0.001)
    bench = Closed(3, budget=100.0)
    running = asyncio.create_task(bench.engine.run())
    await bench.waiting.wait()
    bench.now = 101.0
    await asyncio.wait_for(running, 30)
    assert (bench.ledger.owed, bench.gate.gave_up) == (3, None)
    assert "dispatch_budget_s" in bench.engine.stopped_by


async def test_who_is_held_back_by_a_gateway_is_called_back_too():
    bench = Closed(1, grace_s=3600)
    bench.script = {0: [Answered(503, b"", "600")]}
    running = asyncio.create_task(bench.engine.run())
    await bench.waiting.wait()
    bench.engine.stop("received SIGUSR1")
    await asyncio.wait_for(running, 30)
    assert (bench.asked, bench.ledger.owed, bench.store.kept) == ([(0, 0)], 1, [])


async def test_a_brown_out_does_not_close_the_gate_whatever_the_server_says_of_its_health():
    """Every fifth row is refused with 503 for ever, the others are answered."""
    sick = {task: [Answered(503, b"no")] * 99 for task in range(0, 50, 5)}
    bench = Bench(50, sick, limit=1, retries=1, parallel=8)
    bench.up = False
    await bench.engine.run()
    assert bench.gate.gave_up is None
    assert len(bench.store.of(Destination.ROLLOUTS)) == 40
    assert len(bench.store.of(Destination.SIDECAR)) == 10


class TwoServers(Bench):
    """Even rows are those of server `s`, odd ones those of `t`, which takes nothing until all the others are stored."""

    def __init__(self, count, *, comes_back, **options):
        super().__init__(count, **options)
        self.comes_back = comes_back
        patience_s = 1e9 if comes_back else 60
        self.rows.server = lambda position: "st"[position % 2]
        self.other = Gate("http://t", self.other_up, patience_s=patience_s, clock=lambda: self.now, sleep=self.sleep)
        self.engine._gates = {"s": self.gate, "t": self.other}

    async def other_up(self):
        return self.comes_back and len(self.store.kept) >= self.rows.count // 2

    async def send(self, name, body):
        if name == "t" and not await self.other_up():
            return NeverSent("Refused", "no")
        return await super().send(name, body)


@pytest.mark.parametrize("comes_back", [True, False])
async def test_while_one_server_is_waited_for_the_others_go_on(comes_back):
    bench = TwoServers(400, parallel=8, comes_back=comes_back)
    await bench.engine.run()
    stored = [row["_ng_task_index"] for row in bench.store.of(Destination.ROLLOUTS)]
    assert sorted(stored[:200]) == list(range(0, 400, 2)), "all of the other server's, before any of this one's"
    assert sorted(stored[200:]) == (list(range(1, 400, 2)) if comes_back else [])
    assert bench.ledger.owed == (0 if comes_back else 200)
    assert bool(bench.other.gave_up) is not comes_back
    assert bench.store.of(Destination.SIDECAR) == []


async def test_rows_that_break_among_rows_that_are_answered_do_not_close_the_gate():
    breaking = {task: [Broken("Reset", "gone")] * 9 for task in range(0, 60, 3)}
    bench = Bench(60, breaking, limit=2, parallel=4)
    bench.probes = 0

    async def probe():
        bench.probes += 1
        return True

    bench.gate._probe = probe
    await bench.engine.run()
    assert len(bench.store.of(Destination.ROLLOUTS)) == 40
    assert (bench.ledger.owed, bench.gate.gave_up) == (0, None)


async def test_rows_that_always_break_and_are_all_that_is_left_do_not_make_a_healthy_server_an_outage():
    bench = Bench(200, {task: [Broken("Reset", "gone")] * 9 for task in range(0, 200, 2)}, limit=4, parallel=4)
    await bench.engine.run()
    assert len(bench.store.of(Destination.ROLLOUTS)) == 100
    assert len(bench.store.of(Destination.SIDECAR)) == 400
    assert (bench.ledger.owed, bench.gate.gave_up) == (0, None)
    assert bench.now < 30


async def test_a_reply_that_begins_and_breaks_says_that_the_server_is_up():
    bench = Bench(50, {task: [Broken("ClientPayloadError", "no chunk", 200)] * 9 for task in range(50)}, limit=2)
    bench.up = False
    await bench.engine.run()
    assert len(bench.store.of(Destination.SIDECAR)) == 100
    assert (bench.ledger.owed, bench.gate.gave_up, bench.now) == (0, None, 0.0)


@pytest.mark.parametrize("status", [None, 502])
async def test_an_outage_of_a_server_that_breaks_every_exchange_spends_few_attempts(status):
    bench = Bench(100, {task: [Broken("Reset", "gone", status)] * 10 for task in range(100)}, parallel=4)
    await bench.engine.run()
    assert len(bench.store.of(Destination.SIDECAR)) < 60
    assert bench.gate.gave_up


async def test_a_typed_row_is_sent_as_an_episode_and_stored_as_its_result():
    bench = Bench(1)
    identity = {"taskset": "env:math", "task_id": "t1"}
    typed = {"task_id": identity, "task_input": {"q": 1}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    bench.rows.line = lambda position: json.dumps(typed).encode()
    sent = []

    async def send(name, body):
        sent.append(json.loads(body))
        episode = {"episode_id": sent[-1]["episode_id"], "task_id": identity}
        failed = {**episode, "failure": {"failure_reason": "late", "terminal": False}}
        done = {**episode, "result": {"reward": 0.5}}
        return Answered(200, json.dumps(failed if len(sent) == 1 else done).encode())

    bench.engine._send = send
    await bench.engine.run()
    assert [body["episode_id"] for body in sent] == [
        {"rollout_id": "0-0", "attempt": 0},
        {"rollout_id": "0-0", "attempt": 1},
    ]
    assert sent[0]["task"] == {"task_id": identity, "task_input": {"q": 1}}
    assert bench.store.of(Destination.SIDECAR)[0]["_ng_failure_class"] == "environment_server_failed"
    [stored] = bench.store.of(Destination.ROLLOUTS)
    assert (stored["reward"], stored["_ng_task_id"], stored["_ng_attempt_index"]) == (0.5, identity, 1)


@pytest.mark.parametrize("line", [b'{"_ng_task_index":0', b"[1]", b'{"_ng_rollout_index":0}', b"\xff"])
async def test_a_materialized_row_that_is_none_is_named_and_nothing_is_sent_for_it(line):
    bench = Bench(1)
    bench.rows.line = lambda position: line
    with pytest.raises(DataError, match=r"no row with indices.*materialize again"):
        await bench.engine.run()
    assert bench.asked == []


async def test_a_defect_of_ours_ends_the_run_loudly():
    async def defect():
        raise KeyError("bug")

    bench = Bench(3, {1: [defect]})
    with pytest.raises(KeyError):
        await bench.engine.run()
    assert bench.in_flight == 0


def test_servers_without_an_address_are_named_with_those_that_are_known():
    unknown_servers({"s"}, {"s": "http://s"})
    with pytest.raises(Exception, match=r"environment servers b, c.*Known now: s"):
        unknown_servers({"s", "c", "b"}, {"s": "http://s"})
