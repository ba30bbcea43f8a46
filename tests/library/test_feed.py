"""Rows go out in order and within bounds, and each comes back once, whatever happens. A scripted transport, no network."""

import asyncio
import json

import pytest

from helpers.library_bench import Bench, hang, numbered
from rollmake.core.errors import InputError, Problems
from rollmake.core.outcome import Answered, Broken, NeverSent
from rollmake.library.types import RolloutError

DRAINED = {"_ng_failure_class": "cancelled", "_ng_no_persist": True, "_ng_dispatch_drained": True}


async def all_of(bench, seen=None):
    seen = [] if seen is None else seen
    async for rollout in bench.rollouts():
        seen.append(rollout)
    return seen


def drained(rollouts):
    return [rollout.row["_ng_task_index"] for rollout in rollouts if "_ng_dispatch_drained" in rollout.result]


async def quiet():
    """Let everything go on that can."""
    for _ in range(50):
        await asyncio.sleep(0)


class Pulled:
    """Rows that count how many were pulled, as an iterator or as an asynchronous one."""

    def __init__(self, count):
        self.count, self.rows = 0, numbered(count)

    def __iter__(self):
        for row in self.rows:
            self.count += 1
            yield row


class PulledLater(Pulled):
    __iter__ = None

    async def __aiter__(self):
        for row in self.rows:
            self.count += 1
            await asyncio.sleep(0)
            yield row


async def test_rows_are_sent_in_order_and_come_back_in_the_order_in_which_they_end():
    rows = numbered(10)
    late = asyncio.Event()

    async def wait():
        await late.wait()
        return Answered(200, b'{"late":1}')

    bench = Bench(rows, {0: [wait]}, num_samples_in_parallel=2)
    seen = []
    async for rollout in bench.rollouts():
        seen.append(rollout)
        if len(seen) == 9:
            late.set()
    assert bench.sent == list(range(10))
    assert bench.most == 2
    assert seen[-1].result == {"late": 1}
    assert [id(row) for row, _ in seen] == [id(row) for row in (*rows[1:], rows[0])]


async def test_nothing_begins_before_the_first_result_is_asked_for():
    bench = Bench(numbered(3))
    rollouts = bench.rollouts()
    await quiet()
    assert bench.sent == []
    await anext(rollouts)
    assert bench.sent != []
    await rollouts.aclose()


@pytest.mark.parametrize("kind", [Pulled, PulledLater])
@pytest.mark.parametrize("resident", [1, 3])
async def test_no_more_rows_are_pulled_than_may_be_resident(kind, resident):
    rows = kind(20)
    bench = Bench(rows, num_samples_in_parallel=8, max_resident_rollout_tasks=resident)
    yielded, most = 0, 0
    async for _ in bench.rollouts():
        yielded += 1
        await quiet()
        most = max(most, rows.count - yielded)
    assert yielded == 20
    assert most == resident
    assert bench.most <= resident


async def test_a_slow_consumer_holds_back_as_many_answers_as_are_in_flight_and_no_more():
    rows = Pulled(100)
    rollouts = Bench(rows, num_samples_in_parallel=4).rollouts()
    await anext(rollouts)
    await quiet()
    assert rows.count == 9
    await rollouts.aclose()


@pytest.mark.parametrize("answer", [Answered(500, b"boom"), Broken("Reset", "gone"), Answered(200, b"[]")])
async def test_the_first_failure_is_raised_behind_what_was_answered_before(answer):
    rows = numbered(10)
    bench = Bench(rows, {3: [answer]}, num_samples_in_parallel=1)
    seen = []
    with pytest.raises(RolloutError, match=r"rows\[3\] \(task 3, rollout 0\): .* from http://s") as refusal:
        await all_of(bench, seen)
    assert [row for row, _ in seen] == rows[:3]
    assert bench.sent == [0, 1, 2, 3]
    assert refusal.value.row is rows[3]
    status = getattr(answer, "status", None)
    assert refusal.value.status == status
    assert refusal.value.body == ("boom" if status == 500 else None)
    assert refusal.value.failure_class == ("agent_run_error" if status else "agent_request_failed")


async def test_a_failure_ends_what_is_in_flight():
    bench = Bench(numbered(4), {0: [hang], 1: [hang], 2: [Answered(500, b"")]}, num_samples_in_parallel=3)
    with pytest.raises(RolloutError):
        await all_of(bench)
    assert bench.in_flight == 0
    assert bench.sent == [0, 1, 2]


