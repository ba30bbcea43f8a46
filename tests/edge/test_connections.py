"""A head server that is down is waited for, and each environment server has its gate and its address."""

import asyncio

import pytest

from helpers.raw import raw_server, says
from rollmake.core.errors import InputError, ServerError
from rollmake.edge import connections
from rollmake.edge.connections import patiently, sender, server_gates
from rollmake.edge.http import client


class Asked:
    """Fails so many times, and counts; each wait moves its clock."""

    def __init__(self, failures, error=None):
        self.failures, self.count, self.now = failures, 0, 0.0
        self.error = error or ServerError("no answer", where="http://head", remedy="Start it")

    def __call__(self):
        self.count += 1
        if self.count <= self.failures:
            raise self.error
        return "topology"

    async def sleep(self, seconds):
        self.now += seconds

    def patiently(self, patience_s):
        return patiently(self, patience_s, clock=lambda: self.now, sleep=self.sleep)


async def test_what_answers_is_asked_once():
    asked = Asked(0)
    assert await asked.patiently(0.0) == "topology"
    assert (asked.count, asked.now) == (1, 0.0)


async def test_it_is_asked_until_it_answers_and_told_once(caplog):
    asked = Asked(5)
    assert await asked.patiently(600.0) == "topology"
    assert asked.count == 6
    assert caplog.text.count("http://head: no answer. Start it; waiting for it") == 1


async def test_after_the_patience_the_last_reason_is_raised():
    asked = Asked(1000)
    with pytest.raises(ServerError) as refusal:
        await asked.patiently(60.0)
    assert str(refusal.value) == "http://head: no answer; waited 60 s for it. Start it"
    assert 60.0 <= asked.now < 60.0 + connections.CAP_S * 2
    assert asked.count > 5


async def test_what_no_waiting_mends_is_raised_at_once():
    asked = Asked(1000, InputError("no topology"))
    with pytest.raises(InputError):
        await asked.patiently(60.0)
    assert asked.count == 1


def named(name):
    return says(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + name)


async def test_each_server_is_sent_to_and_probed_at_its_address():
    async with raw_server(named(b"a")) as a, raw_server(named(b"b")) as b, client(2, connect_timeout_s=2.0) as session:
        urls = {"a": a, "b": b}
        send = sender(session, urls, timeout_s=3.0, max_bytes=1)
        assert [(await send(name, b"{}")).body for name in ("b", "a")] == [b"b", b"a"]
        assert (await sender(session, urls, timeout_s=3.0, max_bytes=0)("b", b"{}")).kind == "ResponseTooLarge"
        gates = server_gates(session, {**urls, "gone": "http://127.0.0.1:1"}, 0.05)
        assert {name: gate.url for name, gate in gates.items()} == {**urls, "gone": "http://127.0.0.1:1"}
        for gate in gates.values():
            gate.trip("test")
        admitted = {name: await asyncio.wait_for(gate.admitted(), 10) for name, gate in gates.items()}
        assert admitted == {"a": True, "b": True, "gone": False}
        for gate in gates.values():
            await gate.close()
