"""A head server that is down is waited for, and each environment server has its gate and its address."""

import asyncio

import pytest
from yarl import URL

from rollmake.core.errors import InputError, ServerError
from rollmake.core.outcome import Answered
from rollmake.edge import connections
from rollmake.edge.connections import patiently, sender, server_gates


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


async def test_each_server_is_sent_to_and_probed_at_its_address(monkeypatch):
    posted, probed = [], []

    async def exchange(session, url, body, *, timeout_s, max_bytes):
        posted.append((session, url, body, timeout_s, max_bytes))
        return Answered(200, b"{}")

    async def reachable(session, url):
        probed.append((session, url))
        return True

    monkeypatch.setattr(connections.http, "exchange", exchange)
    monkeypatch.setattr(connections.http, "reachable", reachable)
    urls = {"a": "http://h:1", "b": "http://h:2"}
    await sender("session", urls, timeout_s=3.0, max_bytes=9)("b", b"body")
    assert posted == [("session", URL("http://h:2/run"), b"body", 3.0, 9)]
    gates = server_gates("session", urls, 60.0)
    assert {name: (gate.url, gate.patience_s) for name, gate in gates.items()} == {
        "a": ("http://h:1", 60.0),
        "b": ("http://h:2", 60.0),
    }
    gates["b"].trip("test")
    assert await asyncio.wait_for(gates["b"].admitted(), 10)
    assert probed == [("session", "http://h:2")]
    await gates["b"].close()
