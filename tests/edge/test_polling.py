"""The SLURM executor asks as often as Snakemake is told, whatever it would do by itself."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from rollmake.edge.polling import PLUGIN, steady_polling


@pytest.fixture
def plugin(monkeypatch):
    """The executor's module, fresh, so that nothing of it is changed for other tests."""
    for name in [name for name in sys.modules if name.split(".")[0] == PLUGIN]:
        monkeypatch.delitem(sys.modules, name)
    yield pytest.importorskip(PLUGIN)
    for name in [name for name in sys.modules if name.split(".")[0] == PLUGIN]:
        monkeypatch.delitem(sys.modules, name)


def told(plugin, seconds):
    """An executor of a Snakemake that was told to ask every so many seconds."""
    executor = object.__new__(plugin.Executor)
    settings = SimpleNamespace(seconds_between_status_checks=seconds)
    executor.__dict__ |= {"workflow": SimpleNamespace(remote_execution_settings=settings)}
    executor.__dict__["_next_seconds_between_status_checks"] = None
    return executor


def test_by_itself_the_executor_takes_its_own_interval(plugin):
    """If this fails the executor has changed, and `steady_polling` may do nothing."""
    executor = told(plugin, 7)
    assert executor.next_seconds_between_status_checks == 7
    executor.next_seconds_between_status_checks = 180
    assert executor.next_seconds_between_status_checks == 180


def test_it_asks_as_often_as_it_is_told(plugin):
    steady_polling()
    executor = told(plugin, 7)
    for own in (17, 180):
        executor.next_seconds_between_status_checks = own
        assert executor.next_seconds_between_status_checks == 7


def test_twice_is_the_same_as_once(plugin):
    steady_polling()
    steady_polling()
    assert told(plugin, 20).next_seconds_between_status_checks == 20


def test_without_the_executor_nothing_happens():
    steady_polling("no_such_executor")
    assert "no_such_executor" not in sys.modules


def test_a_plugin_of_another_shape_is_left_alone(monkeypatch):
    other = ModuleType("other_executor")
    monkeypatch.setitem(sys.modules, "other_executor", other)
    before = dict(vars(other))
    steady_polling("other_executor")
    assert dict(vars(other)) == before
