"""Hash and names of a folder of skills."""

from hashlib import sha256

import pytest

from rollmake.core.errors import InputError
from rollmake.core.skills import front_matter, skill_entry, skills_hash


def test_hash_is_over_paths_and_contents_in_the_order_of_components():
    files = [(("a-b", "SKILL.md"), b"2"), (("a", "SKILL.md"), b"1"), (("top.txt",), b"3")]
    expected = sha256(b"a/SKILL.md\x001\x00a-b/SKILL.md\x002\x00top.txt\x003\x00").hexdigest()[:12]
    assert skills_hash(files) == skills_hash(files[::-1]) == expected


@pytest.mark.parametrize("files", [[(("a",), b"x"), (("b",), b"y")], [(("a",), b"y")], [(("b",), b"x")], []])
def test_hash_changes_with_paths_and_contents(files):
    assert skills_hash(files) != skills_hash([(("a",), b"x")])


def test_front_matter():
    assert front_matter("---\nname: a\nx: 1\n---\nText\n---\n", "S") == "name: a\nx: 1"
    assert front_matter("\ufeff---\r\nname: a\r\n---\r\n", "S") == "name: a"


@pytest.mark.parametrize("text", ["", "name: a\n", "---\nname: a\n", "\n---\nname: a\n---\n"])
def test_no_front_matter(text):
    with pytest.raises(InputError, match="S: has no front matter"):
        front_matter(text, "S")


def test_entries():
    assert skill_entry({"name": "n", "description": "d", "metadata": {"version": 1.5}}, "S") == {
        "name": "n",
        "description": "d",
        "version": "1.5",
    }
    assert skill_entry({"name": "n", "metadata": "x"}, "S") == {"name": "n", "description": None, "version": None}


@pytest.mark.parametrize("front", [None, [], {}, {"name": ""}, {"name": "  "}, {"name": 5}])
def test_entries_need_a_name(front):
    with pytest.raises(InputError, match="S: the front matter has no `name`"):
        skill_entry(front, "S")
