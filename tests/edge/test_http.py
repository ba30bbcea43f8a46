"""A session to environment servers: how many files it may open, and whether a server is well."""

import resource

import pytest

from helpers.raw import raw_server, says
from rollmake.core.errors import InputError
from rollmake.edge import http


async def test_reachable_means_that_anything_is_said():
    reply = says(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
    async with raw_server(reply) as url, http.client(1, connect_timeout_s=1) as session:
        assert await http.reachable(session, url)
    async with http.client(1, connect_timeout_s=1) as session:
        assert not await http.reachable(session, url)


def test_the_file_limit_is_raised_or_refused_with_a_number_that_works():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
        http.raise_file_limit(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        if hard != resource.RLIM_INFINITY:
            with pytest.raises(InputError, match=f"Set it to at most {hard - http.SPARE_FILES}"):
                http.raise_file_limit(hard + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
