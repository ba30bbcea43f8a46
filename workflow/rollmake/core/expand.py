"""Input rows -> the rollouts that are owed for them (NeMo Gym contract 2.1, 8)."""

import json
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from rollmake.core.contract import PARAMS, ROLLOUT, SKILLS_REF, TASK
from rollmake.core.dispatch import Dispatch, Sent
from rollmake.core.episodes import taskset_of
from rollmake.core.errors import InputError
from rollmake.core.findings import Findings
from rollmake.core.options import Options
from rollmake.core.prompts import Prompt, apply_prompt
from rollmake.core.router import Router

INDICES = range(2**63)


class Copies(NamedTuple):
    """`count` rollouts of one row, with rollout indices from `first` on. `row` is compact JSON without the two indices."""

    row: bytes
    task: int
    first: int
    count: int
    server: str | None
    agent: str | None


class Expansion:
    """Turns rows into rollouts, one row at a time and in their order, and remembers what is wrong with them.

    Its memory grows with the number of tasks (under 300 bytes each), not with the size of rows. What it returns may be
    published only if `problems` is empty at the end.
    """

    def __init__(
        self, options: Options, router: Router | None, *, prompt: Prompt | None = None, skills: dict | None = None
    ) -> None:
        self.prompt, self.skills = prompt, skills
        self.parameters, self.seeds = options.responses_create_params, options.num_repeats_add_seed
        self.dispatch = Dispatch(options, router)
        self.findings = Findings()
        self.tasks_by_line: dict[bytes, int] = {}
        self.stamped: dict[int, str] = {}
        self.automatic: list[str] = []
        # Rows that are the same as one before, and so add repeats to its task.
        self.repeated = 0
        self.next_rollout: dict[int, int] = {}

    def expand(self, line: bytes, row: dict, compact: bytes, where: str) -> list[Copies]:
        """The rollouts of a row; `line` is its text without the line end, `compact` its compact JSON."""
        try:
            taskset = taskset_of(row)
            task = self.task(line, row, where)
            sent = self.dispatch.sent(row, taskset, where)
            changed = self.flat(row) if taskset is None else self.typed(row)
            if changed is not row or TASK in row or ROLLOUT in row:
                compact = without_indices(changed)
            copies: list[Copies] = []
            for way in sent:
                copies += self.copies(changed, compact, task, way)
            return copies
        except InputError as error:
            self.findings.add_error(error, where)
            return []

    def copies(self, row: dict, compact: bytes, task: int, sent: Sent) -> list[Copies]:
        """The rollouts of a row at one agent; `compact` is the row without its indices. Raises InputError."""
        first = self.next_rollout.get(task, 0)
        self.next_rollout[task] = first + sent.repeats
        if self.seeds:
            seeded = {**row, **sent.stamps}
            return [
                Copies(without_indices(with_seed(seeded, rollout)), task, rollout, 1, sent.server, sent.agent)
                for rollout in range(first, first + sent.repeats)
            ]
        if sent.stamps:
            compact = without_indices({**row, **sent.stamps})
        return [Copies(compact, task, first, sent.repeats, sent.server, sent.agent)]

    def task(self, line: bytes, row: dict, where: str) -> int:
        """The task index: the row's own, else the number of different lines before it. Raises InputError."""
        if TASK in row:
            task = row[TASK]
            if isinstance(task, bool) or not isinstance(task, int) or task not in INDICES:
                remedy = "Write an integer from 0 to 9223372036854775807, or leave it out"
                raise InputError(f"{TASK} is {task!r}", remedy=remedy)
            self.stamped.setdefault(task, where)
            return task
        known = len(self.automatic)
        task = self.tasks_by_line.setdefault(sha256(line).digest(), known)
        if task == known:
            self.automatic.append(where)
        else:
            self.repeated += 1
        return task

    def flat(self, row: dict) -> dict:
        """A flat row with prompt, parameters and skills of the options. Raises InputError."""
        if self.prompt:
            row = apply_prompt(self.prompt, row)
        if not isinstance(row.get(PARAMS), dict):
            what = f"{PARAMS} is no object" if PARAMS in row else f"has no {PARAMS}"
            raise InputError(what, remedy='Write at least {"input": ...}, or use `prompt_config`')
        if self.parameters:
            row = {**row, PARAMS: {**row[PARAMS], **self.parameters}}
        return {**row, SKILLS_REF: self.skills} if self.skills else row

    def typed(self, row: dict) -> dict:
        """A typed row as it is. Raises InputError for options that would have to change it."""
        changing = {
            "responses_create_params": self.parameters,
            "num_repeats_add_seed": self.seeds,
            "skills": self.skills,
            "prompt_config": self.prompt,
        }
        refused = [name for name, value in changing.items() if value]
        if refused:
            remedy = "Leave the option out, or give typed tasks a run of their own"
            raise InputError(f"{', '.join(refused)} cannot change a typed task", remedy=remedy)
        return row

    def problems(self) -> list[InputError]:
        """Everything found wrong, in few messages: rows, then indices, then where rows go."""
        collisions = Findings()
        for task in sorted(task for task in self.stamped if task < len(self.automatic)):
            found = f"would get {TASK} {task}, which the row at {self.stamped[task]} has"
            collisions.add(found, self.automatic[task], f"Write {TASK} on all rows, or on none")
        return [*self.findings, *collisions, *self.dispatch.findings]


def without_indices(row: dict) -> bytes:
    """Compact JSON of a row without task and rollout index."""
    if TASK in row or ROLLOUT in row:
        row = {key: value for key, value in row.items() if key not in (TASK, ROLLOUT)}
    return orjson.dumps(row)


def with_seed(row: dict, seed: int) -> dict:
    """The row with `seed` in the JSON text `responses_create_params.metadata.extra_body`. Raises InputError."""
    params = row[PARAMS]
    metadata = params.get("metadata")
    place = f"{PARAMS}.metadata"
    if metadata is not None and not isinstance(metadata, dict):
        raise InputError(f"{place} is no object, so that num_repeats_add_seed cannot add to it")
    body = extra_body((metadata or {}).get("extra_body"), f"{place}.extra_body")
    text = json.dumps({**body, "seed": seed})
    return {**row, PARAMS: {**params, "metadata": {**(metadata or {}), "extra_body": text}}}


def extra_body(text: object, place: str) -> dict[str, Any]:
    """The object in a JSON text; an empty one for None. Raises InputError."""
    try:
        body = {} if text is None else json.loads(text) if isinstance(text, str) else None
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise InputError(
            f"{place} is {text!r}, not an object as JSON text", remedy='Write for instance "{\\"top_k\\": 5}"'
        )
    return body
