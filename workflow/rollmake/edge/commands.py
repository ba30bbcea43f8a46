"""Where the commands of this process and its children are found."""

import os
from pathlib import Path


def put_in_front(folder: Path) -> None:
    """Let the commands in `folder` be found before others of their names; doing it again changes nothing."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if str(folder) not in folders:
        os.environ["PATH"] = os.pathsep.join([str(folder), *folders])