async def test_no_row_is_pulled_after_a_failure():
    rows = Pulled(20)
    bench = Bench(rows, {1: [Answered(500, b"")]}, num_samples_in_parallel=1, max_resident_rollout_tasks=9)
    rollouts = bench.rollouts()
    await anext(rollouts)
    await quiet()
    assert rows.count == 2
    with pytest.raises(RolloutError):
        await anext(rollouts)


async def test_with_routing_a_failure_is_a_row_of_its_own():
    bench = Bench(numbered(3), {1: [Answered(500, "é".encode() * 3000)]}, route_failures_to_sidecar=True)
    failures = [rollout for rollout in await all_of(bench) if "_ng_failure_class" in rollout.result]
    assert [rollout.row["_ng_task_index"] for rollout in failures] == [1]
    assert failures[0].result == {
        "_ng_failure_class": "agent_run_error",
        "_ng_failure_type": "ClientResponseError",
        "_ng_failure_message": "the server answered with status 500",
        "_ng_failure_http_status": 500,
        "_ng_failure_response_body": "é" * 2000 + "…",
    }
    assert sorted(bench.sent) == [0, 1, 2]


@pytest.mark.parametrize("answer", [NeverSent("Refused", "no"), Answered(503, b"busy", "30"), Answered(429, b"")])
async def test_what_was_not_taken_is_sent_again(answer):
    bench = Bench(numbered(1), {0: [answer, answer]})
    [(_, result)] = await all_of(bench)
    assert result == {"reward": 1.0, "task": 0}
    assert bench.sent == [0, 0, 0]
    assert bench.now > 0


async def test_a_gateway_status_that_does_not_end_is_a_failure():
    bench = Bench(numbered(1), {0: [Answered(503, b"busy")] * 9}, route_failures_to_sidecar=True)
    [(_, result)] = await all_of(bench)
    assert (result["_ng_failure_class"], result["_ng_failure_http_status"]) == ("agent_request_failed", 503)
    assert len(bench.sent) == 3


async def test_a_server_that_stays_down_fails_its_rows_after_the_patience():
    script = {task: [NeverSent("Refused", "no")] * 1000 for task in range(6)}
    bench = Bench(numbered(6), script, route_failures_to_sidecar=True, num_samples_in_parallel=2)
    bench.up = False
    rollouts = await all_of(bench)
    assert [rollout.result["_ng_failure_class"] for rollout in rollouts] == ["agent_request_failed"] * 6
    assert all("did not answer for 60 s" in rollout.result["_ng_failure_message"] for rollout in rollouts)
    assert [rollout.latency_s for rollout in rollouts] == [None] * 6
    bench = Bench(numbered(6), script, num_samples_in_parallel=2)
    bench.up = False
    with pytest.raises(RolloutError, match=r"did not answer for 60 s .*agent_request_failed"):
        await all_of(bench)
    assert set(bench.sent) <= {0, 1}


async def test_a_budget_of_zero_drains_everything():
    rows = numbered(5)
    rollouts = await all_of(bench := Bench(iter(rows), dispatch_budget_s=0.0))
    assert bench.sent == []
    assert [rollout.row for rollout in rollouts] == rows
    for rollout in rollouts:
        message = rollout.result.pop("error_message")
        assert "dispatch_budget_s" in message
        assert rollout.result == DRAINED
        assert rollout.latency_s is None


async def test_rows_that_would_not_end_in_time_are_drained_and_those_in_flight_end():
    bench = Bench(numbered(12), dispatch_budget_s=100.0, drain_margin_s=25.0, num_samples_in_parallel=1)
    bench.script = {task: [bench.takes(10)] for task in range(12)}
    rollouts = await all_of(bench)
    assert bench.sent == list(range(8))
    assert drained(rollouts) == [8, 9, 10, 11]
    assert [rollout.latency_s for rollout in rollouts[:8]] == [10.0] * 8


async def test_the_margin_is_learned_from_what_ended():
    bench = Bench(numbered(20), dispatch_budget_s=100.0, num_samples_in_parallel=1)
    bench.script = {task: [bench.takes(9)] for task in range(20)}
    assert len(drained(await all_of(bench))) == 9


async def test_a_row_that_waits_for_its_server_when_the_budget_ends_is_drained():
    bench = Bench(numbered(3), {0: [NeverSent("Refused", "no")] * 9}, dispatch_budget_s=0.1, num_samples_in_parallel=1)
    assert drained(await all_of(bench)) == [0, 1, 2]
    assert bench.sent == [0]


