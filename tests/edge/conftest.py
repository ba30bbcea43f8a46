"""rollmake runs on uvloop, a program that uses its library on anything: what is asynchronous is tested on both."""

import asyncio

import uvloop


def pytest_asyncio_loop_factories():
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
