"""What a rollout left behind in a folder, for a judge to look at again."""

import os

from rollmake.core.judge import NO_DELIVERABLES


def has_deliverable(folder: str) -> bool:
    """Whether a file was delivered to `folder`: beside those that always are (NeMo Gym contract, section 3.2)."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.is_file() and entry.name not in NO_DELIVERABLES for entry in entries)
    except (OSError, ValueError):
        return False
