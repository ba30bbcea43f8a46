"""Moving rows with an invalid judge response from the rollouts of a journal to its sidecar."""

from pathlib import Path

import orjson

from rollmake.core.contract import INVALID_JUDGE
from rollmake.core.judge import JudgeMigration, must_move
from rollmake.edge.deliverables import has_deliverable
from rollmake.edge.files import break_link, replacing
from rollmake.edge.journal import lines

MARK = f'"{INVALID_JUDGE}"'.encode()


def move_invalid_judges(rollouts: Path, failures: Path) -> int:
    """Move them (NeMo Gym contract, section 3.2); returns how many. A kill in between moves none twice.

    Lines that stay keep their bytes. Both files must end with whole lines.
    """
    moved = sum(1 for line in lines(rollouts) if _must_move(line))
    if not moved:
        return 0
    migration = JudgeMigration(has_deliverable)
    for line in lines(failures):
        migration.note(orjson.loads(line))
    break_link(failures)
    with replacing(rollouts) as kept, failures.open("ab") as sidecar:
        for line in lines(rollouts):
            if not _must_move(line):
                kept.write(line + b"\n")
            elif failure := migration.move(orjson.loads(line)):
                sidecar.write(orjson.dumps(failure) + b"\n")
        sidecar.flush()
    return moved


def _must_move(line: bytes) -> bool:
    return MARK in line and must_move(orjson.loads(line))
