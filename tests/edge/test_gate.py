"""A server that is down closes its gate, spends nothing, is probed ever more slowly, and is given up only in the end."""

import asyncio
import random

import pytest

from rollmake.edge.gate import BROKEN_LIMIT, OUTAGES, Gate


class World:
    """A clock that only sleeping moves, and a server that is up or not."""

    def __init__(self, up=False, comes_up_at=None):
        self.now, self.up, self.comes_up_at, self.probes, self.sleeps = 100.0, up, comes_up_at, [], []

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def probe(self):
        self.probes.append(self.now)
        return self.up or (self.comes_up_at is not None and self.now >= self.comes_up_at)


def gate(world, patience_s=60.0):
    return Gate(
        "http://s", world.probe, patience_s=patience_s, clock=world.clock, sleep=world.sleep, chance=random.Random(1)
    )


async def test_an_open_gate_lets_in_at_once():
    world = World()
    assert await gate(world).admitted()
    assert world.sleeps == []


async def test_a_tripped_gate_opens_when_the_server_is_back(caplog):
    world = World(comes_up_at=130)
    closed = gate(world)
    closed.trip("refused")
    closed.trip("refused again")
    waiting = [asyncio.create_task(closed.admitted()) for _ in range(5)]
    assert all(await asyncio.gather(*waiting))
    assert world.probes[-1] >= 130
    assert len(world.probes) < 12, "probes back off"
    assert sum("does not answer" in record.getMessage() for record in caplog.records) == 1
    assert closed.gave_up is None


async def test_patience_ends_and_says_why():
    world = World()
    closed = gate(world, patience_s=60)
    closed.trip("refused")
    assert not await closed.admitted()
    assert "did not answer for 60 s (refused)" in closed.gave_up
    assert world.now >= 160
    closed.trip("late")
    assert not await closed.admitted()


async def test_a_server_that_only_takes_connections_does_not_reset_the_patience():
    """It answers probes, but every request fails to reach it."""
    world = World(up=True)
    flapping = gate(world, patience_s=30)
    rounds = 0
    while await flapping.admitted():
        flapping.trip("refused")
        rounds += 1
        assert rounds < 1000
    assert world.now >= 130


async def test_an_outage_after_rollouts_that_take_long_is_waited_for_anew():
    """No answer came between two outages, but a request was in flight long enough to show that the server took it."""
    world = World(comes_up_at=150)
    waited = gate(world, patience_s=60)
    waited.trip("refused")
    assert await waited.admitted()
    assert world.now >= 150
    await asyncio.sleep(0.01)  # The trial lasts, and everybody is let in.
    assert waited.open
    world.now += 3600
    world.comes_up_at = world.now + 50
    waited.trip("refused")
    assert await waited.admitted()
    assert waited.gave_up is None


async def test_outages_without_any_answer_between_them_are_not_waited_for_for_ever():
    world = World(up=True)
    looping = gate(world, patience_s=60)
    outages = 0
    while await looping.admitted():
        await asyncio.sleep(0.01)
        world.now += 30
        looping.trip("reset")
        outages += 1
        assert outages < 100
    assert OUTAGES < outages < OUTAGES + 4


async def test_a_gate_is_open_unless_it_is_slowed_down_or_closed():
    world = World()
    one = gate(world)
    assert one.open
    one.slow_down(3)
    assert not one.open
    world.now += 3
    assert one.open
    one.trip("refused")
    assert not one.open
    await one.close()


async def test_an_answer_starts_the_patience_anew():
    world = World(up=True)
    opened = gate(world, patience_s=1.0)
    for _ in range(20):
        opened.trip("refused")
        assert await opened.admitted()
        opened.answered()


@pytest.mark.parametrize("seconds", [3.0, 20.0])
async def test_slowing_down_holds_everybody_for_a_while(seconds):
    world = World()
    slowed = gate(world)
    slowed.slow_down(seconds)
    slowed.slow_down(0.1)
    assert await slowed.admitted()
    assert world.now >= 100 + seconds


async def test_closing_ends_the_probing():
    world = World()

    async def never(seconds):
        await asyncio.Event().wait()

    closed = Gate("http://s", world.probe, patience_s=60, clock=world.clock, sleep=never)
    closed.trip("refused")
    await closed.close()
    assert world.probes == []


async def test_exchanges_that_break_one_after_another_close_the_gate_and_an_answer_between_them_does_not():
    world = World(up=True)
    brown = gate(world)
    for _ in range(5 * BROKEN_LIMIT):
        for _ in range(BROKEN_LIMIT - 1):
            brown.broken("reset", again=False)
        brown.answered()
    assert world.probes == []
    for _ in range(BROKEN_LIMIT):
        brown.broken("reset", again=False)
    assert await brown.admitted()
    assert len(world.probes) == 1


async def test_a_server_that_answers_probes_but_breaks_every_exchange_is_given_up():
    world = World(up=True)
    looping = gate(world, patience_s=30)
    exchanges = 0
    while await looping.admitted():
        looping.broken("reset", again=False)
        exchanges += 1
    assert BROKEN_LIMIT <= exchanges < 50
    assert "did not answer for 30 s (reset)" in looping.gave_up


async def test_rollouts_that_break_again_though_the_server_is_well_are_no_outage(caplog):
    world = World(up=True)
    tail = gate(world, patience_s=30)
    for _ in range(1000):
        assert await tail.admitted()
        tail.broken("reset", again=True)
    assert len(world.probes) < 10
    assert world.now < 110
    assert sum("does not answer" in record.getMessage() for record in caplog.records) < 10
    tail.answered()
    for _ in range(BROKEN_LIMIT):
        assert tail.open
        tail.broken("reset", again=False)
    assert not tail.open
    await tail.close()


async def test_rollouts_that_break_again_are_an_outage_if_the_server_is_not_well():
    world = World()
    down = gate(world, patience_s=30)
    exchanges = 0
    while await down.admitted():
        down.broken("reset", again=True)
        exchanges += 1
    assert exchanges == BROKEN_LIMIT
    assert "did not answer for 30 s" in down.gave_up
