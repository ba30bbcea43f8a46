"""A file's bytes before and after the repair of its tail."""

import base64

from rollmake.core.tail import split_tail


def run(given, topology):
    content = base64.b64decode(given["before"])
    start = content.rfind(b"\n") + 1
    kept, cut = split_tail(content[start:])
    assert cut in (b"", content[start:])
    return base64.b64encode(content[:start] + kept).decode()
