"""Reading what the config adds to rows: the prompt and the skills."""

from pathlib import Path

from rollmake.core.errors import InputError
from rollmake.core.prompts import Prompt, parse_prompt
from rollmake.core.skills import front_matter, skill_entry, skills_hash
from rollmake.edge.settings import read_yaml

MANIFEST = "SKILL.md"


def read_prompt(path: Path) -> Prompt:
    """The prompt in a YAML file. Raises InputError."""
    return parse_prompt(read_yaml(read_text(path, "prompt_config"), str(path)), str(path))


def read_skills(configured: str) -> dict:
    """The `skills_ref` of a folder of skills: its path as configured, its hash, and what its skills say of themselves.

    Raises InputError for a folder without skills or a SKILL.md without a name.
    """
    root = Path(configured)
    folders = sorted(folder for folder in root.iterdir() if folder.is_dir()) if root.is_dir() else []
    manifests = [folder / MANIFEST for folder in folders if (folder / MANIFEST).is_file()]
    if not manifests:
        remedy = f"It holds one folder for each skill, with a {MANIFEST} in it"
        raise InputError("is no folder of skills", where=configured, remedy=f"Correct `skills`. {remedy}")
    skills = [read_skill(manifest) for manifest in manifests]
    contents = ((file.relative_to(root).parts, file.read_bytes()) for file in root.rglob("*") if file.is_file())
    return {"path": configured, "hash": skills_hash(contents), "skills": skills}


def read_skill(manifest: Path) -> dict[str, str | None]:
    """What a SKILL.md says of its skill. Raises InputError."""
    where = str(manifest)
    return skill_entry(read_yaml(front_matter(read_text(manifest, "skills"), where), where), where)


def read_text(path: Path, option: str) -> str:
    """The UTF-8 text in a file that `option` names. Raises InputError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        found = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InputError(found, where=str(path), remedy=f"Correct `{option}` in the config") from None
