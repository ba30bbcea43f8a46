"""The search for cycles is off where it is said to be, and on again behind it."""

import gc

import pytest

from rollmake.edge.memory import no_cycle_search, settle_in


def test_it_is_off_in_the_block_and_as_before_behind_it():
    with no_cycle_search():
        assert not gc.isenabled()
        with no_cycle_search():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_cycle_search():
        raise KeyError
    assert gc.isenabled()


def test_it_goes_on_afterwards_if_it_was_on():
    for enabled in (True, False):
        try:
            (gc.enable if enabled else gc.disable)()
            with pytest.raises(ValueError, match="inside"), no_cycle_search():
                assert not gc.isenabled()
                raise ValueError("inside")
            assert gc.isenabled() == enabled
        finally:
            gc.enable()


def test_a_rare_search_is_still_a_search():
    before = gc.get_threshold()
    try:
        settle_in()
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
