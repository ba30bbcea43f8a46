"""An episode's reply -> the record that is stored, without stamps."""

import json

from rollmake.core.errors import DataError
from rollmake.core.outcome import Answered, outcome

ROW = {"task_id": {"taskset": "env:math", "task_id": "t1"}, "task_input": {}}


def run(input, topology):
    result = outcome(Answered(200, json.dumps(input["reply"]).encode()), ROW)
    if result.infrastructure:
        raise DataError(json.loads(result.line)["_ng_failure_message"])
    return json.loads(result.line)
