"""What a folder of skills is, for the rows that are answered with it (NeMo Gym contract, section 8)."""

from collections.abc import Iterable
from hashlib import sha256

from rollmake.core.errors import InputError

FENCE = "---"


def skills_hash(files: Iterable[tuple[tuple[str, ...], bytes]]) -> str:
    """12 hexadecimal digits over the path (as components) and content of every file, in the order of the components."""
    digest = sha256()
    for parts, content in sorted(files):
        digest.update("/".join(parts).encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:12]


def front_matter(text: str, where: str) -> str:
    """The YAML at the head of a SKILL.md, between two lines `---`. Raises InputError if there is none."""
    lines = text.removeprefix("\ufeff").splitlines()
    ends = [place for place, line in enumerate(lines) if line.strip() == FENCE]
    if len(ends) < 2 or ends[0] != 0:
        remedy = "Begin the file with `---`, `name: ...` and `---`, each on a line of its own"
        raise InputError("has no front matter", where=where, remedy=remedy)
    return "\n".join(lines[1 : ends[1]])


def skill_entry(front: object, where: str) -> dict[str, str | None]:
    """Name, description and version of a skill. Raises InputError if it has no name."""
    if not isinstance(front, dict) or not isinstance(front.get("name"), str) or not front["name"].strip():
        raise InputError("the front matter has no `name`", where=where, remedy="Add `name: ...`")
    metadata = front.get("metadata")
    version = metadata.get("version") if isinstance(metadata, dict) else None
    described = front.get("description")
    return {
        "name": front["name"],
        "description": None if described is None else str(described),
        "version": None if version is None else str(version),
    }
