"""The body that collect posts for a typed row."""

from rollmake.core.episodes import episode_request


def run(input, topology):
    return episode_request(input["row"])
