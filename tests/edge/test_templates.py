"""Prompt files and folders of skills."""

from hashlib import sha256

import pytest

from rollmake.core.errors import InputError
from rollmake.core.prompts import Prompt
from rollmake.edge.templates import read_prompt, read_skills


def test_prompt(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("user: |-\n  Solve {q}.\nsystem: Brief.\n")
    assert read_prompt(path) == Prompt(user="Solve {q}.", system="Brief.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"p\.yaml: cannot be read: No such file.*`prompt_config`"),
        (b"\xff", r"p\.yaml: cannot be read"),
        (b"user: [", r"p\.yaml:\d: this is no YAML"),
        (b"user: a\nuser: b\n", r"p\.yaml:2: the key 'user' stands twice"),
        (b"system: x\n", r"p\.yaml: no prompt"),
    ],
)
def test_prompts_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_prompt(path)


def skill(root, folder, text):
    (root / folder).mkdir(parents=True)
    (root / folder / "SKILL.md").write_text(text)


def test_skills(tmp_path):
    skill(tmp_path, "b", "---\nname: second\ndescription: d\nmetadata: {version: 2}\n---\n")
    skill(tmp_path, "a", "---\nname: first\n---\n")
    (tmp_path / "a" / "x").mkdir()
    (tmp_path / "a" / "x" / "tool.py").write_bytes(b"1")
    (tmp_path / "README").write_bytes(b"2")
    (tmp_path / "no_skill").mkdir()
    found = read_skills(str(tmp_path))
    assert found["path"] == str(tmp_path)
    assert found["skills"] == [
        {"name": "first", "description": None, "version": None},
        {"name": "second", "description": "d", "version": "2"},
    ]
    digest = sha256()
    for name in ("README", "a/SKILL.md", "a/x/tool.py", "b/SKILL.md"):
        digest.update(name.encode() + b"\0" + (tmp_path / name).read_bytes() + b"\0")
    assert found["hash"] == digest.hexdigest()[:12]


def test_skills_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: is no folder of skills\. Correct `skills`"):
        read_skills("nowhere")
    with pytest.raises(InputError, match="is no folder of skills"):
        read_skills(str(tmp_path))
    skill(tmp_path, "a", "name: first\n")
    with pytest.raises(InputError, match=r"a/SKILL\.md: has no front matter"):
        read_skills(str(tmp_path))
    skill(tmp_path, "b", "")
    (tmp_path / "a" / "SKILL.md").write_text("---\nversion: 1\n---\n")
    with pytest.raises(InputError, match=r"a/SKILL\.md: the front matter has no `name`"):
        read_skills(str(tmp_path))
