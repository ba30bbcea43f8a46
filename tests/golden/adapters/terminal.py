"""Whether a sidecar row forbids another attempt."""

from rollmake.core.settlement import is_terminal


def run(input, topology):
    return is_terminal(input["row"], input["retry_terminal_timeouts"])