@pytest.mark.parametrize("body", [b'{"_ng_no_persist":true,"x":1}', b'{"_ng_failure_class":"","reward":0.0}'])
async def test_what_the_server_says_of_a_row_comes_as_it_is(body):
    bench = Bench(numbered(1), {0: [Answered(200, body)]})
    [(_, result)] = await all_of(bench)
    assert result == json.loads(body)


async def test_closing_early_ends_what_is_in_flight():
    bench = Bench(numbered(50), {task: [hang] for task in range(1, 50)})
    before = asyncio.all_tasks()
    rollouts = bench.rollouts()
    await anext(rollouts)
    assert bench.in_flight > 0
    await rollouts.aclose()
    assert bench.in_flight == 0
    assert asyncio.all_tasks() == before


async def test_leaving_the_loop_ends_what_is_in_flight():
    bench = Bench(numbered(50), {task: [hang] for task in range(1, 50)})
    before = asyncio.all_tasks()
    async for _ in bench.rollouts():
        break
    await quiet()
    assert bench.in_flight == 0
    assert asyncio.all_tasks() == before


async def test_an_error_of_the_consumer_and_its_cancellation_end_it_too():
    bench = Bench(numbered(50), {task: [hang] for task in range(1, 50)})
    before = asyncio.all_tasks()

    async def consume():
        async for _ in bench.rollouts():
            await (hang() if bench.up else asyncio.sleep(0))
            raise KeyError("of the consumer")

    consumer = asyncio.create_task(consume())
    await quiet()
    assert bench.in_flight > 0
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    assert consumer.cancelled()
    bench.up = False
    bench.script = {task: [hang] for task in range(1, 50)}
    with pytest.raises(KeyError):
        await consume()
    await quiet()
    assert bench.in_flight == 0
    assert asyncio.all_tasks() == before


async def test_nothing_is_left_of_a_call_that_ended_or_was_given_up_while_a_server_was_down():
    before = asyncio.all_tasks()
    async for _ in Bench(numbered(3)).rollouts():
        pass
    assert asyncio.all_tasks() == before
    bench = Bench(numbered(8), {task: [NeverSent("Refused", "no")] * 9 for task in range(1, 8)})
    waiting = asyncio.Event()

    async def sleep(seconds):
        waiting.set()
        await asyncio.Event().wait()

    bench.sleep = sleep
    rollouts = bench.rollouts()
    await anext(rollouts)
    await waiting.wait()
    await rollouts.aclose()
    assert asyncio.all_tasks() == before


async def test_closing_while_a_server_is_down_ends_its_probing():
    bench = Bench(numbered(2), {0: [NeverSent("Refused", "no")]}, num_samples_in_parallel=1)
    bench.sleep = lambda seconds: hang()
    before = asyncio.all_tasks()
    first = asyncio.create_task(anext(bench.rollouts()))
    await quiet()
    assert bench.sent == [0]
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert asyncio.all_tasks() == before


async def test_an_error_of_the_rows_is_raised_behind_what_was_answered():
    def broken():
        yield from numbered(2)
        raise KeyError("of the rows")

    seen = []
    with pytest.raises(KeyError, match="of the rows"):
        await all_of(Bench(broken(), num_samples_in_parallel=1), seen)
    assert [row["_ng_task_index"] for row, _ in seen] == [0, 1]


async def test_a_row_of_an_iterator_that_cannot_be_sent_is_named_when_it_comes():
    rows = numbered(3)
    rows[1]["agent_ref"] = {"name": "nobody"}
    bench = Bench(iter(rows), num_samples_in_parallel=1)
    with pytest.raises(InputError, match=r"^rows\[1\]: agent 'nobody' is not in the environment") as refusal:
        await all_of(bench)
    assert not isinstance(refusal.value, Problems)
    assert bench.sent == [0]


async def test_a_defect_of_the_transport_is_loud():
    async def defect():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await all_of(Bench(numbered(3), {1: [defect]}))


@pytest.mark.parametrize(("resident", "connections"), [(None, 4), (3, 3), (100, 4)])
def test_no_more_connections_are_made_than_rows_can_use(resident, connections):
    settings = Bench([], num_samples_in_parallel=4, max_resident_rollout_tasks=resident).settings
    assert settings.connections == settings.limits.num_samples_in_parallel == connections


async def test_no_rows_give_no_rollouts():
    assert await all_of(Bench([])) == []
    assert await all_of(Bench([], dispatch_budget_s=0.0)) == []
