"""A `/run` call without a usable result -> the fields of its sidecar row."""

import base64
import json

from rollmake.core.outcome import Answered, Broken, outcome


def run(input, topology):
    body = base64.b64decode(input["body_base64"])
    status = input["status"]
    if input["exception"] == "ClientResponseError" and status is not None:
        exchange = Answered(status, body)
    else:
        exchange = Broken(input["exception"], "no whole reply", status)
    return json.loads(outcome(exchange, {}).line)
