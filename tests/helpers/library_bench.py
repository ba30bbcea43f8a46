"""A library call without a network: a scripted transport, a clock that only the script moves."""

import asyncio
import json
import random

from helpers import chaos
from rollmake.core.outcome import Answered
from rollmake.core.topology import parse_topology
from rollmake.edge.gate import Gate
from rollmake.library.addressing import Addressing
from rollmake.library.feed import Channel, Feed, handed_over
from rollmake.library.rollouts import Settings, dispatch

DEFAULTS = {
    "num_samples_in_parallel": 4,
    "max_resident_rollout_tasks": None,
    "dispatch_budget_s": None,
    "drain_margin_s": None,
    "route_failures_to_sidecar": False,
    "allow_unsupported_pairing": False,
    "connect_timeout_s": 30.0,
    "rollout_timeout_s": None,
    "idle_timeout_s": None,
    "max_response_bytes": 1 << 30,
    "gateway_retries": 2,
    "outage_patience_s": 60.0,
}


def numbered(count, **fields):
    """Rows whose task index is their place."""
    return [chaos.row(number=n, _ng_task_index=n, _ng_rollout_index=0, **fields) for n in range(count)]


class Bench:
    """`script` maps a task to the answers of its requests in order; a callable is awaited for one; success beyond them."""

    def __init__(self, rows, script=None, **options):
        self.script = {task: list(answers) for task, answers in (script or {}).items()}
        self.settings = Settings(**{**DEFAULTS, **options})
        self.rows = rows
        self.sent, self.now, self.up = [], 0.0, True
        self.in_flight = self.most = 0

    def rollouts(self):
        channel = Channel(self.settings.resident)
        return handed_over(channel, lambda: self.produce(channel))

    async def produce(self, channel):
        topology = parse_topology(chaos.topology("127.0.0.1", 1), where="test")
        addressing = Addressing(topology, allow_unsupported_pairing=False)
        parallel, routing = self.settings.connections, self.settings.route_failures_to_sidecar
        feed = Feed(self.rows, addressing, channel, parallel=parallel, route_failures_to_sidecar=routing)
        gate = Gate(
            "http://s",
            self.probe,
            patience_s=self.settings.outage_patience_s,
            clock=lambda: self.now,
            sleep=self.sleep,
            chance=random.Random(1),
        )
        await dispatch(feed, {chaos.SERVER: gate}, self.send, self.settings, lambda: self.now)

    async def probe(self):
        return self.up

    async def sleep(self, seconds):
        self.now += seconds
        await asyncio.sleep(0)

    async def send(self, name, body):
        task = json.loads(body)["_ng_task_index"]
        self.sent.append(task)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(0)
            answer = self.script[task].pop(0) if self.script.get(task) else ok(task)
            return await answer() if callable(answer) else answer
        finally:
            self.in_flight -= 1

    def takes(self, seconds):
        async def answer():
            self.now += seconds
            return ok(0)

        return answer


def ok(task):
    return Answered(200, json.dumps({"reward": 1.0, "task": task}).encode())


async def hang():
    await asyncio.Event().wait()
